"""Graphite's render API -> background of the grid: queued jobs, slots claimed, utilisation, as means per bucket.

GraphiteSection -> GraphiteBackground -> spans -> BACKGROUND_SCHEMA. A target that gives several series (a wildcard) is their sum.
A server that is away raises between two spans: what was read stays, and the next run goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import numpy as np

from stormpetrel.config import EventsSection, GraphiteSection
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import CursorOf
from stormpetrel.records.traces import Seconds
from stormpetrel.sources.background_buckets import BackgroundReading, NamedExpression, Samples, named_expressions
from stormpetrel.sources.contract import BackgroundSpan
from stormpetrel.sources.http import Address, JsonServer

_SETTING: Final = "graphite.targets"
_CHUNK: Final = timedelta(days=7)  # at a point every ten seconds 60,000 points, or 2 MB
_COARSEST: Final = timedelta(days=3)  # between two points
_MOST_SERIES: Final = 2000  # of one target


class GraphiteBackground:
    """The targets of site.toml, read from Graphite; `notes` say what was added up and what was not there."""

    source = "graphite"

    def __init__(
        self,
        settings: GraphiteSection,
        events: EventsSection | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._targets = named_expressions(settings.targets, _SETTING)
        self._address = Address("graphite", settings.url, settings.token_file, settings.ca_file, settings.timeout_s)
        self._reading = BackgroundReading(self.source, _SETTING, events or EventsSection(), _CHUNK)
        self._pause = pause
        self._coarse: dict[str, int] = {}  # seconds between points, where they are longer than a bucket
        self.notes: list[str] = []

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[BackgroundSpan]:
        """What has not been read yet, name by name, oldest first, in whole buckets that are over and settled."""
        with JsonServer(self._address, pause=self._pause) as server:
            try:
                ask = partial(self._series, server)
                yield from self._reading.spans(self._targets, ask, cursor, now, server=server)
            finally:
                self.notes += self._notes()

    def _series(self, server: JsonServer, query: NamedExpression, start: datetime, end: datetime) -> list[Samples]:
        series = self._request(server, query, start, end)
        if any(0 < time_s.size < (end - start).total_seconds() / self._reading.bucket_s for time_s, _ in series):
            # Points that are further apart than buckets: ask for some before as well, to see how far, and which one begins there.
            series = self._request(server, query, start - _COARSEST, end)
        self._reading.count(query.name, len(series))
        return [self._as_long_as_buckets(query.name, *samples) for samples in series]

    def _request(self, server: JsonServer, target: NamedExpression, start: datetime, end: datetime) -> list[Samples]:
        # Graphite leaves `from` out and takes `until` in.
        span = [("from", str(int(start.timestamp()) - 1)), ("until", str(int(end.timestamp()) - 1))]
        parameters = [("target", target.expression), *span, ("format", "json")]
        try:
            answer = server.get("render", parameters, not_found="has no render API")
        except SourceFormatError as error:
            raise SourceFormatError(
                error.what, hint=f"{error.hint} It was asked for {target.name!r} of graphite.targets."
            ) from None
        try:
            series = [_samples(entry["datapoints"]) for entry in answer]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            what = "answered in a form that no Graphite has"
            raise server.failure(SourceFormatError, what, "Check graphite.url.") from None
        if len(series) > _MOST_SERIES:
            what = f"has {len(series):,} series for {target.name}; at most {_MOST_SERIES:,} are added up"
            raise server.failure(SourceFormatError, what, "Let Graphite add them: sumSeries(…) in graphite.targets.")
        return series

    def _as_long_as_buckets(self, name: str, time_s: Seconds, values: Seconds) -> Samples:
        """The points; one that stands for longer than a bucket is repeated for each bucket that it stands for."""
        bucket_s = self._reading.bucket_s
        step_s = int(np.median(np.diff(time_s))) if time_s.size > 1 else 0
        if not bucket_s < step_s <= _COARSEST.total_seconds():
            return time_s, values
        self._coarse[name] = step_s
        offsets = np.arange(0, step_s, bucket_s, dtype=np.float64)  # (repeats,)
        return (time_s[:, None] + offsets).ravel(), np.repeat(values, offsets.size)

    def _notes(self) -> list[str]:
        coarse = [f"{name}: Graphite keeps a point every {step_s / 60:g} min." for name, step_s in self._coarse.items()]
        return self._reading.notes() + coarse


def _samples(points: list[list[float | None]]) -> Samples:
    """Pairs of value and time as two columns; a null is no number."""
    pairs = np.array([(np.nan if value is None else value, moment) for value, moment in points], dtype=np.float64)
    pairs = pairs.reshape(-1, 2)  # (points, 2), also of none
    if not np.isfinite(pairs[:, 1]).all():
        raise ValueError("a point without a time")
    return pairs[:, 1], pairs[:, 0]

"""Prometheus -> background of the grid: queries such as sum(slurm_jobs_pending), as means per bucket.

PrometheusSection.background -> PrometheusBackground -> spans -> BACKGROUND_SCHEMA. The server evaluates the query every minute or
oftener, at moments that do not depend on who asks; the mean of a bucket is over those. Several series are added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from stormpetrel.config import EventsSection, PrometheusSection
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.records.cursor import CursorOf
from stormpetrel.sources.background_buckets import BackgroundReading, NamedExpression, Samples, named_expressions
from stormpetrel.sources.contract import BackgroundSpan
from stormpetrel.sources.prometheus.query import PrometheusServer, Series

_SETTING: Final = "prometheus.background"
_MOST_POINTS: Final = 10_080  # of a query: a week of minutes; a server that has a limit has 11,000
_STEPS: Final = (5, 60)  # seconds between two evaluations, for the shortest and for long buckets


class PrometheusBackground:
    """The queries of site.toml, read from Prometheus or what speaks like it; `notes` say what was added up."""

    source = "prometheus"

    def __init__(
        self,
        settings: PrometheusSection,
        events: EventsSection | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._pause = settings, pause
        self._queries = named_expressions(settings.background, _SETTING)
        bucket_s = (events or EventsSection()).bucket_minutes * 60
        self._step_s = min(max(bucket_s // 30, _STEPS[0]), _STEPS[1])
        chunk = timedelta(seconds=max(_MOST_POINTS * self._step_s // bucket_s, 1) * bucket_s)
        self._reading = BackgroundReading(self.source, _SETTING, events or EventsSection(), chunk)
        self.notes: list[str] = []

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[BackgroundSpan]:
        """What has not been read yet, name by name, oldest first, in whole buckets that are over and settled."""
        with PrometheusServer(self._settings, pause=self._pause) as server:
            try:
                ask = partial(self._series, server)
                yield from self._reading.spans(self._queries, ask, cursor, now, server=server)
            finally:
                self.notes += self._reading.notes()

    def _series(self, server: PrometheusServer, query: NamedExpression, start: datetime, end: datetime) -> list[Samples]:
        """The query at every step of the span; a half of the span at a time where the server finds it too much."""
        # A subquery counts its steps from 1970. Whether it takes its beginning in depends on the version, hence the second before
        # it; VictoriaMetrics wants a whole step as its end, which belongs to the next bucket and is left out below.
        length = f"{round((end - start).total_seconds()) + 1}s:{self._step_s}s"
        hint = f"Check {query.name!r} in prometheus.background."
        try:
            answer = server.instant(f"({query.expression})[{length}]", end.timestamp())
        except SettingsError as error:
            raise SettingsError(error.what, hint=hint) from None
        except SourceUnavailableError as error:
            if not _is_too_much(error):
                raise
            buckets = (end - start) // timedelta(seconds=self._reading.bucket_s)
            if buckets < 2:
                raise SourceUnavailableError(error.what, hint=hint) from None
            middle = start + buckets // 2 * timedelta(seconds=self._reading.bucket_s)
            return [*self._series(server, query, start, middle), *self._series(server, query, middle, end)]
        self._reading.count(query.name, len(answer))
        return [_inside(series, start.timestamp(), end.timestamp()) for series in answer]


def _inside(series: Series, start_s: float, end_s: float) -> Samples:
    """The samples of a span without its end: the next span, or half of one, tells that again."""
    inside = (series.time_s >= start_s) & (series.time_s < end_s)
    return series.time_s[inside], series.values[inside]


def _is_too_much(error: SourceUnavailableError) -> bool:
    return "will not answer the query" in error.what or "MiB" in error.what

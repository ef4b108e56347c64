"""The loop of `stormpetrel watch`: read → judge → commit → settle → tell.

Site -> Watch.step -> Step, again and again. Killed anywhere and started again it makes the same predictions, and none twice: what
was said lies in the table together with the horizon up to which it was said.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import ModelError
from stormpetrel.jobs.stream import LOOKBACK, JobStream
from stormpetrel.lifecycle.job_telemetry import with_telemetry
from stormpetrel.lifecycle.live import current_versions, first_horizon, open_stream
from stormpetrel.lifecycle.working_points import renew_working_points, use_working_points
from stormpetrel.records.jobs import KEY
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import forgettings
from stormpetrel.watch.reading import LiveReader, Read

_SLICE: Final = timedelta(days=1)  # how much is caught up with in one commit
_BEHIND: Final = timedelta(hours=1)  # with so much left to catch up with, it says after each day how far it is
_RENEW_EVERY_S: Final = 10.0  # seconds of ours between two renewals of working points, at least
_PARTS_OF_A_DAY: Final = (1, 2, 3, 4, 6, 8, 12, 24)  # hours


@dataclass(frozen=True, slots=True)
class Step:
    """What one turn of the loop came to."""

    read: Read
    predictions: pl.DataFrame
    horizon: datetime | None
    open_jobs: int
    seconds: float
    models: dict[str, int] = field(default_factory=dict)
    model_problem: str | None = None

    @property
    def ready(self) -> bool:
        """Whether jobs are being judged: the sources answer, and there is a model."""
        return self.read.problem is None and self.model_problem is None


class Watch:
    """One watcher of one site; `alive` hears of each day that it has caught up with, while it has more to catch up with."""

    def __init__(
        self, site: Site, reader: LiveReader | None = None, alive: Callable[[datetime], None] = lambda horizon: None
    ) -> None:
        self.site = site
        self.reader = reader or LiveReader(site)
        self._alive = alive
        self._stream: JobStream | None = None
        self._models: dict[str, int] = {}
        self._forgettings = 0  # as many users had been forgotten when the stream was opened
        self._problem: str | None = None
        self._flags_of: datetime | None = None  # the hour whose working points are in force
        self._read: tuple[JobStream, int, pl.DataFrame] | None = None  # rows with news, of this version of the table

    def step(self) -> Step:
        """Look once at the scheduler, and judge what has come."""
        started = time.perf_counter()
        read = self.reader.read()
        stream = self._current_stream(read.until)
        predictions = self._judge(stream, read.until) if stream and read.until else _nothing()
        return Step(
            read=read,
            predictions=predictions,
            horizon=stream.horizon if stream else None,
            open_jobs=stream.open_jobs if stream else 0,
            seconds=time.perf_counter() - started,
            models=dict(self._models),
            model_problem=self._problem,
        )

    def _renew_working_points(self, stream: JobStream) -> None:
        """Let what has settled up to the full hour say where flags begin: nothing from after it.

        By the site's clock alone: a watch that was killed, and one that was not, flag the same.
        """
        hour = _full(stream.horizon, self._renewal_period())
        if hour != self._flags_of:
            use_working_points(stream.predictor, renew_working_points(self.site, now=hour))
            self._flags_of = hour

    def _renewal_period(self) -> timedelta:
        """An hour; where the site's clock runs faster, as many as pass in some seconds, a day at most."""
        hours = math.ceil(self.site.pace() * _RENEW_EVERY_S / 3600)
        return timedelta(hours=next(part for part in _PARTS_OF_A_DAY if part >= min(hours, 24)))

    def _judge(self, stream: JobStream, until: datetime) -> pl.DataFrame:
        """Judge what happened up to `until`, a day at a time; what is said is committed before it counts."""
        parts = [_nothing()]
        try:
            moves = self.site.settings.jobs.recalibrate and not self.site.settings.jobs.threshold
            for part in _slices(stream.horizon, until, self._renewal_period() if moves else None):
                # Joined at each step: windows of CPU traces come without any change of the table of jobs.
                news = with_telemetry(self.site, self._news(stream), between=(stream.horizon - LOOKBACK, part))
                self._renew_working_points(stream)
                predictions = stream.advance(news, until=part)
                if predictions.height:
                    predictions = self._commit(predictions, horizon=part)
                parts.append(predictions)
                if until - part >= _BEHIND and (not moves or part == _full(part, _SLICE)):
                    self._alive(part)
        except BaseException:
            self._stream = None  # it may be ahead of what was committed: the next step begins at the table again
            raise
        return pl.concat(parts)

    def _commit(self, predictions: pl.DataFrame, *, horizon: datetime) -> pl.DataFrame:
        """Commit what is said, and return it; without what is said of a user who was forgotten while it was worked out."""
        with self.site.state.writer_lock():
            if forgettings(self.site.state) != self._forgettings:
                keys = self.site.jobs.read_jobs().select(KEY).collect()
                predictions = predictions.join(keys, on=list(KEY), how="semi", nulls_equal=True, maintain_order="left")
            return self.site.predictions.publish(predictions, horizon=horizon, clock=self.site.now, pace=self.site.pace())

    def _news(self, stream: JobStream) -> pl.DataFrame:
        """The rows that may have news; read again when the table has changed, for without that nothing is added to them."""
        version = self.site.jobs.table.version()
        if self._read is None or self._read[0] is not stream or self._read[1] != version:
            self._read = (stream, version, self.site.jobs.read_jobs().filter(stream.news()).collect())
        return self._read[2]

    def _current_stream(self, now: datetime | None) -> JobStream | None:
        """The stream over the models in use; a model that was promoted meanwhile is taken up, one that cannot be read is not.

        After a user was forgotten it is opened anew: the old one counts the user's jobs, and remembers what became of them.
        """
        models, forgotten = current_versions(self.site), forgettings(self.site.state)
        if self._stream is not None and (models, forgotten) == (self._models, self._forgettings):
            return self._stream
        if now is None and self._stream is None:
            return None
        try:
            self._stream = self._open(self._stream.horizon if self._stream else None, now)
            self._models, self._forgettings, self._problem = models, forgotten, None
        except ModelError as error:
            self._problem = str(error)
        return self._stream

    def _open(self, horizon: datetime | None, now: datetime | None) -> JobStream:
        began = self.site.predictions.began()
        if began is None:
            began = first_horizon(self.site, now or self.site.now())
            self.site.predictions.begin(began)
        return open_stream(self.site, horizon=horizon or self.site.predictions.horizon() or began, began=began)


def retry_pause_s(failures: int, poll_s: float) -> float:
    """How long to wait after so many looks in vain: twice as long each time, a minute at most."""
    return min(60.0, poll_s * 2.0 ** min(failures, 10)) if failures else poll_s


def _slices(start: datetime, end: datetime, period: timedelta | None) -> Iterator[datetime]:
    """Where to stop on the way: at full periods, each with its working points; of what is longer ago than a day, at full days.

    Without a period flags do not move, and a day is judged at a time.
    """
    while True:
        step = _SLICE if period is None or end - start > _SLICE else period
        start = (start if period is None else _full(start, step)) + step
        if start >= end:
            break
        yield start
    yield end


def _full(moment: datetime, period: timedelta) -> datetime:
    """The last full hour, or full part of a day in UTC, at or before a moment."""
    midnight = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (moment - midnight) // period * period


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=PREDICTION_SCHEMA)

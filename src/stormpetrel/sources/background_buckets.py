"""What every source of background shares: names of site.toml, what is to be read, and samples -> means per bucket.

`name=expression` -> NamedExpression -> spans that are not read yet -> samples -> BACKGROUND_SCHEMA. Each name has a cursor of its
own, which also names its expression and the bucket: one that is added or changed in site.toml is read from the beginning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.config import EventsSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError, StormpetrelError
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import BACKGROUND_SCHEMA, bucket_floor
from stormpetrel.sources.contract import BackgroundSpan

Samples = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # (samples,) seconds since 1970, and their values

_NAME: Final = re.compile(r"[A-Za-z]\w{0,40}", re.ASCII)
_LONGEST_EXPRESSION: Final = 2000
_MOST_NAMES: Final = 100
_FIRST_RUN: Final = timedelta(days=180)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """What site.toml asks for: a name, and what the server understands."""

    name: str
    expression: str


Ask = Callable[[NamedExpression, datetime, datetime], "list[Samples]"]  # the series of an expression in a span


def named_expressions(entries: Sequence[str], setting: str) -> list[NamedExpression]:
    """The `name=expression` of a setting, checked."""
    expressions: dict[str, NamedExpression] = {}
    for entry in entries:
        name, equals, expression = (part.strip() for part in entry.partition("="))
        if not equals or not _NAME.fullmatch(name):
            hint = "Write name=expression; a name is a letter, then at most 40 letters, digits or _."
            raise SettingsError(f"{setting}: {_short(entry)!r} has no name that can be used.", hint=hint)
        if not expression or len(expression) > _LONGEST_EXPRESSION or not expression.isprintable():
            hint = f"Write name=expression on one line of at most {_LONGEST_EXPRESSION} letters."
            raise SettingsError(f"{setting}: what is asked for {name!r} is empty, too long, or not plain text.", hint=hint)
        if name in expressions:
            raise SettingsError(f"{setting}: the name {name!r} is there twice.", hint="Give each its own name.")
        expressions[name] = NamedExpression(name, expression)
    if len(expressions) > _MOST_NAMES:
        raise SettingsError(f"{setting} has {len(expressions)} names.", hint=f"At most {_MOST_NAMES} are read.")
    return list(expressions.values())


class ResumableServer(Protocol):
    """A server whose errors say where the next run goes on."""

    resume: datetime | None


@dataclass(frozen=True, slots=True)
class BackgroundReading:
    """How the names of one server are read: bucket by bucket, on from each cursor.

    `setting` holds the names; `series` is the most series that each name gave at once.
    """

    source: str
    setting: str
    events: EventsSection
    chunk: timedelta
    series: dict[str, int] = field(default_factory=dict)

    @property
    def bucket_s(self) -> int:
        """Length of a bucket in seconds."""
        return self.events.bucket_minutes * 60

    def spans(
        self, wanted: Sequence[NamedExpression], ask: Ask, cursor: CursorOf, now: datetime, *, server: ResumableServer
    ) -> Iterator[BackgroundSpan]:
        """Each name in turn, oldest first.

        A name that the server does not understand does not keep the others out, nor does one at which it breaks off; when the
        next one fails as well, the server is away.
        """
        problem: StormpetrelError | None = None
        away = False
        for query in wanted:
            try:
                yield from self._read(query, ask, cursor, now, server)
                away = False
            except (SettingsError, SourceFormatError) as error:
                problem = problem or error
            except SourceUnavailableError as error:
                if away:
                    raise
                problem, away = problem or error, True
        if problem is not None:
            raise problem

    def count(self, name: str, series: int) -> None:
        """Note how many series a name gave."""
        self.series[name] = max(self.series.get(name, 0), series)

    def notes(self) -> list[str]:
        """What a person should know about the series of each name."""
        missing = f"{self.source.capitalize()} has no such series; check {self.setting}."
        unusual = {name: count for name, count in self.series.items() if count != 1}
        return [f"{name}: {f'{count:,} series were added up.' if count else missing}" for name, count in unusual.items()]

    def _read(
        self, query: NamedExpression, ask: Ask, cursor: CursorOf, now: datetime, server: ResumableServer
    ) -> Iterator[BackgroundSpan]:
        name = self._cursor_name(query)
        left_at = cursor(name)
        end = bucket_floor(now - timedelta(minutes=self.events.settle_minutes), self.bucket_s)
        if left_at is not None and left_at >= _micros(end):
            return
        start = self._start(left_at, now)
        while start < end:
            server.resume = start
            until = min(bucket_floor(start + self.chunk, max(self.bucket_s, 86_400)), end)
            until = until if until > start else min(start + max(self.chunk, timedelta(seconds=self.bucket_s)), end)
            values = self._frame(query.name, ask(query, start, until), start, until)
            position = max(left_at or 0, _micros(until))
            yield BackgroundSpan(start, until, values, Cursor(name, position))
            start = until

    def _start(self, left_at: int | None, now: datetime) -> datetime:
        """Where to go on: a little before the cursor, for samples that came late."""
        if left_at is None:
            return bucket_floor(_since(self.events, now), self.bucket_s)
        again = _EPOCH + timedelta(microseconds=left_at) - timedelta(hours=self.events.overlap_hours)
        return bucket_floor(again, self.bucket_s)

    def _cursor_name(self, query: NamedExpression) -> str:
        digest = hashlib.sha256(query.expression.encode()).hexdigest()[:8]
        return f"{self.source}:{query.name}:{digest}:{self.bucket_s}"

    def _frame(self, name: str, series: Sequence[Samples], start: datetime, end: datetime) -> pl.DataFrame:
        """Means per bucket of each series, added up over the series that have a sample in it."""
        bucket_s, first_s = self.bucket_s, start.timestamp()
        buckets = round((end.timestamp() - first_s) / bucket_s)
        total, there = np.zeros(buckets), np.zeros(buckets, np.bool_)
        for time_s, values in series:
            mean = bucket_means(time_s, values, first_s, bucket_s, buckets)
            known = np.isfinite(mean)
            total[known] += mean[known]
            there |= known
        place = np.flatnonzero(there)
        moments = pl.Series("s", (first_s + place * bucket_s).astype(np.int64) * 1_000_000)
        rows = pl.DataFrame({"bucket_start": moments.cast(BACKGROUND_SCHEMA["bucket_start"]), "value": total[place]})
        rows = rows.with_columns(source=pl.lit(self.source), bucket_s=pl.lit(bucket_s), name=pl.lit(name))
        return rows.select(pl.col(column).cast(dtype) for column, dtype in BACKGROUND_SCHEMA.items())


def bucket_means(
    time_s: npt.NDArray[np.float64], values: npt.NDArray[np.float64], first_s: float, bucket_s: int, buckets: int
) -> npt.NDArray[np.float64]:
    """(buckets,) mean of the finite samples of each bucket; NaN where there is none."""
    place = np.floor((time_s - first_s) / bucket_s)
    inside = (place >= 0) & (place < buckets) & np.isfinite(values)
    place = place[inside].astype(np.int64)
    number = np.bincount(place, minlength=buckets)
    sums = np.bincount(place, weights=values[inside], minlength=buckets)
    means = np.full(buckets, np.nan)
    np.divide(sums, number, out=means, where=number > 0)
    return means


def _since(events: EventsSection, now: datetime) -> datetime:
    if not events.since:
        return now - _FIRST_RUN
    try:
        moment = datetime.fromisoformat(events.since)
    except ValueError:
        raise SettingsError(f"events.since {events.since!r} is not a day.", hint="Write it as 2026-01-31.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _short(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:80]

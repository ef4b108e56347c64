"""Time: what schedulers print -> UTC; the clock of a simulated site.

Inside Stormpetrel a time is a UTC datetime with microseconds; the site's time zone is a setting and is applied once, here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.records.arrays import Floats

UTC_TIME: Final = pl.Datetime("us", "UTC")
# Outside this span a time is a damaged field, not a date (Slurm prints 1970-01-01 for zero; 32-bit clocks end in 2106).
EARLIEST: Final = datetime(1980, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2106, 1, 1, tzinfo=UTC)

_ISO: Final = "%Y-%m-%dT%H:%M:%S"


def moment_of(text: str) -> datetime:
    """The moment that an ISO text tells; in UTC where it names no zone."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_utc(column: pl.Series, time_zone: str) -> pl.Series:
    """ISO times in the site's zone, ISO times with an offset, or Unix seconds, as UTC; null where the text is no time.

    An hour that the clock shows twice in autumn is read as its first pass; one that spring leaves out is moved forward.
    """
    frame = column.to_frame("text")
    epoch = pl.from_epoch(pl.col("text").cast(pl.Float64, strict=False).mul(1e6).cast(pl.Int64, strict=False), "us")
    parsed = frame.select(local_to_utc(pl.col("text").str.to_datetime(_ISO, strict=False, time_unit="us"), time_zone))
    result = parsed.to_series()
    missing = result.is_null() & column.is_not_null()
    if missing.any():
        text = pl.col("text")
        spaced = local_to_utc(
            text.str.replace(" ", "T", literal=True).str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us"),
            time_zone,
        )
        offset = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", strict=False, time_unit="us", time_zone="UTC")
        seconds = pl.when(text.str.contains(r"^\d{1,11}(\.\d+)?$")).then(epoch.dt.replace_time_zone("UTC"))
        result = frame.select(pl.coalesce(pl.lit(result), spaced, offset, seconds)).to_series()
    return within_reason(result).rename(column.name)


def hours_of(times: pl.Series) -> Floats:
    """The hour of the day in UTC, from 0 to 23; NaN for null."""
    return np.floor_divide(_microseconds(times), 3.6e9) % 24.0


def weekdays_of(times: pl.Series) -> Floats:
    """The day of the week in UTC, from 1 (Monday) to 7; NaN for null."""
    return (np.floor_divide(_microseconds(times), 86400e6) + 3.0) % 7.0 + 1.0  # 1 January 1970 was a Thursday


def _microseconds(times: pl.Series) -> Floats:
    return times.cast(UTC_TIME).cast(pl.Int64).cast(pl.Float64).to_numpy()


def from_unix(column: pl.Series) -> pl.Series:
    """Unix seconds (whole or not) as UTC; null for zero, negative and absurd ones."""
    micros = column.cast(pl.Float64, strict=False) * 1e6
    sane = micros.to_frame("us").select(
        pl.when((pl.col("us") > 0) & (pl.col("us") < 4.3e15)).then(pl.col("us").round().cast(pl.Int64, strict=False))
    )
    return within_reason(pl.from_epoch(sane.to_series(), "us").dt.replace_time_zone("UTC")).rename(column.name)


def within_reason(column: pl.Series) -> pl.Series:
    """The times of a column that can be real; the others become null."""
    return (
        column.to_frame("t")
        .select(pl.when(pl.col("t").is_between(EARLIEST, LATEST)).then(pl.col("t").cast(UTC_TIME)))
        .to_series()
    )


def local_to_utc(expression: pl.Expr, time_zone: str) -> pl.Expr:
    """A naive local time as UTC: the first pass of a doubled hour, an hour later for one that was left out."""
    located = expression.dt.replace_time_zone(time_zone, ambiguous="earliest", non_existent="null")
    moved = (expression + pl.duration(hours=1)).dt.replace_time_zone(time_zone, ambiguous="earliest", non_existent="null")
    return pl.coalesce(located, moved).dt.convert_time_zone("UTC")


def month_of(expression: pl.Expr) -> pl.Expr:
    """The UTC month, `2024-03`: the partition of a job."""
    return expression.dt.strftime("%Y-%m")


FEED_FILE: Final = "feed.json"
FEED_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FeedClock:
    """The simulated time: `start_s` + `speed` × the real seconds since `began_s`; speed 0 stands still. Unix seconds."""

    start_s: float
    began_s: float = 0.0
    speed: float = 0.0

    def now_s(self, real_s: float) -> float:
        """The simulated time at a real time."""
        return self.start_s + self.speed * max(0.0, real_s - self.began_s)

    def now(self) -> datetime:
        """The simulated time, in whole seconds (UTC)."""
        return datetime.fromtimestamp(int(self.now_s(time.time())), UTC)


def fixed_clock(moment: datetime) -> FeedClock:
    """A clock that stands still."""
    return FeedClock(moment.timestamp())


def running_clock(start: datetime, *, speed: float = 1.0) -> FeedClock:
    """A clock that shows `start` now and runs at `speed`."""
    return FeedClock(start.timestamp(), time.time(), speed)


def clock_of(document: Mapping[str, Any]) -> FeedClock | None:
    """Return the clock in the settings of a feed; None where they are of another format."""
    return FeedClock(**document["clock"]) if document.get("format") == FEED_FORMAT else None

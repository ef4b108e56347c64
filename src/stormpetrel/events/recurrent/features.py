"""What the recurrent network sees of a series: one row of numbers per bucket.

EventSeries -> Scaling.of (training buckets) -> columns (buckets, width), slow level, calendar. Gaps and maintenance are filled
with what was last seen, and marked. A row sees its own bucket and a bounded number before it, never a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelError
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, WEEK_S, EventSeries

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LEVEL_DAYS: Final = 28  # how far back the slow level sees
LEVEL_MEAN_DAYS: Final = 14.0  # its weights fall by e in this time: growth is followed, an outage hardly moves it
# Waves per week: of the week, of the day (7, 14, 21, 28), and those next to them, by which a Sunday differs from a Monday.
WAVES: Final = (1, 2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 21, 28)
CALENDAR_WIDTH: Final = 2 * len(WAVES)
FARTHEST: Final = 8.0  # spreads; a column beyond is cut there, so that a storm does not saturate the network
SMALLEST_SPREAD: Final = 0.05  # of log(1 + count): a kind that never changes is not blown up
_RIDGE: Final = 5.0  # buckets that speak for no rhythm at all
_EDGES: Final = (0.02, 0.98)  # quantiles beyond which a bucket teaches the rhythm no more than at them
_NORMAL_80: Final = 2.563  # spreads between the first and the last tenth of a normal distribution
_MOST_COLUMNS: Final = 4096


@dataclass(frozen=True, slots=True)
class Scaling:
    """The rhythm of the week and the spread of every column, learnt on training buckets; saved with the weights."""

    bucket_s: int
    kinds: tuple[str, ...]
    background_names: tuple[str, ...]
    change_spread: tuple[float, ...]  # of log(1 + count) against its slow level, per kind; not used, saved models have it
    rhythm: tuple[tuple[float, ...], ...]  # (1 + calendar, kinds): what of that change the hour of the week explains
    departure_spread: tuple[float, ...]  # of what it does not explain
    background_centre: tuple[float, ...]
    background_spread: tuple[float, ...]

    @classmethod
    def of(cls, series: EventSeries) -> Self:
        """The scaling of a training series: its calm buckets only."""
        calm = is_seen(series) & (series.label != ANOMALY)
        change = np.log1p(series.counts) - slow_level(series)  # (buckets, kinds)
        rows = calm & ~np.isnan(change).any(axis=1)
        if rows.sum() < 2:
            raise ModelError(
                "There are too few buckets with counts to learn from.",
                hint="Collect at least two days of events: stormpetrel ingest events",
            )
        waves = _waves(series)[rows]  # (calm, 1 + calendar)
        known = [column[np.isfinite(column)] for column in series.background[calm].T]
        rhythm = _regressed(waves, change[rows])
        left = change[rows] - waves @ rhythm
        spread = np.diff(np.quantile(left, (0.1, 0.9), axis=0), axis=0)[0] / _NORMAL_80
        return cls(
            bucket_s=series.bucket_s,
            kinds=series.kinds,
            background_names=series.background_names,
            change_spread=_floats(np.maximum(change[rows].std(axis=0), SMALLEST_SPREAD)),
            rhythm=tuple(_floats(row) for row in rhythm),
            departure_spread=_floats(np.maximum(spread, SMALLEST_SPREAD)),
            background_centre=tuple(float(column.mean()) if column.size else 0.0 for column in known),
            background_spread=tuple(float(column.std()) or 1.0 if column.size else 1.0 for column in known),
        )

    @property
    def width(self) -> int:
        """How many columns there are, without a calendar."""
        return len(self.kinds) + 2 * len(self.background_names) + 1

    def record(self) -> dict[str, Any]:
        """The scaling as JSON can hold it."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: object) -> Self:
        """The scaling that a model's record holds; ValueError says what is wrong with it."""
        if not isinstance(record, Mapping) or set(record) != {part.name for part in fields(cls)}:
            raise ValueError("its scaling does not name each part once")
        kinds, background = _texts(record["kinds"]), _texts(record["background_names"])
        lengths = {"change_spread": kinds, "departure_spread": kinds}
        lengths |= {"background_centre": background, "background_spread": background}
        parts = {name: _numbers(record[name], len(of)) for name, of in lengths.items()}
        rhythm = record["rhythm"]
        if not isinstance(rhythm, list | tuple) or len(rhythm) != 1 + CALENDAR_WIDTH:
            raise ValueError("its rhythm does not have one row per wave")
        if type(record["bucket_s"]) is not int or not 1 <= record["bucket_s"] <= WEEK_S:
            raise ValueError("its buckets have no length")
        if any(value <= 0 for name, values in parts.items() if name.endswith("spread") for value in values):
            raise ValueError("a spread is not above zero")
        rows = tuple(_numbers(row, len(kinds)) for row in rhythm)
        return cls(bucket_s=record["bucket_s"], kinds=kinds, background_names=background, rhythm=rows, **parts)

    def fitting(self, series: EventSeries) -> EventSeries:
        """The series with just the columns that were learnt; a kind it does not have is zero, a background is unknown."""
        if series.bucket_s != self.bucket_s:
            raise ModelError(
                f"This model has learnt buckets of {self.bucket_s} s, and the series has buckets of {series.bucket_s} s.",
                hint="Train it again after a change of events.bucket_minutes: stormpetrel events train",
            )
        background = np.full((len(series), len(self.background_names)), np.nan)
        for place, name in enumerate(self.background_names):
            if name in series.background_names:
                background[:, place] = series.background[:, series.background_names.index(name)]
        counted = series if series.kinds == self.kinds else series.of_kinds(self.kinds)
        return replace(counted, background=background, background_names=self.background_names)

    def departures(self, series: EventSeries, *, reach: int) -> Matrix:
        """(buckets, width): counts against slow level and hour of the week, background, what of it was seen.

        A bucket that was not seen is filled with the last one that was, at most `reach` buckets before it.
        """
        usual = slow_level(series) + _waves(series) @ np.array(self.rhythm)
        seen = is_seen(series)
        counts = _cut((np.log1p(series.counts) - usual) / np.array(self.departure_spread))  # (buckets, kinds)
        around = _cut((series.background - np.array(self.background_centre)) / np.array(self.background_spread))
        known = np.isfinite(around)
        parts = [_filled(counts, seen, reach), np.where(known, around, 0.0), known, seen[:, None]]
        return np.concatenate(parts, axis=1, dtype=np.float64)


def is_seen(series: EventSeries) -> Mask:
    """(buckets,) the buckets whose counts say something: no gap, and no maintenance."""
    return np.asarray(~series.is_gap & (series.label != MAINTENANCE), dtype=np.bool_)


def level_buckets(bucket_s: int) -> int:
    """How many buckets before a bucket its slow level depends on."""
    return LEVEL_DAYS * max(1, 86_400 // bucket_s)


def slow_level(series: EventSeries) -> Matrix:
    """(buckets, kinds) mean of log(1 + count) over the days before each bucket, the recent ones weighing more.

    NaN where less than a day was seen. The mean is one of logarithms, so that a storm of an hour does not lift it for weeks.
    """
    day, seen = series.buckets_per_day, is_seen(series)
    logs = np.where(seen[:, None], np.log1p(np.nan_to_num(series.counts)), 0.0)
    sums = _sums_before(np.concatenate([logs, seen[:, None]], axis=1))  # (buckets + 1, kinds + 1)
    total = np.zeros((len(series), sums.shape[1]))
    last = np.arange(len(series))
    buckets_seen = np.zeros(len(series))
    for days in range(LEVEL_DAYS):
        here, before = np.maximum(last - days * day, 0), np.maximum(last - (days + 1) * day, 0)
        block = sums[here] - sums[before]  # what the day that ended `days` days ago holds
        total += np.exp(-days / LEVEL_MEAN_DAYS) * block
        buckets_seen += block[:, -1]
    enough = buckets_seen > day - 0.5
    weight = np.where(enough, total[:, -1], 1.0)
    return np.where(enough[:, None], total[:, :-1] / weight[:, None], np.nan)


def calendar(series: EventSeries) -> Matrix:
    """(buckets, CALENDAR_WIDTH) where in the day and in the week each bucket lies, by the clock on the wall, as waves."""
    share = (series.bucket_of_week() + 0.5) * series.bucket_s / WEEK_S  # (buckets,) 0 to 1 over the week
    angle = 2 * np.pi * share[:, None] * np.array(WAVES)  # (buckets, waves)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def _waves(series: EventSeries) -> Matrix:
    return np.concatenate([np.ones((len(series), 1)), calendar(series)], axis=1)


def _regressed(waves: Matrix, change: Matrix) -> Matrix:
    """(1 + calendar, kinds) the rhythm of each kind, by least squares; the wildest buckets are cut to the quantiles."""
    tamed = np.clip(change, *np.quantile(change, _EDGES, axis=0))
    rhythm = np.linalg.solve(waves.T @ waves + _RIDGE * np.eye(waves.shape[1]), waves.T @ tamed)
    return np.asarray(rhythm, dtype=np.float64)


def _sums_before(values: Matrix) -> Matrix:
    """(rows + 1, columns) the sum of all rows before each."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def _filled(values: Matrix, seen: Mask, reach: int) -> Matrix:
    """The values, where one was not seen the last that was; zero (the mean) where that lies too far back."""
    rows = np.arange(len(values))
    last = np.maximum.accumulate(np.where(seen, rows, -1)) if len(values) else rows
    near = (last >= 0) & (rows - last <= reach)
    return np.where(near[:, None], np.nan_to_num(values[np.maximum(last, 0)]), 0.0)


def _cut(values: Matrix) -> Matrix:
    return np.clip(values, -FARTHEST, FARTHEST)


def _floats(values: Matrix) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MOST_COLUMNS or not all(isinstance(name, str) for name in value):
        raise ValueError("its kinds are no list of names")
    return tuple(value)


def _numbers(value: object, count: int) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError("its scaling does not have one number per column")
    numbers = tuple(float(number) for number in value)
    if not np.isfinite(numbers).all():
        raise ValueError("its scaling holds what is no number")
    return numbers

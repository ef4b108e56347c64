"""When the queue will hurt: growth of the load, how much there is, and from which utilisation on people have had to wait.

LoadRecord -> plan_capacity -> CapacityPlan. The utilisation from which waits grow is learnt from the site's own past; where the
past never came there, nine tenths is taken as a rule of thumb, and named as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.events.capacity.trend import (
    AHEAD_WEEKS,
    FEWEST_WEEKS,
    LONGEST_WEEKS,
    LoadForecast,
    LoadTrend,
    Reaching,
    ahead,
    fit_trend,
    reaching,
)
from stormpetrel.events.capacity.weeks import WEEK, WEEK_HOURS, LoadRecord, LoadUnit
from stormpetrel.records.arrays import Floats

RULE_OF_THUMB: Final = 0.9
MOST_CORES: Final = 1_000_000_000
_AT_ONCE: Final = 0.995  # quantile of the buckets that counts as "the most that ran at once": a single odd one does not
_BIN: Final = 0.05  # of utilisation
_CALM: Final = 0.5  # below this utilisation a queue should not build up
_TIMES: Final = 3.0  # so many times the calm wait is a wait that has grown
_NO_MATTER_S: Final = 600.0  # and nobody minds less than ten minutes
_LIKELY: Final = 0.5  # of the courses
_ENOUGH_HOURS: Final = 24.0
_ENOUGH_WAITS: Final = 24
_MOST_GROUPS: Final = 500
_MOST_FITTED: Final = 40  # groups, the largest, that get a growth of their own
_OFTEN: Final = 2 / 3  # a group that is there in fewer of the weeks has no trend
_GROUP_RESAMPLED: Final = 200

GROUP_PLAN_SCHEMA: Final = pl.Schema(
    {
        "group": pl.String(),
        "load": pl.Float64(),  # a week, on average over the weeks that the trend was fitted to
        "share": pl.Float64(),  # of the load of all
        "growth": pl.Float64(),  # a week; null where it was there too seldom
        "growth_low": pl.Float64(),
        "growth_high": pl.Float64(),
    }
)


class CapacitySource(StrEnum):
    """Where the size of the cluster is known from."""

    GIVEN = "given"  # by whoever asks
    TOLD = "told"  # by the background
    SEEN = "seen"  # the most that ran at once


class Outlook(StrEnum):
    """What is known about the queue."""

    TOO_SHORT = "too short"  # fewer than eight weeks
    UNKNOWN_SIZE = "unknown size"  # nobody tells what the jobs hold, or how much there is
    ALREADY = "already"
    DATED = "dated"
    NOT_WITHIN = "not within half a year"
    UNSURE = "unsure"  # it may well be, but the growth is within what chance does: no date


@dataclass(frozen=True, slots=True, eq=False)
class WaitBins:
    """How long people waited who came while so much was in use; only bins with enough hours and waits."""

    low: Floats  # (bins,) lower edge of the utilisation, 0 to 1
    hours: Floats  # (bins,)
    median_s: Floats  # (bins,)
    p90_s: Floats  # (bins,)
    width: float = _BIN


@dataclass(frozen=True, slots=True)
class Knee:
    """The utilisation from which on waits grow."""

    utilisation: float
    learnt: bool  # from the site's own past; else the rule of thumb
    calm_wait_s: float | None  # what people waited while little was in use
    hurts_s: float | None  # the wait from which on it counts as grown


@dataclass(frozen=True, slots=True, eq=False)
class CapacityPlan:
    """The load by week, its trend and forecast, and when the queue will hurt."""

    record: LoadRecord
    outlook: Outlook
    capacity: float | None  # cores or slots; 1 where the load is counted in hours of the whole grid
    capacity_source: CapacitySource | None
    trend: LoadTrend | None
    forecast: LoadForecast | None
    reach: Reaching | None
    waits: WaitBins
    knee: Knee
    groups: pl.DataFrame  # GROUP_PLAN_SCHEMA, the largest first

    @property
    def weekly_capacity(self) -> float | None:
        """What the cluster can do in a week, in the unit of the load."""
        return None if self.capacity is None else self.capacity * WEEK_HOURS

    @property
    def utilisation(self) -> float | None:
        """The share of the capacity that is asked for at the end of the weeks, on the line; above 1 the queue only grows."""
        if self.trend is None or self.weekly_capacity is None:
            return None
        return float(np.exp(self.trend.level)) / self.weekly_capacity

    def week_after(self, number: int | None) -> date | None:
        """The Monday of a week, counted from the last one."""
        end = self.record.end
        return None if number is None or end is None else end + (number - 1) * WEEK

    @property
    def hurts_from(self) -> tuple[date | None, date | None, date | None]:
        """The week from which on it hurts: by the line, in one of ten courses, in nine of ten; None is beyond half a year."""
        if self.outlook is not Outlook.DATED or self.reach is None:
            return None, None, None
        reach = self.reach
        return tuple(  # type: ignore[return-value]
            self.week_after(None if week is None else max(1, week)) for week in (reach.median, reach.earliest, reach.latest)
        )


def plan_capacity(record: LoadRecord, *, cores: float | None = None, seed: int = 0) -> CapacityPlan:
    """The plan out of what was seen; `cores` (or slots) is what the cluster has, where somebody knows better."""
    if cores is not None and not 1 <= cores <= MOST_CORES:
        raise UsageError(f"A cluster of {cores:g} cores is none.", hint=f"Give a number from 1 to {MOST_CORES:,}.")
    capacity, source = _capacity(record, cores)
    waits = _wait_bins(record, capacity)
    knee = _knee(waits)
    loads = record.weeks["load"].fill_null(np.nan).to_numpy()  # (weeks,)
    trend = fit_trend(loads, seed=seed)
    reach = None
    if trend is not None and capacity is not None:
        reach = reaching(trend, knee.utilisation * capacity * WEEK_HOURS)
    return CapacityPlan(
        record=record,
        outlook=_outlook(trend, reach),
        capacity=capacity,
        capacity_source=source,
        trend=trend,
        forecast=None if trend is None else ahead(trend, weeks=AHEAD_WEEKS, seed=seed),
        reach=reach,
        waits=waits,
        knee=knee,
        groups=_groups(record, seed),
    )


def _outlook(trend: LoadTrend | None, reach: Reaching | None) -> Outlook:
    if trend is None:
        return Outlook.TOO_SHORT
    if reach is None:
        return Outlook.UNKNOWN_SIZE
    if reach.median == 0:
        return Outlook.ALREADY
    # A load of which it is not sure that it grows at all gets no date, however near the line may be.
    if trend.is_growing:
        return Outlook.DATED if reach.median is not None else Outlook.NOT_WITHIN
    return Outlook.UNSURE if reach.share >= _LIKELY else Outlook.NOT_WITHIN


def _capacity(record: LoadRecord, cores: float | None) -> tuple[float | None, CapacitySource | None]:
    if record.unit is LoadUnit.JOBS:
        return None, None
    if record.unit is LoadUnit.FULL_HOURS:
        return 1.0, CapacitySource.TOLD
    if cores is not None:
        return float(cores), CapacitySource.GIVEN
    if record.full is not None:
        return record.full, CapacitySource.TOLD
    recent = record.in_use[-round(LONGEST_WEEKS * WEEK_HOURS / record.hours) :]
    known = recent[np.isfinite(recent)]
    most = float(np.quantile(known, _AT_ONCE)) if known.size else 0.0
    return (most, CapacitySource.SEEN) if most > 0 else (None, None)


def _wait_bins(record: LoadRecord, capacity: float | None) -> WaitBins:
    """Waits by how much was in use when they began."""
    if capacity is None or not record.in_use.size:
        return WaitBins(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
    bins = round(1 / _BIN)
    used = record.in_use / capacity  # (buckets,)
    place = np.clip(np.nan_to_num(used, nan=-1.0) / _BIN + 1e-9, -1, bins - 1).astype(np.int16)  # one for each wait, of millions
    place[~np.isfinite(used)] = -1
    hours = np.bincount(place[place >= 0], minlength=bins) * record.hours
    of_wait = place[record.waited_in]
    frame = pl.DataFrame({"bin": of_wait, "wait_s": record.waited_s}).filter(pl.col("bin") >= 0)
    sums = frame.group_by("bin").agg(
        pl.len(), median=pl.col("wait_s").median(), p90=pl.col("wait_s").quantile(0.9)
    )  # fmt: skip
    kept = sums.filter(pl.col("len") >= _ENOUGH_WAITS).sort("bin")
    at = kept["bin"].to_numpy()
    enough = hours[at] >= _ENOUGH_HOURS
    return WaitBins(at[enough] * _BIN, hours[at][enough], kept["median"].to_numpy()[enough], kept["p90"].to_numpy()[enough])


def _knee(waits: WaitBins) -> Knee:
    """The first bin in which people waited three times as long as in calm ones, and in the next as well."""
    if not waits.low.size:
        return Knee(RULE_OF_THUMB, learnt=False, calm_wait_s=None, hurts_s=None)
    calm = waits.low + waits.width <= max(_CALM, float(waits.low[0]) + waits.width) + 1e-9  # (bins,)
    calm_s = float(np.median(waits.median_s[calm]))  # of the bins: an outage empties the slots while everybody waits
    hurts_s = max(_TIMES * calm_s, _NO_MATTER_S)
    grown = (waits.median_s > hurts_s) & ~calm
    stays = grown & np.append(grown[1:], True)
    if not stays.any():
        return Knee(RULE_OF_THUMB, learnt=False, calm_wait_s=calm_s, hurts_s=hurts_s)
    return Knee(float(waits.low[int(stays.argmax())]), learnt=True, calm_wait_s=calm_s, hurts_s=hurts_s)


def _groups(record: LoadRecord, seed: int) -> pl.DataFrame:
    """Load, share and growth of each group over the weeks that a trend is fitted to."""
    recent = record.weeks.tail(LONGEST_WEEKS)
    known = recent.drop_nulls("load")
    rows = record.groups.join(known.select("week"), on="week", how="semi")
    if rows.is_empty():
        return pl.DataFrame(schema=GROUP_PLAN_SCHEMA)
    sums = rows.group_by("group").agg(load=pl.col("load").sum() / known.height).sort("load", "group", descending=[True, False])
    shared = sums.with_columns(share=pl.col("load") / max(float(sums["load"].sum()), 1e-12)).head(_MOST_GROUPS)
    by_group = rows.partition_by("group", as_dict=True)
    fitted = [_growth(by_group[(name,)], recent, seed) for name in shared["group"].head(_MOST_FITTED)]
    columns = dict(zip(("growth", "growth_low", "growth_high"), zip(*fitted, strict=True), strict=True))
    rest = [None] * (shared.height - len(fitted))
    return shared.with_columns(pl.Series(name, [*values, *rest], dtype=pl.Float64) for name, values in columns.items())


def _growth(rows: pl.DataFrame, recent: pl.DataFrame, seed: int) -> tuple[float | None, float | None, float | None]:
    """Growth of one group in a week, with its range; a week without it is a zero, a week that was not seen is none."""
    joined = recent.select("week", whole="load").join(rows.select("week", "load"), on="week", how="left", maintain_order="left")
    loads = joined.select(pl.when(pl.col("whole").is_not_null()).then(pl.col("load").fill_null(0.0))).to_series()
    there = int((loads > 0).sum())
    if there < max(FEWEST_WEEKS, _OFTEN * int(loads.is_not_null().sum())):
        return None, None, None
    trend = fit_trend(loads.fill_null(np.nan).to_numpy(), seed=seed, resampled=_GROUP_RESAMPLED)
    return (None, None, None) if trend is None else (trend.growth, *trend.growth_range)

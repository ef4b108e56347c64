"""What the past says about the next bucket: slow level, rhythm of the week, memory of the last days.

EventSeries -> fit_rhythm -> Rhythm -> memory -> Memory (the level of each bucket, and how the last ones departed from theirs).

Every window is cut off after a fixed number of buckets, so that a bucket's memory is the same whether a year lies before it or
just `history_buckets`. Departures are logarithms and clipped: an hour of fifty times the usual counts as one of seven times,
and an outage does not teach us to expect it. Gaps and maintenance are left out of every window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import HOUR_S, MAINTENANCE, WEEK_S, EventSeries

Truth = npt.NDArray[np.bool_]

LEVEL_HALF_LIFE_DAYS: Final = 7.0
LEVEL_DAYS: Final = 14  # where the window of the slow level ends
CLIP: Final = 2.0  # a factor of seven, up or down: what a kind's own past may say
CLIP_NOW: Final = 4.0  # a factor of fifty: what other kinds of the same bucket may say
OFFSET: Final = 0.5  # added to counts before their logarithm is taken
DEPARTURES: Final = ("slow", "day", "yesterday", "last week")
_PRIOR_DAYS: Final = 0.5  # how much the level of the training part weighs against what came since
_SHORTEST: Final = 4  # buckets: the memory of a day is not shorter
_CAP: Final = 4.0  # in level and rhythm, a count beyond so many times the expected one counts as that


@dataclass(frozen=True, slots=True, eq=False)
class Rhythm:
    """How each kind goes through the week, and how much of it there is."""

    profile: Floats  # (slots of the week, kinds): 1 is the mean of the week
    base: Floats  # (kinds,) mean count of a bucket
    floor: float  # smallest expected count: a kind never seen is not impossible

    def of(self, series: EventSeries) -> Floats:
        """(buckets, kinds): the profile at each bucket."""
        return self.profile[_slots(series)]


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What was known before each bucket."""

    log_level: Floats  # (buckets, kinds): log of slow level × rhythm
    departures: Floats  # (buckets, kinds, DEPARTURES): log ratios of the past to its own level, clipped
    others: (
        Floats  # (buckets, 2, kinds): log ratios of the bucket itself and of the one before, for what they say of *other* kinds
    )
    ready: Truth  # (buckets,) whether enough was seen before to say anything


def seen_buckets(series: EventSeries) -> Truth:
    """(buckets,) those that are no gap and in no maintenance."""
    return np.asarray(~series.is_gap & (series.label != MAINTENANCE), dtype=np.bool_)


def history_buckets(bucket_s: int) -> int:
    """How many buckets before a bucket its memory depends on."""
    day = max(1, 86_400 // bucket_s)
    return 2 * LEVEL_DAYS * day + max(_slow_days() * day, 7 * day, 4 * max(day, _SHORTEST)) + 2


def fit_rhythm(series: EventSeries, calm: Truth) -> Rhythm:
    """Profile and base of the calm buckets, in three rounds: rhythm out of level, level out of rhythm."""
    counts = np.where(calm[:, None], series.counts, 0.0)  # (buckets, kinds)
    slots = _slots(series)
    profile = np.ones((slots_per_week(series.bucket_s), len(series.kinds)))
    base = counts.sum(axis=0) / max(1, calm.sum())
    for _ in range(3):
        level = _centred_level(counts, calm, profile[slots], series.buckets_per_day)
        capped = np.minimum(counts, _CAP * level * profile[slots] + 2.0)
        profile = _profile(capped / level, calm, slots, base, profile.shape[0])
    return Rhythm(profile=profile, base=base, floor=float(0.5 / max(1, calm.sum())))


def memory(series: EventSeries, rhythm: Rhythm) -> Memory:
    """The memory of each bucket of a series."""
    seen = seen_buckets(series)
    mask = seen[:, None].astype(np.float64)  # (buckets, 1)
    counts = np.where(seen[:, None], series.counts, 0.0)
    profile = rhythm.of(series)
    day, week = series.buckets_per_day, series.buckets_per_week
    half, length = LEVEL_HALF_LIFE_DAYS * day, LEVEL_DAYS * day
    prior = _PRIOR_DAYS * day
    weight = weighted_past(mask * profile, half, length) + prior  # (buckets, kinds)
    level = (weighted_past(counts, half, length) + prior * rhythm.base) / weight
    capped = np.minimum(counts, _CAP * level * profile + 2.0)  # a storm of a day is not the level of the week after it
    level = (weighted_past(capped, half, length) + prior * rhythm.base) / weight
    expected = np.maximum(level * profile, rhythm.floor)
    now = mask * np.clip(np.log((counts + OFFSET) / (expected + OFFSET)), -CLIP_NOW, CLIP_NOW)  # (buckets, kinds)
    ratio = np.clip(now, -CLIP, CLIP)
    daily = max(day, _SHORTEST)
    past = [
        _mean_past(ratio, half, _slow_days() * day),
        _mean_past(ratio, daily, 4 * daily),
        lagged(ratio, day),
        lagged(ratio, week),
    ]
    ready = _count_past(seen, length) >= max(3, day)
    return Memory(np.log(expected), np.stack(past, axis=2), np.stack([now, lagged(now, 1)], axis=1), ready)


def lagged(values: Floats, lag: int) -> Floats:
    """The value `lag` rows before; 0 before the first."""
    moved = np.zeros_like(values)
    if lag < len(values):
        moved[lag:] = values[: len(values) - lag]
    return moved


def weighted_past(values: Floats, half_life: float, length: int) -> Floats:
    """Sum over the `length` rows before each row, the last of them with weight 1, halved every `half_life` rows."""
    from scipy.signal import lfilter

    keep = 0.5 ** (1.0 / half_life)
    leaving = keep**length * lagged(values, length + 1)
    return np.asarray(lfilter([1.0], [1.0, -keep], lagged(values, 1) - leaving, axis=0), dtype=np.float64)


def _slow_days() -> int:
    return 2 * LEVEL_DAYS // 3


def slots_per_week(bucket_s: int) -> int:
    """How many slots the profile of the week has: hours, or buckets where they are longer."""
    return WEEK_S // max(bucket_s, HOUR_S)


def _slots(series: EventSeries) -> npt.NDArray[np.int64]:
    """(buckets,) which slot of the profile: the hour of the week, or the bucket where it is longer than an hour."""
    slots: npt.NDArray[np.int64] = series.bucket_of_week() * series.bucket_s // max(series.bucket_s, HOUR_S)
    return slots


def _centred_level(counts: Floats, calm: Truth, profile: Floats, day: int) -> Floats:
    """(buckets, kinds): level from both sides, for learning the rhythm only."""
    half, length = LEVEL_HALF_LIFE_DAYS * day, LEVEL_DAYS * day
    expected = calm[:, None] * profile
    total = weighted_past(counts, half, length) + weighted_past(counts[::-1], half, length)[::-1]
    weight = weighted_past(expected, half, length) + weighted_past(expected[::-1], half, length)[::-1]
    return np.asarray((total + 1e-9) / (weight + 1e-9), dtype=np.float64)


def _profile(ratios: Floats, calm: Truth, slots: npt.NDArray[np.int64], base: Floats, per_week: int) -> Floats:
    """(slots, kinds): mean ratio per slot, drawn towards that of the same hour on other days, and that towards 1."""
    weeks = np.bincount(slots[calm], minlength=per_week)[:, None].astype(np.float64)  # (slots, 1)
    total = np.stack([np.bincount(slots[calm], ratio, minlength=per_week) for ratio in ratios[calm].T], axis=1).astype(np.float64)
    raw = total / np.maximum(weeks, 1e-9)
    doubt = 4.0 / np.maximum(base, 1e-3)  # weeks: rare kinds need more of them
    if per_week % 7 == 0 and per_week > 7:
        by_day = per_week // 7
        same_hour = np.concatenate([_over_days(total, weeks, by_day, 0, 5), _over_days(total, weeks, by_day, 5, 7)])
        same_hour = (same_hour * 5.0 + doubt) / (5.0 + doubt)
    else:
        same_hour = np.ones_like(raw)
    profile = (raw * weeks + (6.0 + doubt) * same_hour) / (weeks + 6.0 + doubt)
    return np.asarray(profile / np.maximum(profile.mean(axis=0), 1e-9), dtype=np.float64)


def _over_days(total: Floats, weeks: Floats, by_day: int, first: int, last: int) -> Floats:
    """The mean ratio of each hour over some days of the week, repeated for each of those days."""
    days = slice(first * by_day, last * by_day)
    kinds = total.shape[1]
    mean = total[days].reshape(-1, by_day, kinds).sum(axis=0) / np.maximum(weeks[days].reshape(-1, by_day, 1).sum(axis=0), 1e-9)
    return np.tile(mean, (last - first, 1))


def _mean_past(values: Floats, half_life: float, length: int) -> Floats:
    """Weighted mean over the rows before each row; gaps count as no departure."""
    weight = weighted_past(np.ones((len(values), 1)), half_life, length)
    return np.asarray(weighted_past(values, half_life, length) / np.maximum(weight, 1.0), dtype=np.float64)


def _count_past(seen: Truth, length: int) -> npt.NDArray[np.int64]:
    total = np.concatenate([[0], np.cumsum(seen)])
    first = np.maximum(np.arange(len(seen)) - length, 0)
    return np.asarray(total[:-1] - total[first], dtype=np.int64)

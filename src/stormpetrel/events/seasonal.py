"""Seasonal adjustment: what is left of the counts when level, hour of the week and growth are taken away.

EventSeries -> residuals -> (buckets, kinds), on log(1 + count). Everything about a bucket comes from buckets before it, and from
no further back than `history_buckets`; no count of an announced maintenance is used.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.event_series import HOUR_S, MAINTENANCE, EventSeries

DAY_S: Final = 86_400
LEAST_PAST: Final = 2  # counts of the same hour of past weeks without which nothing is expected of a bucket
LEAST_SPREAD: Final = 0.05  # of log counts: a kind that never moved is not infinitely surprising
NORMAL_MAD: Final = 1.4826  # standard deviations in a median absolute deviation of a normal distribution

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeasonalAdjustment:
    """Log counts less what the same hour of past weeks, and the level of the last days, would let one expect."""

    weeks: int = 6  # how many past weeks the usual of an hour of the week is taken over
    level_days: int = 7  # the level is the median of so many days, so that one bad day does not move it

    def history_buckets(self, bucket_s: int) -> int:
        """How far back a residual reaches."""
        days = 7 * self.weeks + self.level_days + 1
        return (days * DAY_S + HOUR_S) // bucket_s + 1

    def residuals(self, series: EventSeries) -> Floats:
        """(buckets, kinds); NaN at a gap and where there is too little before."""
        seen = log_counts(series)  # (buckets, kinds)
        relative = np.where((series.label == MAINTENANCE)[:, None], np.nan, seen) - self._level(series, seen)
        past = self._past(series, relative)  # (samples, buckets, kinds)
        usual = quiet_median(past)
        usual[np.isfinite(past).sum(axis=0) < LEAST_PAST] = np.nan
        # A maintenance is scored like any other bucket; it is only never part of what others are compared with.
        return np.asarray(seen - self._level(series, seen) - usual, dtype=np.float64)

    def _level(self, series: EventSeries, seen: Floats) -> Floats:
        """(buckets, kinds): median over the last whole days of each day's mean."""
        if not len(series):
            return seen
        usable = np.where((series.label == MAINTENANCE)[:, None], np.nan, seen)
        day = series.start_s // DAY_S
        day = day - day[0]  # (buckets,)
        known = np.isfinite(usable)
        counted = np.zeros((int(day[-1]) + 1, usable.shape[1]))
        total = np.zeros_like(counted)
        np.add.at(counted, day, known)
        np.add.at(total, day, np.where(known, usable, 0.0))
        least = max(1, series.buckets_per_day // 2)  # a day of which less is known says nothing
        means = np.divide(total, counted, out=np.full_like(total, np.nan), where=counted >= least)  # (days, kinds)
        before = np.concatenate([np.full((self.level_days, means.shape[1]), np.nan), means[:-1]])
        windows = np.lib.stride_tricks.sliding_window_view(before, self.level_days, axis=0)  # (days, kinds, level_days)
        levels = quiet_median(np.moveaxis(windows, -1, 0))
        return np.asarray(levels[day], dtype=np.float64)

    def _past(self, series: EventSeries, relative: Floats) -> Floats:
        """(samples, buckets, kinds): the same hour of past weeks, and the hour before and after it."""
        week = series.buckets_per_week
        hour = HOUR_S // series.bucket_s
        shifts = [week * back + aside for back in range(1, self.weeks + 1) for aside in sorted({-hour, 0, hour})]
        return np.stack([shifted(relative, shift) for shift in shifts])


def log_counts(series: EventSeries) -> Floats:
    """(buckets, kinds) log(1 + count), NaN at a gap."""
    return np.log1p(series.counts)


def shifted(values: Floats, by: int) -> Floats:
    """The values of `by` buckets before, NaN where there were none."""
    moved = np.full_like(values, np.nan)
    if by < len(values):
        moved[by:] = values[: len(values) - by]
    return moved


def quiet_median(values: Floats) -> Floats:
    """The median over the first axis of what is known; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a slice of which nothing is known
        return np.asarray(np.nanmedian(values, axis=0), dtype=np.float64)


def robust_spread(residuals: Floats) -> Floats:
    """(kinds,) the usual size of the residuals: of the middle half, or of all but the worst hundredth where that is larger.

    Of a kind that is nearly always zero the middle half does not move at all.
    """
    if not len(residuals):
        return np.full(residuals.shape[1], LEAST_SPREAD)
    middle = quiet_median(residuals)
    away = np.abs(residuals - middle)  # (buckets, kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        bound = np.nanquantile(away, 0.99, axis=0)
        rms = np.sqrt(np.nanmean(np.minimum(away, bound) ** 2, axis=0))
    spread = np.fmax(np.fmax(NORMAL_MAD * quiet_median(away), rms), LEAST_SPREAD)
    return np.asarray(np.nan_to_num(spread, nan=1.0), dtype=np.float64)

"""Lagged counts: the recent past of a bucket as one row of features, for trees.

EventSeries -> lagged_counts -> (buckets, features). NaN where nothing is known: trees can live with it. Each count is told as a
difference of logarithms to the mean of the last week, so that growth does not lead out of what was learnt.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.events.seasonal import log_counts, shifted
from stormpetrel.records.event_series import HOUR_S, MAINTENANCE, EventSeries

LAG_HOURS: Final = tuple(range(1, 25))
MEAN_HOURS: Final = (3, 6, 12, 24)
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168

Floats = npt.NDArray[np.float64]


def history_hours() -> int:
    """How far back a row of features reaches."""
    return 2 * WEEK_HOURS  # the same hour of last week, compared with the week before it


def lagged_counts(series: EventSeries) -> Floats:
    """(buckets, features) of counts now, 1–24 h ago, yesterday and last week, rolling means, shares, calendar, background."""
    now = log_counts(series)  # (buckets, kinds)
    known = np.where((series.label == MAINTENANCE)[:, None], np.nan, now)
    week = _mean_before(known, _buckets(series, WEEK_HOURS))
    relative = now - week
    yesterday, last_week = (shifted(relative, _buckets(series, hours)) for hours in (DAY_HOURS, WEEK_HOURS))
    lags = sorted({_buckets(series, hours) for hours in LAG_HOURS})
    total = np.log1p(series.counts.sum(axis=1, keepdims=True))  # (buckets, 1)
    parts = [
        now,
        relative,
        *(shifted(now, lag) - week for lag in lags),
        relative - yesterday,
        relative - last_week,
        *(now - _mean_before(known, _buckets(series, hours)) for hours in MEAN_HOURS),
        now - total,  # the share of each kind
        total,
        *_calendar(series),
    ]
    if series.background_names:
        size = np.sign(series.background) * np.log1p(np.abs(series.background))
        parts += [size, size - shifted(size, _buckets(series, DAY_HOURS)), size - shifted(size, _buckets(series, 1))]
    return np.hstack(parts)


def _buckets(series: EventSeries, hours: float) -> int:
    return max(1, round(hours * HOUR_S / series.bucket_s))


def _calendar(series: EventSeries) -> tuple[Floats, Floats]:
    """(buckets, 1) each: which part of the day, and which day of the week."""
    day, within = np.divmod(series.bucket_of_week(), series.buckets_per_day)
    return within[:, None] / series.buckets_per_day, day[:, None].astype(np.float64)


def _mean_before(values: Floats, buckets: int) -> Floats:
    """The mean of what is known of the buckets before each, itself left out; NaN where nothing is."""
    known = np.isfinite(values)
    total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(np.where(known, values, 0.0), axis=0)])
    counted = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(known, axis=0)])
    ends = np.arange(len(values))
    begins = np.maximum(ends - buckets, 0)
    sums, seen = total[ends] - total[begins], counted[ends] - counted[begins]
    return np.asarray(np.divide(sums, seen, out=np.full_like(values, np.nan), where=seen > 0), dtype=np.float64)

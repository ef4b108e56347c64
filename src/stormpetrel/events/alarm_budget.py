"""The alarm budget: how high a score must be so that calm operation raises only so many alarms a week.

scores, calm buckets -> threshold_for -> one threshold; -> daily_thresholds -> a threshold for each bucket, learnt anew every day.
A bucket alarms where its score is above the threshold. Alarming buckets less than six hours apart are one episode: people are
called once for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelError
from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.event_series import HOUR_S, WEEK_S

APART_HOURS: Final = 6.0
# Hours above the threshold that each allowed episode may last, on average over all of them. Without it a score that is high
# for weeks on end would be one episode, and within any budget.
EPISODE_HOURS: Final = 24.0

RECENT_DAYS: Final = 70  # that the threshold of a day is learnt from
FEWEST_DAYS: Final = 14  # before there are so many, the threshold of the training holds
# The tail of the highest scores of days is a Gumbel distribution through these two quantiles. The days above the upper one may
# have been outages that nobody labelled: they do not count, however high they were.
QUANTILES: Final = (0.2, 0.75)
DAY_S: Final = 86_400

Mask = npt.NDArray[np.bool_]


def episodes(alarm: Mask, bucket_s: int, *, apart_hours: float = APART_HOURS) -> list[tuple[int, int]]:
    """(first, last) bucket of each episode; runs of alarming buckets less than `apart_hours` apart are one."""
    places = np.flatnonzero(alarm)
    if not places.size:
        return []
    breaks = np.flatnonzero((np.diff(places) - 1) * bucket_s >= apart_hours * HOUR_S)
    firsts = places[np.append(0, breaks + 1)]
    lasts = places[np.append(breaks, places.size - 1)]
    return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def threshold_for(scores: Floats, calm: Mask, bucket_s: int, per_week: float) -> float:
    """The lowest threshold at which calm buckets raise at most `per_week` episodes a week, as do all higher thresholds.

    Parameters
    ----------
    scores
        (buckets,) in the order of time; NaN where there is none.
    calm
        (buckets,) which of them are known, or believed, to be normal operation. The others count neither as alarms nor as time.
    """
    usable = calm & ~np.isnan(scores)
    if not usable.any():
        raise ModelError(
            "There is no calm bucket with a score: no threshold can be chosen.", hint="Use a longer series, or label fewer hours."
        )
    weeks = usable.sum() * bucket_s / WEEK_S
    allowed = int(per_week * weeks + 1e-9)
    most_buckets = allowed * EPISODE_HOURS * HOUR_S / bucket_s
    rising = _RisingAlarms(APART_HOURS * HOUR_S / bucket_s)
    values = scores[usable]
    order = np.argsort(-values, kind="stable")  # highest first
    places = np.flatnonzero(usable)[order]
    values = values[order]
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), values.size - 1)  # last of each group of equal scores
    begin = 0
    for end in ends:
        for place in places[begin : end + 1]:
            rising.add(int(place))
        if rising.episodes > allowed or end + 1 > most_buckets:
            return float(values[end])
        begin = end + 1
    return float(np.nextafter(values[-1], -np.inf))


def daily_thresholds(scores: Floats, calm: Mask, start_s: Ints, bucket_s: int, per_week: float, *, first: float) -> Floats:
    """(buckets,) the threshold of each, from the highest scores of the RECENT_DAYS before its day; `first` while they are few.

    A site changes, and the threshold goes with it. What the day itself and later ones hold is not looked at.

    Parameters
    ----------
    scores, calm
        As in `threshold_for`. A day counts if it has calm buckets with scores for at least half of its length.
    start_s
        (buckets,) Unix seconds, in the order of time.
    first
        The threshold that was chosen when the model was trained.
    """
    usable = calm & ~np.isnan(scores)
    day = start_s // DAY_S
    days, begins = np.unique(day[usable], return_index=True)
    thresholds = np.full(scores.size, first)
    if not days.size:
        return thresholds
    highest = np.maximum.reduceat(scores[usable], begins)
    is_whole = np.diff(np.append(begins, usable.sum())) * bucket_s >= DAY_S / 2
    days, highest = days[is_whole], highest[is_whole]
    for today in np.unique(day):
        recent = highest[(days >= today - RECENT_DAYS) & (days < today)]
        if recent.size >= FEWEST_DAYS:
            thresholds[day == today] = _level(recent, per_week / 7)
    return thresholds


def _level(highest: Floats, per_day: float) -> float:
    """The score that is exceeded so many times a day: the highest scores of days are maxima, and their law is that of maxima."""
    low, high = np.quantile(highest, QUANTILES)
    low_place, high_place = (-np.log(-np.log(share)) for share in QUANTILES)
    scale = (high - low) / (high_place - low_place)
    return float(high + scale * (-np.log(per_day) - high_place))


class _RisingAlarms:
    """Alarming buckets as the threshold sinks, and how many episodes they make."""

    def __init__(self, apart: float) -> None:
        self.apart = apart  # so many buckets without an alarm part two episodes
        self.places: list[int] = []
        self.episodes = 0

    def add(self, place: int) -> None:
        at = bisect_left(self.places, place)
        left = self.places[at - 1] if at else -inf
        right = self.places[at] if at < len(self.places) else inf
        joined = (place - left - 1 < self.apart) + (right - place - 1 < self.apart)
        were_one = right - left - 1 < self.apart
        self.episodes += 1 - joined + were_one
        insort(self.places, place)

"""How a weekly load grows, and where it will be: a straight line on the log scale that a few odd weeks do not move.

loads of weeks (NaN where nobody knows) -> fit_trend -> LoadTrend -> ahead -> LoadForecast. Theil and Sen's line; how sure it is
comes from resampling the deviations of whole blocks of weeks, since a busy week follows a busy week. Holidays and seasons are
not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stormpetrel.records.arrays import Floats

FEWEST_WEEKS: Final = 8  # with fewer there is no trend to speak of
LONGEST_WEEKS: Final = 52  # what was before says little about the next half year
AHEAD_WEEKS: Final = 26
BAND: Final = (0.1, 0.9)  # of the forecast, and of dates
SURE: Final = (0.025, 0.975)  # of the growth; what that comes to was measured: see `_widening`
RESAMPLED: Final = 600
_LOWEST: Final = 0.01  # of the median: a week of next to nothing counts as this much, for zero has no logarithm


@dataclass(frozen=True, slots=True, eq=False)
class LoadTrend:
    """A line through the logarithms of weekly loads, counted from the last week (place 0) backwards, and how else it may lie."""

    slope: float  # logarithm of the growth in a week
    level: float  # logarithm of the load in the last week, on the line
    slopes: Floats  # (resampled,) what the slope would be with other deviations
    levels: Floats  # (resampled,)
    deviations: Floats  # (weeks,) of the weeks that were seen from the line
    first: int  # place of the first week, -51 or later

    @property
    def growth(self) -> float:
        """Share by which the load grows in a week; .02 is two per cent."""
        return float(np.expm1(self.slope))

    @property
    def growth_range(self) -> tuple[float, float]:
        """The growth, about nine times out of ten (measured: docs/capacity.md)."""
        low, high = np.expm1(np.quantile(self.slopes, SURE))
        return float(low), float(high)

    @property
    def is_growing(self) -> bool:
        """Whether chance alone does not explain the rise."""
        return self.growth_range[0] > 0

    def at(self, places: Floats) -> Floats:
        """(places,) the load on the line; 0 is the last week, 1 the next."""
        line: Floats = np.exp(self.level + self.slope * places)
        return line


@dataclass(frozen=True, slots=True, eq=False)
class LoadForecast:
    """The load of the weeks to come: on the line, and the band in which 80 of 100 weeks will lie if things go on as they did."""

    expected: Floats  # (weeks,)
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Reaching:
    """When the line reaches a load, in weeks after the last one; None: not within the weeks looked at."""

    median: int | None
    earliest: int | None  # in one of ten
    latest: int | None  # in nine of ten
    share: float  # of all courses that reach it


def fit_trend(loads: Floats, *, seed: int = 0, resampled: int = RESAMPLED) -> LoadTrend | None:
    """The line through weekly loads, oldest first; None where fewer than eight weeks are known.

    >>> trend = fit_trend(100 * 1.02 ** np.arange(20))
    >>> round(trend.growth, 4)
    0.02
    """
    recent = loads[-LONGEST_WEEKS:]
    known = np.flatnonzero(np.isfinite(recent))
    if known.size < FEWEST_WEEKS or not np.median(recent[known]) > 0:
        return None
    heights = np.log(np.maximum(recent[known], _LOWEST * np.median(recent[known])))
    places = (known - (recent.size - 1)).astype(np.float64)  # (weeks,) 0 is the last
    slope, level = _lines(places, heights[None])
    deviations = heights - (level[0] + slope[0] * places)
    drawn = _blocks(deviations, known.size, resampled, np.random.default_rng(seed))  # (resampled, weeks)
    slopes, levels = _lines(places, level[0] + slope[0] * places + drawn)
    wider = _widening(deviations)
    slopes, levels = slope[0] + wider * (slopes - slope[0]), level[0] + wider * (levels - level[0])
    return LoadTrend(float(slope[0]), float(level[0]), slopes, levels, deviations, int(places[0]))


def ahead(trend: LoadTrend, *, weeks: int = AHEAD_WEEKS, seed: int = 0) -> LoadForecast:
    """The load of the next weeks."""
    places = np.arange(1, weeks + 1, dtype=np.float64)
    drawn = _blocks(trend.deviations, weeks, trend.slopes.size, np.random.default_rng([seed, 1]))  # (resampled, weeks)
    courses = np.exp(trend.levels[:, None] + trend.slopes[:, None] * places + drawn)
    low, high = np.quantile(courses, BAND, axis=0)
    return LoadForecast(trend.at(places), low, high)


def reaching(trend: LoadTrend, load: float, *, weeks: int = AHEAD_WEEKS) -> Reaching:
    """When the line, without the ups and downs of single weeks, comes up to a load; 0: it is there already."""
    with np.errstate(divide="ignore", invalid="ignore"):
        missing = np.log(load) - np.append(trend.levels, trend.level)  # (resampled + 1,)
        needed = np.where(missing <= 0, 0.0, np.ceil(missing / np.append(trend.slopes, trend.slope)))
    needed[(needed < 0) | (needed > weeks) | np.isnan(needed)] = np.inf
    courses, line = needed[:-1], float(needed[-1])
    # A quantile that lies between two courses is one of them: between a week and never there is nothing.
    earliest, latest = np.quantile(courses, BAND, method="closest_observation")
    return Reaching(_week(line), _week(float(earliest)), _week(float(latest)), float(np.isfinite(courses).mean()))


def _week(place: float) -> int | None:
    return int(place) if np.isfinite(place) else None


def _lines(places: Floats, heights: Floats) -> tuple[Floats, Floats]:
    """(rows,) slope and height at place 0 of Theil and Sen's line through each row of (rows, weeks)."""
    first, second = np.triu_indices(places.size, 1)
    slopes = np.median((heights[:, second] - heights[:, first]) / (places[second] - places[first]), axis=1)
    levels = np.median(heights - slopes[:, None] * places, axis=1)
    return slopes, levels


def _blocks(deviations: Floats, size: int, rows: int, rng: np.random.Generator) -> Floats:
    """(rows, size) deviations, drawn in runs of weeks that followed each other, around a circle."""
    length = _block_length(deviations.size)
    starts = rng.integers(0, deviations.size, (rows, -(-size // length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(rows, -1)[:, :size] % deviations.size
    drawn: Floats = deviations[places]
    return drawn


def _block_length(weeks: int) -> int:
    return max(2, round(float(np.cbrt(weeks))))


def _widening(deviations: Floats) -> float:
    """By how much resampling a few dozen weeks understates how far off the line may be.

    Three reasons, each with its textbook factor: two degrees of freedom are spent on the line; weeks that are alike for longer
    than a block say less than as many that are not; and few weeks say little about their own spread (Student's t). Even so,
    on series of known growth the range from 2.5 to 97.5 % held it 84 (8 weeks) to 92 times out of 100 (52 weeks): faces say nine
    times out of ten.
    """
    weeks, length = deviations.size, _block_length(deviations.size)
    alike = _likeness(deviations)
    lags = np.arange(1, length)
    in_blocks = 1 + 2 * float(((1 - lags / length) * alike**lags).sum())
    spread = weeks / (weeks - 2) * (1 + alike) / (1 - alike) / in_blocks
    freedom = max(3.0, weeks * (1 - alike) / (1 + alike) - 2)
    student = 1 + 1.21 / freedom + 1.36 / freedom**2  # t(.975) to the normal 1.96, after Cornish and Fisher
    return float(np.sqrt(spread)) * student


def _likeness(deviations: Floats) -> float:
    """How much a week's deviation is like that of the week before, 0 to .8; a fitted line hides some of it, which is put back."""
    weeks, power = deviations.size, float((deviations**2).sum())
    likeness = float((deviations[1:] * deviations[:-1]).sum()) / power if power > 0 else 0.0
    return float(np.clip((likeness + 2 / weeks) / (1 - 4 / weeks), 0.0, 0.8))

"""The habits of the day: what is usual at this time of day, so that the nightly backup is odd at two in the afternoon only.

residuals (rows, columns) and their start -> DayHabit.fit -> ratio (rows, columns): by how much more each column moves in this
quarter of an hour than through the day, at least 1. Of several days the lower middle one counts: what happened once is no habit.
It excuses what recurs and finds nothing odder than before: a quiet hour does not make small changes large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Mask = npt.NDArray[np.bool_]

PARTS: Final = 96  # quarters of an hour, in UTC
HOURS: Final = 24
FEWEST_DAYS: Final = 2
_DAY_S: Final = 86400.0
_WEIGHT: Final = 10.0  # rows that the whole day counts for beside a part of it
_LARGEST: Final = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class DayHabit:
    """How much each column moves in each part of the day, as a multiple of what is usual through the day."""

    ratios: Floats  # (PARTS, columns)

    @classmethod
    def fit(cls, values: Floats, start_s: Floats, learn: Mask) -> Self:
        """Learn from the rows that `learn` names."""
        squares, part, day = values[learn] ** 2, part_of_day(start_s[learn]), _day(start_s[learn])
        ratios = np.ones((PARTS, values.shape[1]))
        usual = np.maximum(squares.mean(axis=0), 1e-9) if len(squares) else np.ones(values.shape[1])
        order = np.lexsort((day, part))
        firsts = np.flatnonzero(np.diff(part[order] * 1_000_000 + day[order], prepend=-1))
        if firsts.size:
            counts = np.diff(np.append(firsts, order.size))
            of_day = np.add.reduceat(squares[order], firsts, axis=0) / counts[:, None]  # (parts × days, columns)
            of_part = part[order][firsts]
            for number in np.unique(of_part):
                rows = of_part == number
                days, seen = np.sort(of_day[rows], axis=0), float(counts[rows].sum())
                habit = days[(len(days) - 1) // 2]
                ratios[number] = np.sqrt((seen * habit + _WEIGHT * usual) / (seen + _WEIGHT) / usual)
        return cls(np.clip(ratios, 1.0, _LARGEST))

    def ratio(self, start_s: Floats) -> Floats:
        """The multiple for each row, (rows, columns)."""
        return np.asarray(self.ratios[part_of_day(start_s)])


def part_of_day(start_s: Floats) -> npt.NDArray[np.intp]:
    """Which quarter of an hour each moment lies in."""
    return np.asarray((start_s % _DAY_S) // (_DAY_S / PARTS), dtype=np.intp)


def hours_on_days(start_s: Floats) -> int:
    """How many of the 24 hours were seen on two days or more."""
    hour = (start_s % _DAY_S) // 3600
    pairs = np.unique(np.stack([hour, _day(start_s)], axis=1), axis=0) if start_s.size else np.empty((0, 2))
    return int((np.bincount(pairs[:, 0].astype(np.intp), minlength=HOURS) >= FEWEST_DAYS).sum())


def covers_days(start_s: Floats) -> bool:
    """Whether every hour of the day was seen on two days or more: only then the time of day is told from chance."""
    return hours_on_days(start_s) == HOURS


def _day(start_s: Floats) -> npt.NDArray[np.int64]:
    return np.asarray(start_s // _DAY_S, dtype=np.int64)

"""The past of each row: the windows of the same thread (or node) that ended before it began, newest first.

key and start of each row -> previous_rows -> chain -> Past; Past.mean(values) -> (rows, columns). Only what came before is looked
at, so that a score does not change with what comes after.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

LOOK_BACK: Final = 12  # windows
_LONGEST_GAP_S: Final = 3600.0  # to the window before: what was longer ago says nothing about now
FORGETS: Final = 0.5  # each window before counts half of the next


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Rows before each row, newest first; -1 where there are no more."""

    rows: Rows  # (rows, LOOK_BACK)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which rows have any past."""
        return np.asarray(self.rows[:, 0] >= 0)

    def counts(self) -> Rows:
        """How many windows each row's past has."""
        return np.asarray((self.rows >= 0).sum(axis=1))

    def mean(self, values: Floats, *, forgets: float = 1.0, prior: Floats | float = 0.0, weight: float = 0.0) -> Floats:
        """The mean of values over each row's past, newer windows counting more; `prior` counts like `weight` windows."""
        shape = (len(self.rows), *values.shape[1:])
        total = np.broadcast_to(np.asarray(prior, dtype=np.float64) * weight, shape).copy()
        count = np.full((len(self.rows), *(1 for _ in values.shape[1:])), weight)
        for lag in range(self.rows.shape[1]):
            there = self.rows[:, lag] >= 0
            if not there.any():
                break
            share = forgets**lag
            total[there] += share * values[self.rows[there, lag]]
            count[there] += share
        return np.asarray(total / np.maximum(count, 1e-9))


def previous_rows(key: npt.NDArray[np.integer], start_s: Floats, window_s: float) -> Rows:
    """For each row the newest row of the same key that ended before it began; -1 where there is none within an hour."""
    order = np.lexsort((start_s, key))
    keys, starts = key[order], start_s[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1]) if len(order) else np.empty(0, dtype=np.intp)
    bounds = [*first.tolist(), len(order)]
    previous = np.full(len(order), -1, dtype=np.intp)
    for begin, end in pairwise(bounds):
        own = starts[begin:end]
        at = np.searchsorted(own, own - window_s + 1e-3, "right") - 1
        near = (at >= 0) & ~_is_pause(own - own[np.maximum(at, 0)], window_s)
        previous[order[begin:end]] = np.where(near, order[begin + np.maximum(at, 0)], -1)
    return previous


def is_after_a_pause(moments: Floats, window_s: float) -> npt.NDArray[np.bool_]:
    """Which of some moments, but for the first, have no past because the one before is too long ago."""
    return _is_pause(np.diff(moments), window_s)


def _is_pause(apart_s: Floats, window_s: float) -> npt.NDArray[np.bool_]:
    return np.asarray(apart_s > window_s + _LONGEST_GAP_S)


def chain(previous: Rows, look_back: int = LOOK_BACK) -> Past:
    """Follow the rows before each row as far back as they go, at most `look_back`."""
    rows = np.full((len(previous), look_back), -1, dtype=np.intp)
    current = previous
    for lag in range(look_back):
        rows[:, lag] = current
        current = np.where(current >= 0, previous[np.maximum(current, 0)], -1)
    return Past(rows)

"""Recent calm: what is usual for node windows now, out of the site's own newest ones; nothing later than a window counts for it.

units of training, RecentNodes -> running_units -> (groups, 3, 2). Campaigns differ in how calm they are: a node surprises in
units of what nodes that were seen for as long have surprised by in the last hours, beside what was usual in training, which
counts for as much as a hundred windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Numbers = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

RECENT_S: Final = 6 * 3600.0
_TRAINING_WEIGHT: Final = 100.0  # windows
_LEAST_SPREAD: Final = 1e-3
_FAR_OUT: Final = 6.0  # spreads


@dataclass(frozen=True, slots=True, eq=False)
class RecentNodes:
    """Node windows of the last hours: when each began, how long its node had been seen, and how odd it was."""

    start_s: Floats
    seen_for: Numbers
    surprise: Floats  # (windows, 3) of node features, of the oddest threads, of the contrast

    @classmethod
    def none(cls) -> Self:
        """Nothing yet."""
        return cls(np.empty(0), np.empty(0, dtype=np.intp), np.empty((0, 3)))

    def and_then(self, later: RecentNodes) -> RecentNodes:
        """These and later ones, in the order of time."""
        names = ("start_s", "seen_for", "surprise")
        start_s, seen_for, surprise = (np.concatenate([getattr(self, name), getattr(later, name)]) for name in names)
        order = np.argsort(start_s, kind="stable")
        return RecentNodes(start_s[order], seen_for[order], surprise[order])

    def newest(self) -> RecentNodes:
        """Those that still count for what comes next."""
        return self.take(self.start_s > self.start_s.max(initial=-np.inf) - RECENT_S)

    def take(self, rows: Mask) -> RecentNodes:
        """Some of them."""
        return RecentNodes(self.start_s[rows], self.seen_for[rows], self.surprise[rows])


def unit_of(values: Floats) -> tuple[float, float]:
    """Median and spread of calm surprises; the spread is that of the upper tail, where it matters."""
    middle, high = np.quantile(values, [0.5, 0.95]) if values.size else (0.0, 1.0)
    return float(middle), max(float(high - middle) / 1.645, _LEAST_SPREAD)


def running_units(trained: Floats, now: RecentNodes, before: RecentNodes) -> Floats:
    """Median and spread of all surprises for each of the windows `now`, out of those that began before it: (groups, 3, 2).

    `trained` are the units of training by how long a node has been seen, (seen for, 3, 2).
    """
    units = trained[now.seen_for].copy()
    known = before.take(np.asarray(np.isfinite(before.surprise).all(axis=1)))
    for seen_for in np.unique(now.seen_for):
        same = known.take(known.seen_for == seen_for)
        for start_s in np.unique(now.start_s[now.seen_for == seen_for]):
            first, last = np.searchsorted(same.start_s, [start_s - RECENT_S, start_s])
            if last > first:
                rows = (now.seen_for == seen_for) & (now.start_s == start_s)
                units[rows] = _blended(trained[seen_for], same.surprise[first:last])
    return units


def _blended(trained: Floats, surprise: Floats) -> Floats:
    """Units of training and of recent windows, each by how many windows it stands for: (3, 2).

    What is far out in units of training is left out: trouble that lasts must not become what is usual.
    """
    calm = ((surprise - trained[:, 0]) / trained[:, 1] < _FAR_OUT).all(axis=1)
    surprise = surprise[calm] if calm.any() else surprise
    recent = np.array([unit_of(surprise[:, part]) for part in range(len(trained))])
    share = len(surprise) / (len(surprise) + _TRAINING_WEIGHT)
    return np.asarray(share * recent + (1 - share) * trained)

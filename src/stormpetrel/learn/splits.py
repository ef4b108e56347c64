"""Splits by time: what was known when a model was made, and what came afterwards.

times of submission and of end -> pairs of row masks. Training rows that end after the cut are purged: nobody
knew their outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

TIME_CUT: Final = 0.80
ROLLING_CUTS: Final = (0.60, 0.68, 0.76, 0.84, 0.92)
INNER_CUTS: Final = (0.70, 0.85)  # of a training part: two slices to choose a threshold on

Mask = NDArray[np.bool_]
Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to learn from, rows to be judged on, and the moment between them (Unix seconds)."""

    train: Mask
    test: Mask
    cut: float
    purged: int


def splits_at(quantiles: Sequence[float], submit: Seconds, end: Seconds, usable: Mask) -> list[Split]:
    """One split per quantile of the submit times of usable rows; each is judged on what comes until the next cut."""
    usable = usable & ~np.isnan(submit)
    if not usable.any():
        return []
    cuts = [float(cut) for cut in np.quantile(submit[usable], quantiles)]
    return [split_between(cut, until, submit, end, usable) for cut, until in zip(cuts, [*cuts[1:], np.inf], strict=True)]


def split_between(cut: float, until: float, submit: Seconds, end: Seconds, usable: Mask) -> Split:
    """Train on what had ended by `cut`, test on what was submitted from then to `until`."""
    before = usable & (submit < cut)
    train = before & (end < cut)
    return Split(train, usable & (submit >= cut) & (submit < until), cut, int(before.sum() - train.sum()))


def weekly_cuts(first: float, last: float, days: float = 7.0) -> list[float]:
    """Moments `days` apart, from `first` until `last`."""
    return [float(cut) for cut in np.arange(first, last, days * 86400.0)]

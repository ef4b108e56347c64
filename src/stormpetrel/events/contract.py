"""What every model of event counts keeps to, baselines included.

EventSeries -> fit -> score. A score at a bucket sees that bucket and those before it, never a later one; higher is more abnormal.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.records.event_series import EventSeries

Scores = npt.NDArray[np.float64]


class EventModel(Protocol):
    """Anything that gives each bucket a score."""

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on: with that many, it is the same as with all."""
        ...

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn from a series; labels are used by those models that can, maintenance is learnt by none."""
        ...

    def score(self, series: EventSeries) -> Scores:
        """(buckets,) NaN where the bucket is a gap, or has too little before it."""
        ...


class SavedModel(EventModel, Protocol):
    """A model that can lie in the registry, and that is asked for one bucket after the other."""

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) as above; buckets before `since` are context only and stay NaN, so that a new bucket costs little."""
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet, whole or not at all."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What was expected of each bucket and kind from the buckets before it."""

    kinds: tuple[str, ...]
    expected: npt.NDArray[np.float64]  # (buckets, kinds), NaN where there is too little history
    low: npt.NDArray[np.float64]  # (buckets, kinds): the band in which 99 % of calm counts lie
    high: npt.NDArray[np.float64]
    # (buckets, kinds): sign(count - expected) × -log10 of the tail probability: 3 is one in a thousand. NaN at a gap.
    surprise: npt.NDArray[np.float64]


class Forecaster(EventModel, Protocol):
    """A model that says what it expects."""

    def forecast(self, series: EventSeries) -> Forecast:
        """What each bucket was expected to hold, seen from the bucket before it."""
        ...

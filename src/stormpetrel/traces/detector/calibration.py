"""Calibration: a surprise as the share of calm windows that surprise as much, so that .1 % means .1 % on the next campaign.

surprise of calm windows that nothing was learnt from -> Calibration.fit -> score(surprise) = -log10 of the share. Up to the
highest twentieth the share is a rank; beyond, where ranks are few, it falls as a generalised Pareto tail does, without an end:
what is odder than every calm window is still ordered by how odd it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Kinds = npt.NDArray[np.intp]

TAIL: Final = 0.05
_MOST_KEPT: Final = 2048
_SHAPES: Final = (0.0, 0.5)  # of the tail: exponential, and one whose variance is infinite
_PRIOR_SHAPE: Final = 0.1
_PRIOR_WEIGHT: Final = 20.0  # windows of the tail that the prior shape counts for
_EXPONENTIAL: Final = 1e-6  # a shape below it
_FEWEST_OF_KIND: Final = 40  # calm windows; where fewer have been seen for as long, those that were seen for longer count, too
_FEWEST_IN_TAIL: Final = 50  # calm windows of a kind: fewer do not tell how the highest thin out


@dataclass(frozen=True, slots=True)
class Tail:
    """How calm surprises thin out beyond a border: a generalised Pareto distribution of what exceeds it."""

    scale: float
    shape: float

    @classmethod
    def fit(cls, excess: Floats, least_scale: float) -> Self:
        """Learn from what calm windows exceed their border by, by probability-weighted moments; the shape is drawn to a prior."""
        if not excess.size:
            return cls(least_scale, 0.0)
        ordered = np.sort(excess)
        mean = float(ordered.mean())
        weighted = float((ordered * (1 - (np.arange(ordered.size) + 0.65) / ordered.size)).mean())
        shape = 2 - mean / max(mean - 2 * weighted, 1e-9)
        shape = (ordered.size * shape + _PRIOR_WEIGHT * _PRIOR_SHAPE) / (ordered.size + _PRIOR_WEIGHT)
        shape = float(np.clip(shape, *_SHAPES))
        return cls(max(mean * (1 - shape), least_scale), shape)

    def log_share(self, excess: Floats) -> Floats:
        """The natural logarithm of the share of the tail that exceeds the border by as much."""
        steps = np.maximum(excess, 0.0) / self.scale
        return np.asarray(-steps if self.shape < _EXPONENTIAL else -np.log1p(self.shape * steps) / self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Calm surprises, sorted, and how the highest of them thin out."""

    values: Floats  # (kept,), sorted
    tail: Tail
    windows: int  # that it was learnt from

    @classmethod
    def fit(cls, surprise: Floats, tail: Tail | None = None) -> Self:
        """Learn from calm windows that were kept aside; `tail` where others tell it."""
        ordered = np.sort(surprise[np.isfinite(surprise)])
        if not ordered.size:
            return cls(np.zeros(1), tail or Tail(1.0, 0.0), 0)
        places = np.round(np.linspace(0, ordered.size - 1, min(ordered.size, _MOST_KEPT))).astype(np.intp)
        return cls(ordered[places], tail or Tail.fit(excess_of(ordered), least_scale_of(ordered)), int(ordered.size))

    @property
    def border(self) -> float:
        """The surprise above which the share is not a rank any more."""
        return float(np.quantile(self.values, 1 - TAIL))

    def score(self, surprise: Floats) -> Floats:
        """-log10 of the share of calm windows that surprise as much or more."""
        border = self.border
        rank = 1 - np.searchsorted(self.values, surprise, "left") / (len(self.values) + 1)
        of_rank = -np.log10(np.clip(rank, TAIL, 1.0))
        finite = np.where(np.isfinite(surprise), surprise, border)
        return np.where(surprise > border, -np.log10(TAIL) - self.tail.log_share(finite - border) / np.log(10), of_rank)

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        return {f"{prefix}.values": self.values, f"{prefix}.tail": np.array([self.tail.scale, self.tail.shape, self.windows])}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        scale, *shape, windows = arrays[f"{prefix}.tail"].tolist()  # without a shape: saved when tails were exponential
        return cls(arrays[f"{prefix}.values"], Tail(float(scale), float(*shape)), int(windows))


def excess_of(surprise: Floats) -> Floats:
    """What the highest twentieth exceeds its border by."""
    border = float(np.quantile(surprise, 1 - TAIL))
    return np.asarray(surprise[surprise > border] - border)


def least_scale_of(surprise: Floats) -> float:
    """A scale below which a tail is not believed."""
    return 0.05 * (float(np.std(surprise)) or 1.0)


def rows_of_kind(values: Floats, seen_for: Kinds, number: int) -> Floats:
    """The values of what has been seen for as long; with what has been seen for longer, where these are few; else all."""
    known = np.isfinite(values)
    for rows in (seen_for == number, seen_for >= number):
        if (rows & known).sum() >= _FEWEST_OF_KIND:
            return values[rows & known]
    return values[known]


def calibrations_of_kinds(calm: Floats, seen_for: Kinds, kinds: int) -> tuple[Calibration, ...]:
    """Ranks by how long a thread, job or node has been seen; where few of a kind are in the tail, all kinds together tell it."""
    of_kinds = [rows_of_kind(calm, seen_for, number) for number in range(kinds)]
    apart = [values for number in range(kinds) if (values := calm[(seen_for == number) & np.isfinite(calm)]).size]
    everybody = np.concatenate(apart) if apart else np.zeros(1)
    tail = Tail.fit(np.concatenate([excess_of(values) for values in apart or [everybody]]), least_scale_of(everybody))
    return tuple(Calibration.fit(values, tail if len(values) * TAIL < _FEWEST_IN_TAIL else None) for values in of_kinds)

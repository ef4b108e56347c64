"""A mixture for the p90 of a wait: the forest at several levels, recent waits of several kinds, and blends of both, weighted.

forecast + queue features -> candidates (job, candidate) -> weigh(past candidates, waits) -> Mixture -> seconds. The weights
follow what each candidate would have lost on jobs that were forecast before and how often it was enough, so that the mixture
loses little against the best of them. A job that still waits counts with what is certain: what it has waited in excess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Self

import numpy as np

from stormpetrel.jobs.wait.queue_state import feature_names
from stormpetrel.records.arrays import Flags, Floats, Matrix

LEVEL: Final = 0.9
_RECENT: Final = ("shape", "size", "user_shape")  # spaces whose last 20 waits are candidates, the site's where there are none
_LEVELS: Final = (0.7, 0.82, 0.9, 0.95, 0.98, 0.995)  # of the forest
_SHARES: Final = (0.25, 0.5)  # of the forest in a blend
# (space or "" for none, level or 0 for none, share of the forest), in the order of the columns.
CANDIDATES: Final = (
    *((space, 0.0, 0.0) for space in _RECENT),
    *product(_RECENT, _LEVELS, _SHARES),
    *(("", level, 1.0) for level in _LEVELS),
)
MOST_WEIGHED: Final = 20_000  # jobs, the latest
_FEWEST: Final = 200
_COVERED: Final = 5_000  # the latest, by which it is judged how often a candidate was enough
_SHARPNESS: Final = 10.0  # of the weights: 10 % more loss is a weight of 1/e
_OFF: Final = 5.0  # a point of coverage off is like so many per cent of loss
_SLACK: Final = 0.01
_OFFSET_FROM: Final = 3_000  # the latest jobs, by which the mixture is moved to where nine in ten waited no longer
_FEWEST_FOR_OFFSET: Final = 100
_FARTHEST: Final = 0.3  # in log(1 + seconds): 35 %


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weights of the candidates (they sum to one) and an offset, in log(1 + seconds)."""

    weights: tuple[float, ...] = (1.0 / len(CANDIDATES),) * len(CANDIDATES)
    offset: float = 0.0

    def plain(self, candidates: Matrix) -> Floats:
        """The mixture without its offset, in log(1 + seconds)."""
        return np.asarray(candidates.astype(np.float64) @ np.array(self.weights), np.float64)

    def seconds(self, candidates: Matrix) -> Floats:
        """How long each job waits at most, with nine in ten."""
        return np.expm1(np.maximum(0.0, self.plain(candidates) + self.offset))

    def as_json(self) -> dict[str, Any]:
        """The mixture as plain values."""
        return {"weights": list(self.weights), "offset": self.offset}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The mixture out of `as_json`; ValueError where it makes no sense."""
        weights, offset = tuple(float(weight) for weight in saved["weights"]), float(saved["offset"])
        good = len(weights) == len(CANDIDATES) and all(0.0 <= weight <= 1.0 for weight in weights)
        if not good or abs(sum(weights) - 1.0) > 1e-6 or not abs(offset) <= _FARTHEST:
            raise ValueError("its mixture makes no sense")
        return cls(weights, offset)


def candidates(values: Matrix, steps: Floats, below: Matrix) -> Matrix:
    """What each candidate says of each job, in log(1 + seconds): (job, candidate).

    `values` are the features of the queue, `steps` and `below` the forest's forecast.
    """
    from stormpetrel.jobs.wait.queue_kernel import quantiles_of

    by_forest = np.empty((len(values), len(_LEVELS)))
    quantiles_of(steps, below, np.array(_LEVELS), by_forest)
    names = feature_names()
    site = np.nan_to_num(values[:, names.index("site.q90")])
    recent = {}
    for space in _RECENT:
        column = values[:, names.index(f"{space}.q90")]
        recent[space] = np.where(np.isnan(column), site, column)
    out = np.empty((len(values), len(CANDIDATES)), np.float32)
    for place, (space, level, share) in enumerate(CANDIDATES):
        forest = by_forest[:, _LEVELS.index(level)] if share else 0.0
        out[:, place] = share * forest + (1.0 - share) * (recent[space] if space else 0.0)
    return out


def weigh(past: Matrix, mixed: Floats, waited_s: Floats, settled: Flags) -> Mixture:
    """The mixture for what comes now, of what candidates said of past jobs in the order of submission (job, candidate).

    `mixed` is what was mixed of them then, without offset; `waited_s` how long each has waited so far; `settled`: it has started.
    """
    if len(past) < _FEWEST:
        return Mixture()
    past, mixed, waited_s, settled = (each[-MOST_WEIGHED:] for each in (past, mixed, waited_s, settled))
    short = waited_s.astype(np.float32)[:, None] - np.expm1(past)
    certain = np.where(settled[:, None], np.maximum(LEVEL * short, (LEVEL - 1.0) * short), np.maximum(LEVEL * short, 0.0))
    loss = certain.mean(axis=0, dtype=np.float64)
    latest, known = short[-_COVERED:], settled[-_COVERED:, None]
    enough = (latest <= 0.0) & known
    coverage = enough.sum(axis=0) / np.maximum((known | (latest > 0.0)).sum(axis=0), 1)
    score = loss / max(float(loss.min()), 1e-9) + _OFF * np.maximum(0.0, np.abs(coverage - LEVEL) - _SLACK)
    weights = np.exp(-_SHARPNESS * (score - score.min()))
    return Mixture(tuple((weights / weights.sum()).tolist()), _offset(mixed, waited_s, settled))


def _offset(mixed: Floats, waited_s: Floats, settled: Flags) -> float:
    """By how much nine in ten recent waits were longer than what was mixed: a conformal correction, within limits."""
    off = (np.log1p(waited_s) - mixed)[-_OFFSET_FROM:]
    known = off[settled[-_OFFSET_FROM:] | (off > 0.0)]
    if known.size < _FEWEST_FOR_OFFSET:
        return 0.0
    return float(np.clip(np.quantile(known, LEVEL), -_FARTHEST, _FARTHEST))

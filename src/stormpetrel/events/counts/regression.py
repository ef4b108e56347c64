"""A regression of counts: mean and spread of the next bucket, out of its memory.

design (rows, features), counts, log level -> fit_counts -> CountRegression -> mean, dispersion.

Negative binomial with a logarithmic link, drawn towards "as the level says" (ridge). Rows far from what is expected weigh less
(Huber), because the training part holds outages that nobody has labelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.events.surprise import LARGEST_DISPERSION, SMALLEST_DISPERSION, normal_scores

Floats = npt.NDArray[np.float64]

FEWEST_EVENTS: Final = 5  # of a kind, in the training part; below, it is expected as rarely as it was seen
_ROUNDS: Final = 12
_HUBER: Final = 3.0
_LONGEST_STEP: Final = 1.0
_LARGEST_LOG: Final = 25.0
_OF_RARE_KINDS: Final = float(np.log(5.0))  # log dispersion of a kind that was hardly seen
_LOG_DISPERSIONS: Final = np.linspace(np.log(1e-4), np.log(20.0), 14)
_SLOPES: Final = (-1.0, -0.75, -0.5, -0.25, 0.0)  # of log dispersion over log mean: -1 is variance ∝ mean, 0 is ∝ mean²
_ROWS_FOR_SPREAD: Final = 3000


@dataclass(frozen=True, slots=True, eq=False)
class CountRegression:
    """What one kind's counts depend on."""

    weights: Floats  # (features,)
    spread: tuple[float, float, float]  # log dispersion at the centre, its slope, the centre (a log mean)

    def mean(self, design: Floats, log_level: Floats, floor: float) -> Floats:
        """(rows,) the expected count."""
        return np.asarray(np.exp(np.clip(log_level + design @ self.weights, np.log(floor), _LARGEST_LOG)), dtype=np.float64)

    def dispersion(self, mean: Floats) -> Floats:
        """(rows,) variance = mean + dispersion × mean²."""
        at_centre, slope, centre = self.spread
        log_dispersion = at_centre + slope * (np.log(mean) - centre)
        return np.asarray(np.clip(np.exp(log_dispersion), SMALLEST_DISPERSION, LARGEST_DISPERSION), dtype=np.float64)


def fit_counts(design: Floats, ridge: Floats, counts: Floats, log_level: Floats) -> CountRegression:
    """Weights by iterated least squares, then the spread by likelihood; `ridge` is the penalty of each feature."""
    weights = np.zeros(design.shape[1])
    if counts.sum() < FEWEST_EVENTS:
        return CountRegression(weights, (_OF_RARE_KINDS, 0.0, 0.0))
    dispersion = 0.3
    for step in range(_ROUNDS):
        mean = np.exp(np.clip(log_level + design @ weights, -_LARGEST_LOG, _LARGEST_LOG))
        variance = mean * (1.0 + dispersion * mean)
        trust = np.minimum(1.0, _HUBER / np.maximum(np.abs(counts - mean) / np.sqrt(variance), 1e-9))  # (rows,)
        slope = design.T @ (trust * (counts - mean) * mean / variance) - ridge * weights
        curve = (design * (trust * mean * mean / variance)[:, None]).T @ design + np.diag(ridge)
        weights = weights + np.clip(np.linalg.solve(curve, slope), -_LONGEST_STEP, _LONGEST_STEP)
        if step % 3 == 2:
            dispersion = _moment_dispersion(counts, mean)
    mean = np.exp(np.clip(log_level + design @ weights, -_LARGEST_LOG, _LARGEST_LOG))
    return CountRegression(weights, _fit_spread(counts, mean))


def _moment_dispersion(counts: Floats, mean: Floats) -> float:
    """Dispersion out of squared residuals, without the worst hundredth."""
    far = (counts - mean) ** 2 / (mean * (1.0 + 0.3 * mean))
    keep = far <= np.quantile(far, 0.99)
    weight = (mean / (1.0 + mean))[keep] ** 2
    excess = (((counts - mean) ** 2 - mean) / mean**2)[keep]
    return float(np.clip((weight * excess).sum() / weight.sum(), SMALLEST_DISPERSION, LARGEST_DISPERSION))


def _fit_spread(counts: Floats, mean: Floats) -> tuple[float, float, float]:
    """Dispersion as a power of the mean, by likelihood on a grid; a second time without the worst hundredth, and finer."""
    rows = np.linspace(0, len(counts) - 1, min(len(counts), _ROWS_FOR_SPREAD)).astype(np.int64)
    counts, mean = counts[rows], mean[rows]
    centre = float(np.log(mean).mean())
    coarse = _likeliest(counts, mean, centre, _LOG_DISPERSIONS, _SLOPES)
    scores = np.abs(normal_scores(counts, mean, np.exp(coarse[0] + coarse[1] * (np.log(mean) - centre))))
    keep = scores <= max(3.0, float(np.quantile(scores, 0.99)))
    around = coarse[0] + np.linspace(-1.5, 1.5, 16)
    return (*_likeliest(counts[keep], mean[keep], centre, around, _SLOPES), centre)


def _likeliest(
    counts: Floats, mean: Floats, centre: float, log_dispersions: Floats, slopes: tuple[float, ...]
) -> tuple[float, float]:
    """The log dispersion at the centre and the slope under which these counts are the most likely."""
    from scipy.special import gammaln

    best, highest = (_OF_RARE_KINDS, 0.0), -np.inf
    steep = np.log(mean) - centre
    for slope in slopes:
        for at_centre in log_dispersions:
            r = np.clip(np.exp(-(at_centre + slope * steep)), 1e-4, 1e6)
            terms = gammaln(counts + r) - gammaln(r) - r * np.log1p(mean / r) - counts * np.log1p(r / mean)
            if (likelihood := float(terms.sum())) > highest:
                highest, best = likelihood, (float(at_centre), slope)
    return best

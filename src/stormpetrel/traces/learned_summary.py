"""A learned summary of any number of measurements: one embedding and one score for each row.

values (rows, measurements) of calm times -> LearnedSummary.fit -> embed (rows, embedding), score (rows). Measurements are
standardised, and principal components that hold nine tenths of the variance are the embedding. The score joins two ways of being
unusual, each in units of what is usual: the five measurements that the embedding explains worst, and how far out the embedding
lies. For metrics over time `lagged` adds how each moved in the last samples, and `smoothed` takes the mean of the last scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import ModelError, ModelFormatError

Floats = NDArray[np.float64]

EXPLAINED: Final = 0.9  # of the variance is in the embedding
MOST_COMPONENTS: Final = 60
WORST: Final = 5  # measurements that a score looks at
SMALLEST_SPREAD: Final = 0.02  # of a measurement in [0, 1]: one that stood still in training may tremble
SMALLEST_RESIDUAL: Final = 0.05  # in units of a measurement's spread
LARGEST: Final = 20.0  # in units of what is usual: beyond it one measurement says no more
LAGS: Final = 8  # samples that `lagged` looks back over
SMOOTHING: Final = 16  # samples
_ARRAYS: Final = ("mean", "spread", "components", "scale", "residual")


@dataclass(frozen=True, slots=True, eq=False)
class LearnedSummary:
    """What calm rows look like, as a plane with a scale."""

    mean: Floats  # (measurements,)
    spread: Floats  # (measurements,)
    components: Floats  # (embedding, measurements)
    scale: Floats  # (embedding,) standard deviation of each component
    residual: Floats  # (measurements,) what the plane leaves unexplained, usually
    usual: tuple[float, float]  # medians of the two parts of the score in training

    @classmethod
    def fit(cls, values: Floats) -> Self:
        """Learn from calm rows; ModelError where there are fewer than two."""
        if len(values) < 2 or not np.isfinite(values).all():
            raise ModelError("A summary is learnt from two rows or more, of finite numbers.", hint="Take in more calm windows.")
        mean, spread = values.mean(axis=0), np.maximum(values.std(axis=0), SMALLEST_SPREAD)
        standard = (values - mean) / spread
        _, singular, axes = np.linalg.svd(standard, full_matrices=False)
        variance = singular**2
        share = np.cumsum(variance) / max(float(variance.sum()), 1e-12)
        size = min(int(np.searchsorted(share, EXPLAINED)) + 1, MOST_COMPONENTS, len(axes))
        scale = np.maximum(singular[:size] / np.sqrt(len(values)), 1e-6)
        rest = standard - standard @ axes[:size].T @ axes[:size]
        plain = cls(mean, spread, axes[:size], scale, np.maximum(rest.std(axis=0), SMALLEST_RESIDUAL), (1.0, 1.0))
        worst, far = plain._parts(values)
        usual = (max(float(np.median(worst)), 1e-9), max(float(np.median(far)), 1e-9))
        return cls(mean, spread, plain.components, scale, plain.residual, usual)

    def embed(self, values: Floats) -> Floats:
        """Where each row lies, each component in units of its spread: (rows, embedding)."""
        embedding: Floats = ((values - self.mean) / self.spread) @ self.components.T / self.scale
        return embedding

    def score(self, values: Floats) -> Floats:
        """How unusual each row is; about 2 for a usual one, higher is more abnormal."""
        worst, far = self._parts(values)
        score: Floats = worst / self.usual[0] + far / self.usual[1]
        return score

    def _parts(self, values: Floats) -> tuple[Floats, Floats]:
        standard = (values - self.mean) / self.spread
        rest = standard - standard @ self.components.T @ self.components
        apart = np.minimum(np.abs(rest) / self.residual, LARGEST)
        worst = np.sort(apart, axis=1)[:, -WORST:].mean(axis=1)
        out = np.minimum(np.abs(self.embed(values)), LARGEST)
        return worst, np.sqrt((out**2).mean(axis=1))

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        arrays = {f"{prefix}.{name}": getattr(self, name) for name in _ARRAYS}
        return {**arrays, f"{prefix}.parts": np.array(self.usual)}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved; ModelFormatError where they do not fit each other."""
        try:
            mean, spread, components, scale, residual = (arrays[f"{prefix}.{name}"] for name in _ARRAYS)
            first, second = arrays[f"{prefix}.parts"]
            summary = cls(mean, spread, components, scale, residual, (float(first), float(second)))
            fits = components.shape == (*scale.shape, *mean.shape) and mean.shape == spread.shape == residual.shape
            fits = fits and all(np.isfinite(array).all() for array in (mean, spread, components, scale, residual))
        except (KeyError, TypeError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise ModelFormatError("A learned summary cannot be read.", hint="Train it again: stormpetrel traces train")
        return summary


def lagged(values: Floats, lags: int = LAGS) -> Floats:
    """Mean and spread of each measurement over the last samples, this one included: (rows, 2 × measurements)."""
    padded = np.concatenate([np.repeat(values[:1], lags - 1, axis=0), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, lags, axis=0)  # (rows, measurements, lags)
    return np.concatenate([windows.mean(axis=2), windows.std(axis=2)], axis=1)


def smoothed(scores: Floats, samples: int = SMOOTHING) -> Floats:
    """The mean of the last scores, this one included; the first ones of as many as there are."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    ends = np.arange(1, len(scores) + 1)
    begins = np.maximum(ends - samples, 0)
    mean: Floats = (sums[ends] - sums[begins]) / (ends - begins)
    return mean

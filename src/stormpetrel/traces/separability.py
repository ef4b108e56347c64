"""How far apart the job types lie: the silhouette on random subsets, and the plane in which they are drawn.

points (n, dimensions), labels -> silhouette -> MeanStd. Training points -> PcaMap.fit -> transform -> (n, 2).
The silhouette costs the square of the number of points: it is taken on several random subsets of one size, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import MissingExtraError, ModelFormatError, UsageError

SUBSETS: Final = 30  # the paper's ensemble of subsets
SUBSET_SIZE: Final = 1000

Points = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class MeanStd:
    """A figure measured several times: mean, standard deviation, number of times."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean and the (population) standard deviation of some values; NaN where there are none."""
        if not len(values):
            return cls(float("nan"), float("nan"), 0)
        return cls(float(np.mean(values)), float(np.std(values)), len(values))

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON: null where nothing could be measured."""
        return {"mean": self.mean, "std": self.std, "n": self.n} if self.n else {"mean": None, "std": None, "n": 0}


def silhouette(points: Points, labels: Labels, *, subsets: int = SUBSETS, size: int = SUBSET_SIZE, seed: int = 0) -> MeanStd:
    """The silhouette of labelled points on random subsets: 1 is far apart, 0 overlap, below 0 mixed up.

    A label with a single point in a subset is left out of it; a subset with fewer than two labels gives no figure. Of few points
    a subset takes four fifths, so that subsets differ.
    """
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or len(points) != len(labels):
        raise UsageError(f"Points of shape {points.shape} do not fit {len(labels)} labels.")
    number = np.unique(np.asarray(labels), return_inverse=True)[1]
    size = min(size, len(points) * 4 // 5)
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(subsets):
        rows = rng.choice(len(points), size, replace=False)
        score = _silhouette_of(points[rows], number[rows])
        if score is not None:
            scores.append(score)
    return MeanStd.of(scores)


def _silhouette_of(points: Points, number: npt.NDArray[np.intp]) -> float | None:
    try:
        from scipy.spatial.distance import cdist
        from sklearn.metrics import silhouette_score
    except ImportError as error:
        raise MissingExtraError("The silhouette of job types", "traces") from error
    enough = np.bincount(number, minlength=1)[number] >= 2
    points, number = points[enough], number[enough]
    labels = np.unique(number).size
    if not 2 <= labels < len(points):
        return None
    # Distances of our own: sklearn's are made for many dimensions, and take ten times as long on a plane.
    return float(silhouette_score(cdist(points, points), number, metric="precomputed"))


@dataclass(frozen=True, slots=True, eq=False)
class PcaMap:
    """The plane of the largest variance of the points it was fitted on: what others are drawn in, too."""

    mean: npt.NDArray[np.float64]  # (dimensions,)
    axes: npt.NDArray[np.float64]  # (components, dimensions), of length one
    explained: npt.NDArray[np.float64]  # (components,) share of the variance

    @classmethod
    def fit(cls, points: Points, *, components: int = 2) -> Self:
        """Fit on the points of the training campaigns; nothing else may be among them."""
        flat = np.asarray(points, dtype=np.float64)
        if flat.ndim != 2 or len(flat) < 2 or not np.isfinite(flat).all():
            raise UsageError(f"A map needs at least two points without gaps; the shape given is {flat.shape}.")
        mean = flat.mean(axis=0)
        power, axes = _principal(flat - mean)
        kept = min(components, len(axes))
        total = float(power.sum())
        explained = power[:kept] / total if total > 0 else np.zeros(kept)
        padded = np.zeros((components, flat.shape[1]))
        padded[:kept] = _turned(axes[:kept])
        return cls(mean, padded, np.pad(explained, (0, components - kept)))

    def transform(self, points: Points) -> npt.NDArray[np.float32]:
        """Where points lie on the map: (n, components)."""
        points = np.asarray(points)
        if points.ndim != 2 or points.shape[1] != self.mean.size:
            raise UsageError(f"The map is of {self.mean.size} dimensions; the points are of shape {points.shape}.")
        return np.asarray((points - self.mean) @ self.axes.T, dtype=np.float32)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"mean": self.mean.tolist(), "axes": self.axes.tolist(), "explained": self.explained.tolist()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The map that `as_dict` wrote; ModelFormatError where it is not one."""
        try:
            mean, axes, explained = (np.asarray(saved[name], dtype=np.float64) for name in ("mean", "axes", "explained"))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError("The saved map has no mean, axes and explained variance.") from error
        if mean.ndim != 1 or axes.ndim != 2 or axes.shape != (explained.size, mean.size):
            raise ModelFormatError(f"The saved map has axes of shape {axes.shape} for {mean.size} dimensions.")
        return cls(mean, axes, explained)


def _principal(centred: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Variances (up to a factor) and axes, largest first; of many points by way of their covariance, which is small."""
    if len(centred) <= centred.shape[1]:
        _, singular, axes = np.linalg.svd(centred, full_matrices=False)
        return singular**2, axes
    _, power, axes = np.linalg.svd(centred.T @ centred, full_matrices=False)
    return power, axes


def _turned(axes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Axes whose largest part is positive: the sign is a matter of taste, but must not change from run to run."""
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return np.where(largest < 0, -axes, axes)

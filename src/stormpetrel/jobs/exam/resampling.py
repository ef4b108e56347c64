"""Resampling: make failed and completed jobs equally many before a model is fitted.

feature matrix, outcomes -> random_oversample or smote -> a longer matrix and its outcomes; the given rows come first, unchanged.
Only ever used on training rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import cores
from stormpetrel.records.arrays import Matrix

Truth = npt.NDArray[np.bool_]

NEIGHBOURS: Final = 5  # of the SMOTE article


def random_oversample(x: Matrix, y: Truth, seed: int) -> tuple[Matrix, Truth]:
    """The rows, and copies of randomly drawn rows of the rarer class until both classes are equally many."""
    rare, missing = _rarer(y)
    if rare.size == 0 or missing == 0:
        return x, y
    drawn = np.random.default_rng(seed).choice(rare, size=missing)
    return np.concatenate([x, x[drawn]]), np.concatenate([y, y[drawn]])


def smote(x: Matrix, y: Truth, seed: int, neighbours: int = NEIGHBOURS) -> tuple[Matrix, Truth]:
    """The rows, and made-up rows of the rarer class, each between a real row and one of its nearest neighbours.

    Neighbours are sought among standardised columns with missing values at their medians; a made-up row lacks what the row
    it starts from lacks, so that a missing value tells nothing about being made up. Codes of users and groups are
    interpolated like numbers, as the method does. With a single rare row there is no neighbour, and copies are made instead.
    """
    rare, missing = _rarer(y)
    if rare.size < 2:
        return random_oversample(x, y, seed)
    if missing == 0:
        return x, y
    rng = np.random.default_rng(seed)
    filled = filled_with_medians(x[rare])
    near = _nearest(filled, min(neighbours, rare.size - 1))  # (rare rows, neighbours)
    base = rng.integers(rare.size, size=missing)
    other = near[base, rng.integers(near.shape[1], size=missing)]
    share = rng.random((missing, 1), dtype=np.float32)
    synthetic = filled[base] + share * (filled[other] - filled[base])
    synthetic[np.isnan(x[rare[base]])] = np.nan
    return np.concatenate([x, synthetic]), np.concatenate([y, np.full(missing, y[rare[0]])])


def filled_with_medians(x: Matrix) -> Matrix:
    """The matrix with missing values at the median of their column; 0 in a column without any value."""
    lacking = np.isnan(x)
    known = ~lacking.all(axis=0)
    medians = np.zeros(x.shape[1], dtype=np.float32)
    medians[known] = np.nanmedian(x[:, known], axis=0) if x.shape[0] else 0.0
    return np.where(lacking, medians, x)


def standardised(x: Matrix) -> Matrix:
    """Each column with mean 0 and standard deviation 1; a constant column is 0. Takes no missing values."""
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    spread = centred.std(axis=0)
    scaled: Matrix = (centred / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    return scaled


def _rarer(y: Truth) -> tuple[npt.NDArray[np.intp], int]:
    """The positions of the rarer class, and how many rows it lacks; no positions where a class is absent."""
    failed = int(y.sum())
    rare = np.flatnonzero(y == (failed <= y.size - failed))
    return rare, y.size - 2 * rare.size


def _nearest(filled: Matrix, neighbours: int) -> npt.NDArray[np.intp]:
    from sklearn.neighbors import NearestNeighbors

    scaled = standardised(filled)
    near: npt.NDArray[np.intp] = (
        NearestNeighbors(n_neighbors=neighbours, n_jobs=min(2, cores())).fit(scaled).kneighbors(return_distance=False)
    )
    return near

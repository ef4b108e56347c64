"""An index of embeddings: which past windows lie nearest to a window.

vectors (n, d) float32 -> ExactIndex or IvfIndex -> search(queries, k) -> Neighbours. Distances are Euclidean. The inverted file
(IVF) sorts the vectors into cells around k-means centres and searches only the cells nearest to a query: it may miss a neighbour
beyond the border of a cell. `build_index` takes the exact one where that is fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

EXACT_UP_TO: Final = 100_000  # vectors: one query then takes a few milliseconds
PROBES: Final = 16  # cells that a query is looked for in
_BLOCK_BYTES: Final = 64 * 1024**2  # of distances that are held at once
_LEARNT_PER_CELL: Final = 40  # vectors that the centre of a cell is learnt from
_ROUNDS: Final = 8  # of k-means: later ones hardly move a centre


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The nearest vectors of each query, the nearest first; `row` is -1 and the distance infinite where there are no more."""

    distance: Vectors  # (queries, k)
    row: Rows  # (queries, k)


class VectorIndex(Protocol):
    """Finds the nearest of many vectors."""

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """The k nearest vectors of each query."""
        ...

    def __len__(self) -> int: ...


class ExactIndex:
    """Compares a query with every vector."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = _checked(vectors)
        self._squares = np.einsum("nd,nd->n", self._vectors, self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """The k nearest vectors of each query, all of them compared."""
        points = _queries(queries, self._vectors.shape[1], k)
        distance, row = _nothing(len(points), k)
        size = max(1, _BLOCK_BYTES // (4 * max(1, len(self))))
        for first in range(0, len(points) if len(self) else 0, size):
            block = points[first : first + size]
            squares = self._squares - 2 * block @ self._vectors.T  # (block, n), without the queries' own squares
            near = _smallest(squares, min(k, len(self)))
            distance[first : first + size, : near.shape[1]] = _distances(block[:, None], self._vectors[near])
            row[first : first + size, : near.shape[1]] = near
        return _sorted(distance, row)


class IvfIndex:
    """Compares a query with the vectors of the cells that are nearest to it."""

    def __init__(self, vectors: Vectors, *, cells: int | None = None, probes: int = PROBES, seed: int = 0) -> None:
        checked = _checked(vectors)
        if not len(checked):
            raise UsageError("An inverted index of no vectors cannot be built.", hint="Use the exact index.")
        self.cells = min(len(checked), cells or max(1, round(4 * np.sqrt(len(checked)))))
        self.probes = min(probes, self.cells)
        self._centres = _cell_centres(checked, self.cells, np.random.default_rng(seed))
        cell = _nearest_cell(checked, self._centres)
        order = np.argsort(cell, kind="stable")
        self._row = order.astype(np.int64)
        self._vectors = checked[order]
        self._ends = np.searchsorted(cell[order], np.arange(self.cells + 1))

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """The k nearest vectors of each query in the cells whose centres are nearest to it."""
        points = _queries(queries, self._vectors.shape[1], k)
        distance, row = _nothing(len(points), k)
        probed = ExactIndex(self._centres).search(points, self.probes).row  # (queries, probes)
        for number, cells in enumerate(probed):
            inside = np.concatenate([np.arange(self._ends[cell], self._ends[cell + 1]) for cell in cells])
            apart = _distances(points[number], self._vectors[inside])
            near = _smallest(apart[None], min(k, len(inside)))[0]
            distance[number, : len(near)], row[number, : len(near)] = apart[near], self._row[inside[near]]
        return _sorted(distance, row)


def build_index(vectors: Vectors, *, seed: int = 0) -> VectorIndex:
    """The exact index of up to 100,000 vectors, the inverted one of more."""
    return ExactIndex(vectors) if len(vectors) <= EXACT_UP_TO else IvfIndex(vectors, seed=seed)


def _cell_centres(vectors: Vectors, cells: int, draws: np.random.Generator) -> Vectors:
    """Centres by k-means on a sample of the vectors; a cell that loses all of them keeps its centre."""
    size = min(len(vectors), cells * _LEARNT_PER_CELL)
    sample = vectors[draws.choice(len(vectors), size, replace=False)]
    centres = sample[draws.choice(size, cells, replace=False)].copy()
    for _ in range(_ROUNDS):
        cell = _nearest_cell(sample, centres)
        counts = np.bincount(cell, minlength=cells)
        sums = np.stack([np.bincount(cell, weights=column, minlength=cells) for column in sample.T], axis=1)
        centres[counts > 0] = (sums[counts > 0] / counts[counts > 0, None]).astype(np.float32)
    return centres


def _nearest_cell(vectors: Vectors, centres: Vectors) -> npt.NDArray[np.intp]:
    squares = np.einsum("cd,cd->c", centres, centres)
    size = max(1, _BLOCK_BYTES // (4 * len(centres)))
    blocks = (vectors[first : first + size] for first in range(0, len(vectors), size))
    return np.concatenate([np.argmin(squares - 2 * block @ centres.T, axis=1) for block in blocks])


def _smallest(values: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp]:
    """The places of the k smallest values of each row, in no order: (rows, k)."""
    if k >= values.shape[1]:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(values, k - 1, axis=1)[:, :k]


def _distances(first: Vectors, second: Vectors) -> Vectors:
    difference = second - first
    apart: Vectors = np.sqrt(np.einsum("...d,...d->...", difference, difference))
    return apart


def _sorted(distance: Vectors, row: Rows) -> Neighbours:
    order = np.lexsort((row, distance), axis=1)
    return Neighbours(np.take_along_axis(distance, order, axis=1), np.take_along_axis(row, order, axis=1))


def _nothing(queries: int, k: int) -> tuple[Vectors, Rows]:
    return np.full((queries, k), np.inf, dtype=np.float32), np.full((queries, k), -1, dtype=np.int64)


def _checked(vectors: Vectors) -> Vectors:
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise UsageError("An index holds vectors of one length, of finite numbers.", hint="Leave out what has no embedding.")
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _queries(queries: Vectors, dimension: int, k: int) -> Vectors:
    if k < 1 or queries.ndim != 2 or queries.shape[1] != dimension:
        raise UsageError(
            f"An index of vectors of {dimension} numbers cannot be searched for {queries.shape}, {k} nearest.",
            hint="Embed the windows with the model that the index was built with.",
        )
    return np.ascontiguousarray(queries, dtype=np.float32)

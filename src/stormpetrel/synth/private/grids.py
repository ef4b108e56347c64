"""Public grids: the cells into which a value may fall, fixed before any log is seen.

values -> Grid.cells -> cell numbers (the last one is "missing"); cell numbers -> Grid.values -> values somewhere in their cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.states import JobState

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BUCKETS: Final = 16  # of a column of texts whose words are not public
# Saved models count cells over this list: a state that no log tells is not in it, and new ones go to the end.
STATES: Final = tuple(state.value for state in JobState if state is not JobState.VANISHED)
_ROUND_LIMITS_S: Final = (
    60, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 14_400, 18_000, 21_600, 28_800, 43_200, 64_800, 86_400, 172_800, 259_200,
    604_800, 1_209_600, 2_592_000,
)  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Cells between edges. An edge of `alone` is a cell of its own: people ask for 64 cores, and for one hour."""

    edges: tuple[float, ...]  # rising; the first cell begins at the first edge, the last one is open
    alone: frozenset[float] = frozenset()
    whole: bool = True  # whether values are whole numbers

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """(cells,) the first value of each cell, and the first one beyond it."""
        begins: list[float] = []
        for edge in self.edges:
            begins += [edge] + ([edge + 1 if self.whole else float(np.nextafter(edge, np.inf))] if edge in self.alone else [])
        starts = np.unique(np.array(begins, dtype=np.float64))
        last = 2 * abs(starts[-1]) + 1
        return starts, np.append(starts[1:], last)

    @property
    def missing(self) -> int:
        """The cell of what is not there; one more than this is the number of cells."""
        return len(self.bounds[0])

    @property
    def size(self) -> int:
        """How many cells, that of missing values among them."""
        return self.missing + 1

    def cells(self, values: Floats) -> Ints:
        """(n,) the cell of each value; beyond the grid is its first or last cell."""
        known = np.isfinite(values)
        rounded = np.round(np.where(known, values, 0.0)) if self.whole else np.where(known, values, 0.0)
        found = np.searchsorted(self.bounds[0], rounded, side="right") - 1
        return np.where(known, np.clip(found, 0, self.missing - 1), self.missing).astype(np.int64)

    def values(self, cells: Ints, uniform: Floats, *, below: Floats | None = None) -> Floats:
        """(n,) a value of each cell, uniform in the logarithm, NaN for missing; `below` cuts cells off from above."""
        starts, ends = (np.append(bound, 0.0)[cells] for bound in self.bounds)
        if below is not None:
            ends = np.maximum(np.minimum(ends, below), starts + (1.0 if self.whole else 0.0))
        flipped = ends <= 0  # cells of negative numbers
        low, high = np.where(flipped, -ends, starts), np.where(flipped, -starts, ends)
        low = np.maximum(low, 0.0)
        # A cell that begins at 0 has no logarithm there: one is added and taken away again.
        shift = np.where(low > 0, 0.0, 1.0)
        along = np.where(flipped, 1.0 - uniform, uniform)  # a cell holds its lower end, not its upper one
        drawn = (low + shift) * ((high + shift) / (low + shift)) ** along - shift
        drawn = np.where(flipped, -drawn, drawn)
        if self.whole:
            drawn = np.clip(np.floor(drawn), starts, np.maximum(ends - 1, starts))
        return np.where(cells == self.missing, np.nan, drawn)


@dataclass(frozen=True)
class Words:
    """Cells of a column of texts: public words, or buckets into which texts fall by a public hash and that get new names."""

    column: str
    known: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """The cell of what is not there, or not a public word."""
        return len(self.known) or BUCKETS

    @property
    def size(self) -> int:
        """How many cells, that of missing values among them."""
        return self.missing + 1

    def texts(self, values: pl.Series) -> Ints:
        """(n,) the cell of each text."""
        words = {word: self._cell(word) for word in values.unique().drop_nulls().to_list()}
        cells = values.replace_strict(words, default=self.missing, return_dtype=pl.Int64) if words else None
        return np.full(len(values), self.missing) if cells is None else cells.to_numpy().astype(np.int64)

    def words(self, cells: Ints) -> pl.Series:
        """(n,) the word of each cell; buckets are called after their column."""
        names = [*(self.known or [f"{self.column}{place + 1:02d}" for place in range(BUCKETS)]), None]
        return pl.Series(self.column, names, dtype=pl.String).gather(cells)

    def _cell(self, word: str) -> int:
        if self.known:
            return self.known.index(word) if word in self.known else self.missing
        return int.from_bytes(hashlib.sha256(word.encode(errors="replace")).digest()[:8], "big") % BUCKETS


def _powers(first: int, last: int) -> Iterable[float]:
    return (float(2**power) for power in range(first, last + 1))


def _with_points(points: Sequence[float], *edges: float) -> Grid:
    return Grid((*edges, *points), frozenset(points))


SIZE_GRID: Final = _with_points((0.0, *_powers(0, 20)))
MEMORY_GRID: Final = Grid((0.0, *_powers(0, 44)), frozenset((0.0, *_powers(24, 44))))
LIMIT_GRID: Final = Grid((0.0, *map(float, _ROUND_LIMITS_S)), frozenset(map(float, _ROUND_LIMITS_S)))
RUNTIME_GRID: Final = Grid((0.0, *_powers(0, 22)))
GAP_GRID: Final = Grid((0.0, *_powers(0, 11)))  # within a session: at most an hour
WHOLE_GRID: Final = Grid((*(-(2.0**power) for power in range(40, -1, -1)), 0.0, *_powers(0, 40)))
NUMBER_GRID: Final = Grid(
    (*(-(2.0**power) for power in range(40, -11, -2)), 0.0, *(2.0**power for power in range(-10, 41, 2))), whole=False
)

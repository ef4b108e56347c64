"""What is public about a private model: its columns, its period, its tables, their bounds and their shares of the budget.

columns + settings -> Layout -> tables -> Table (shape, sensitivity, share of epsilon). Nothing here has looked at a
job, apart from the names and types of the columns and, where no period was given, the weeks of the first and the last job.
Grid (numbers) and Categories (categories) are the cells into which a value may fall, fixed before any log is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.states import JobState
from stormpetrel.synth.workload import SIZES, STATE, TIMES, WHERE

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
        cell = np.searchsorted(self.bounds[0], rounded, side="right") - 1
        return np.where(known, np.clip(cell, 0, self.missing - 1), self.missing).astype(np.int64)

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
class Categories:
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
        cell_of = {word: self._cell(word) for word in values.unique().drop_nulls().to_list()}
        cells = values.replace_strict(cell_of, default=self.missing, return_dtype=pl.Int64) if cell_of else None
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


USERS, SPANS, STARTS, SHAPES, GAPS, REPEATS = "users", "spans", "starts", "shapes", "gaps", "repeats"
COLUMN: Final = "column:"  # what the names of the columns' tables begin with
LIMIT, RUNTIME = TIMES

ACTIVITY_BINS: Final = 11  # users by their number of jobs, in powers of four
CLASS_BINS: Final = (3, 4)  # bins in which a class of users begins: 64 and 256 jobs
CLASSES: Final = len(CLASS_BINS) + 1
SPAN_BINS: Final = 10  # weeks from a user's first job to the last, in powers of two
HOURS: Final = 168
SIZE_BINS: Final = 13  # jobs of a session, in powers of two
PACE_EDGES_S: Final = (4.0, 32.0, 256.0)
PACES: Final = len(PACE_EDGES_S) + 2  # the first: one job, no gap
GAP_EDGES_S: Final = (2.0, 16.0, 128.0)
BEFORE: Final = len(GAP_EDGES_S) + 2  # the first: no gap before
SIZE_EDGES: Final = (2.0, 16.0, 128.0, 1024.0)
SIZE_GROUPS: Final = len(SIZE_EDGES) + 2  # the last: missing
LIMIT_EDGES_S: Final = (601.0, 3601.0, 14_401.0, 43_201.0)
LIMIT_GROUPS: Final = len(LIMIT_EDGES_S) + 2
ENDS: Final = 4  # no run time, at the limit, under a minute, other
MOST_WEEKS: Final = 5200
AT_LIMIT: Final = RUNTIME_GRID.size  # the cell of run times that reached their limit, after all others
# Shares of the budget. Who is there and how much decides on everything else; the other columns share one weight.
_WEIGHTS: Final = {
    USERS: 20, SPANS: 5, STARTS: 12, SHAPES: 15, GAPS: 12, REPEATS: 8,
    "cores": 8, LIMIT: 8, RUNTIME: 8, STATE: 4,
}  # fmt: skip
_OTHERS_WEIGHT: Final = 12
_FAR_S: Final = 1e11  # the year 5138


class Table(NamedTuple):
    """A histogram: its axes, the most that one user can change (the sum over all cells), its share of epsilon."""

    shape: tuple[int, ...]
    bound: int
    share: Fraction

    def scale(self, epsilon: Fraction) -> Fraction:
        """The scale of its noise: sensitivity ÷ its part of epsilon."""
        return self.bound / (epsilon * self.share)


@dataclass(frozen=True, slots=True)
class Layout:
    """The public frame of a private model."""

    columns: tuple[str, ...]  # generated in addition to the time and the user, in order
    types: Mapping[str, str]  # of columns that no vocabulary knows: whole, number or text
    most_jobs: int
    most_sessions: int
    begin_s: float  # Monday of the first week
    weeks: int
    has_users: bool  # false where each job counts as a user of its own
    has_clock: bool = True
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> its public words
    classes: int = CLASSES  # of users by activity that are distinguished: CLASSES, or 1 where the noise would hide them

    @property
    def lead(self) -> str | None:
        """The column of sizes that the others follow."""
        return next((name for name in SIZES if name in self.columns), None)

    @property
    def requests(self) -> tuple[str, ...]:
        """What a user asks for: all columns but what becomes of the job."""
        return tuple(name for name in self.columns if name not in (RUNTIME, STATE))

    def class_of(self, activity: Ints) -> Ints:
        """The class of users that a bin of `users` belongs to."""
        edges = CLASS_BINS if self.classes > 1 else ()
        return np.searchsorted(np.array(edges, dtype=np.int64), activity, side="right").astype(np.int64)

    def grid(self, name: str) -> Grid | Categories:
        """The cells of a column."""
        if name in _GRIDS:
            return _GRIDS[name]
        if name in WHERE or self.types.get(name) == "text":
            return Categories(name, tuple(self.names.get(name, ())))
        return WHOLE_GRID if self.types.get(name) == "whole" else NUMBER_GRID

    def tables(self) -> dict[str, Table]:
        """Every histogram that is counted; shares add up to 1."""
        kinds = {
            USERS: ((ACTIVITY_BINS,), 1),
            SPANS: ((self.classes, SPAN_BINS), 1),
            STARTS: ((HOURS,), self.most_sessions),
            SHAPES: ((self.classes, SIZE_BINS, PACES), self.most_sessions),
            GAPS: ((PACES, BEFORE, GAP_GRID.size - 1), self.most_jobs),
            REPEATS: ((BEFORE, 4), self.most_jobs),
            **{COLUMN + name: (self._shape(name), self.most_jobs) for name in self.columns},
        }
        weights = self._weights()
        total = sum(weights.values(), Fraction(0))
        return {name: Table(shape, bound, weights[name] / total) for name, (shape, bound) in kinds.items()}

    def _shape(self, name: str) -> tuple[int, ...]:
        if name == RUNTIME:
            return self.classes, LIMIT_GROUPS, RUNTIME_GRID.size + 1
        if name == STATE:
            return ENDS, len(STATES) + 1
        if name == self.lead:
            return self.classes, self.grid(name).size
        return (self.classes, SIZE_GROUPS, self.grid(name).size) if name == LIMIT else (SIZE_GROUPS, self.grid(name).size)

    def _weights(self) -> dict[str, Fraction]:
        own = [name for name in self.columns if name not in _WEIGHTS and name != self.lead]
        columns = {name: Fraction(_WEIGHTS.get("cores" if name == self.lead else name, 0)) for name in self.columns}
        columns |= {name: Fraction(_OTHERS_WEIGHT, len(own)) for name in own}
        fixed = {name: Fraction(_WEIGHTS[name]) for name in (USERS, SPANS, STARTS, SHAPES, GAPS, REPEATS)}
        return fixed | {COLUMN + name: weight for name, weight in columns.items()}

    def record(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "columns": list(self.columns),
            "types": dict(self.types),
            "most_jobs": self.most_jobs,
            "most_sessions": self.most_sessions,
            "begin_s": self.begin_s,
            "weeks": self.weeks,
            "has_users": self.has_users,
            "has_clock": self.has_clock,
            "classes": self.classes,
            "names": {name: list(values) for name, values in self.names.items()},
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Layout:
        """What `record` gave; ValueError where it makes no sense."""
        layout = cls(
            columns=tuple(map(str, record["columns"])),
            types={str(name): str(kind) for name, kind in record["types"].items()},
            most_jobs=int(record["most_jobs"]),
            most_sessions=int(record["most_sessions"]),
            begin_s=float(record["begin_s"]),
            weeks=int(record["weeks"]),
            has_users=bool(record["has_users"]),
            has_clock=bool(record["has_clock"]),
            classes=int(record["classes"]),
            names={str(name): tuple(map(str, values)) for name, values in record["names"].items()},
        )
        if (
            not 1 <= layout.weeks <= MOST_WEEKS
            or min(layout.most_jobs, layout.most_sessions) < 1
            or layout.classes not in (1, CLASSES)
            or not abs(layout.begin_s) < _FAR_S
            or len(set(layout.columns)) < len(layout.columns)
        ):
            raise ValueError("its frame makes no sense")
        return layout


_GRIDS: Final[dict[str, Grid | Categories]] = {
    "cores": SIZE_GRID,
    "nodes": SIZE_GRID,
    "gpus": SIZE_GRID,
    "mem_bytes": MEMORY_GRID,
    LIMIT: LIMIT_GRID,
    RUNTIME: RUNTIME_GRID,
    STATE: Categories(STATE, STATES),
}

"""What is public about a private model: its columns, its period, its tables, their bounds and their shares of the budget.

columns + settings -> Layout -> tables -> Table (shape, sensitivity, share of epsilon). Nothing here has looked at a
job, apart from the names and types of the columns and, where no period was given, the weeks of the first and the last job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from stormpetrel.synth.private.grids import (
    GAP_GRID,
    LIMIT_GRID,
    MEMORY_GRID,
    NUMBER_GRID,
    RUNTIME_GRID,
    SIZE_GRID,
    STATES,
    WHOLE_GRID,
    Grid,
    Ints,
    Words,
)
from stormpetrel.synth.workload import SIZES, STATE, TIMES, WHERE

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
# Shares of the budget. Who is there and how much decides on everything else; the columns beside these share one weight.
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

    columns: tuple[str, ...]  # generated beside the time and the user, in order
    types: Mapping[str, str]  # of columns that no vocabulary knows: whole, number or text
    most_jobs: int
    most_sessions: int
    begin_s: float  # Monday of the first week
    weeks: int
    has_users: bool  # false where each job counts as a user of its own
    has_clock: bool = True
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> its public words
    classes: int = CLASSES  # of users by activity that are told apart: CLASSES, or 1 where the noise would hide them

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

    def grid(self, name: str) -> Grid | Words:
        """The cells of a column."""
        if name in _GRIDS:
            return _GRIDS[name]
        if name in WHERE or self.types.get(name) == "text":
            return Words(name, tuple(self.names.get(name, ())))
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
            "names": {name: list(words) for name, words in self.names.items()},
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
            names={str(name): tuple(map(str, words)) for name, words in record["names"].items()},
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


_GRIDS: Final[dict[str, Grid | Words]] = {
    "cores": SIZE_GRID,
    "nodes": SIZE_GRID,
    "gpus": SIZE_GRID,
    "mem_bytes": MEMORY_GRID,
    LIMIT: LIMIT_GRID,
    RUNTIME: RUNTIME_GRID,
    STATE: Words(STATE, STATES),
}

"""The history of more jobs than fit in memory, in shards that are swept apart from each other and piece by piece.

pieces of a log, in order -> ShardSweep.step -> the readings of one shard, row by row; `joined_readings` puts the shards together.

What a job reads of a space is what became of jobs with the same key, and for rates also of those of the wider space that they
lean on: of the user for all keys that contain the user, and of the site for all. So the spaces of a user go together, and are
divided by a hash of the user; each other space is a shard of its own; and every shard counts the ends of all jobs for the rate of
the site, for which it needs a few columns of them. The readings of the site itself, and those of the nodes, which jobs of all
users share, are one shard that is not divided. All of it is the sweep of `history`, to the last bit: events keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.history import History, Matrix, Readings, event_times
from stormpetrel.jobs.history.keys import SIZE_COLUMNS, SPACES
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.records.jobs import JOB_SCHEMA

ROW: Final = "_row"  # the place of a job in the order in which jobs are taken in
PART: Final = "_part"  # the part of the users that a job belongs to
_SITE: Final = "site"
_USER: Final = "user"
_SEED: Final = 39
_SIMILARITY: Final = "similarity."
_NODES: Final = "nodes."
# Of jobs of other parts: when and how they ended, which is what the rate of the site is made of.
_ENDS: Final = (ROW, "cluster", "submit_time", "start_time", "end_time", "state", "elapsed_s", "time_limit_s", "restart")
_NAMES: Final = ("job_name", "script_path", "work_dir", "extra")  # what an application is told by
_COLUMNS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    _SITE: ("node_list",),
    "account": ("account",),
    "partition": ("partition", "qos"),
    "family": _NAMES,
    "shape": SIZE_COLUMNS,
    "profile": ("profile",),
    _USER: ("user", "partition", "req_mem_bytes", *_NAMES, *SIZE_COLUMNS),
}
# All columns that any shard reads.
SHARD_COLUMNS: Final = tuple(dict.fromkeys([*_ENDS, *(name for names in _COLUMNS_OF.values() for name in names)]))


@dataclass(frozen=True, slots=True)
class Shard:
    """Some spaces, of some of the users where they contain the user."""

    family: str
    part: int = 0
    parts: int = 1

    @property
    def name(self) -> str:
        """What it is called: `user-03`."""
        return self.family if self.parts == 1 else f"{self.family}-{self.part:02}"

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces that are read."""
        if self.family != _USER:
            return (self.family,)
        return tuple(space.name for space in SPACES if _USER in space.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a job that it needs."""
        return tuple(dict.fromkeys([*_ENDS, PART, *_COLUMNS_OF[self.family]]))


def shards_of(parts: int) -> tuple[Shard, ...]:
    """All shards, the longest first; users are divided into so many parts."""
    others = [space.name for space in SPACES if _USER not in space.columns and space.name != _SITE]
    return (*(Shard(_USER, part, parts) for part in range(parts)), Shard(_SITE), *(Shard(name) for name in others))


def part_of_user(parts: int) -> pl.Expr:
    """The part that each job belongs to; jobs without a user share a history, and so a part."""
    return (pl.col("user").hash(_SEED) % parts).cast(pl.UInt16).alias(PART)


@dataclass(frozen=True, slots=True)
class ShardReadings:
    """What a shard found at one moment: a row of `values` for each job of `rows`."""

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    values: Matrix


class ShardSweep:
    """Sweeps one shard, piece after piece; jobs that go on are carried along."""

    def __init__(self, shard: Shard, failure_states: Sequence[str], dropped_states: Sequence[str], stand_in: Mapping[str, str]):
        from stormpetrel.jobs.history.kernel import NODE_READINGS, SIMILARITY

        wanted = {_SITE, *shard.spaces}
        self.shard = shard
        self._history = History(
            tuple(failure_states),
            tuple(dropped_states),
            stand_in=dict(stand_in),
            spaces=tuple(space for space in SPACES if space.name in wanted),
            unread=() if shard.family == _SITE else (_SITE,),
        )
        self._similarity_names = tuple(f"{_SIMILARITY}{name}" for name in SIMILARITY) if shard.family == _USER else ()
        self._node_names = tuple(f"{_NODES}{name}" for name in NODE_READINGS) if shard.family == _SITE else ()
        self._own: pl.DataFrame | None = None
        self._others: pl.DataFrame | None = None
        self._similarity = np.empty((0, len(SIMILARITY)), np.float32)

    def step(
        self, piece: pl.DataFrame, *, since: float, until: float, moments: Collection[Moment]
    ) -> Iterator[tuple[Moment, ShardReadings]]:
        """Take in what happened from `since` to before `until`; `piece` holds the jobs submitted in that time, in their order."""
        is_own = (pl.col(PART) == self.shard.part) if self.shard.parts > 1 else pl.lit(True)
        own = _joined(self._own, piece.filter(is_own))
        others = _joined(self._others, piece.filter(~is_own).select(_ENDS))
        happened = np.concatenate([event_times(own), event_times(others)])
        if others.height:
            happened[own.height :, :-1] = np.nan  # of the others only the end counts
        with np.errstate(invalid="ignore"):
            later: NDArray[np.bool_] = np.greater_equal(happened, until)
            due: NDArray[np.bool_] = np.greater_equal(happened, since) & ~later
        readings = self._readings(own, others, happened, due, moments)
        readings.similarity[: len(self._similarity)] = self._similarity  # as it was when they were submitted
        number = own[ROW].to_numpy()
        for moment in moments:
            rows = np.flatnonzero(due[: own.height, MOMENTS.index(moment)])
            yield moment, self._at(readings, moment, rows, number)
        goes_on: NDArray[np.bool_] = np.asarray(later.any(axis=1))
        self._similarity = readings.similarity[goes_on[: own.height]]
        self._own, self._others = own.filter(goes_on[: own.height]), others.filter(goes_on[own.height :])

    def _readings(
        self,
        own: pl.DataFrame,
        others: pl.DataFrame,
        happened: NDArray[np.float64],
        due: NDArray[np.bool_],
        moments: Collection[Moment],
    ) -> Readings:
        both = pl.concat([own, others], how="diagonal").drop(PART)
        lacking = [
            pl.lit(None, JOB_SCHEMA[name]).alias(name) for name in SHARD_COLUMNS if name in JOB_SCHEMA and name not in both
        ]
        arrays = self._history._arrays(both.with_columns(lacking))
        arrays.codes[own.height :, 1:] = -1
        job, kind = np.nonzero(due)
        time, number = happened[job, kind], both[ROW].to_numpy()
        order = np.lexsort((number[job], kind, time))  # as one sweep has it: at equal times in the order of the log
        return self._history._run(kind[order].astype(np.int8), job[order], time[order], arrays, moments, own.height)

    def _at(self, readings: Readings, moment: Moment, rows: NDArray[np.intp], number: NDArray[np.int64]) -> ShardReadings:
        names, parts = [*readings.names], [readings.at[moment][rows]]
        if self._similarity_names:
            names += self._similarity_names
            parts.append(readings.similarity[rows])
        if self._node_names and moment is not Moment.SUBMIT:
            names += self._node_names
            parts.append(readings.nodes[moment][rows])
        return ShardReadings(tuple(names), number[rows], np.concatenate(parts, axis=1))


def joined_readings(moment: Moment, height: int, shards: Collection[ShardReadings]) -> tuple[Readings, NDArray[np.bool_]]:
    """The readings of all shards together, of so many jobs, and which of these came to the moment; rows count from the first."""
    from stormpetrel.jobs.history.kernel import NODE_READINGS, SIMILARITY

    whole = History()
    place = {name: column for column, name in enumerate(whole.names)}
    at = np.full((height, len(place)), np.nan, np.float32)
    similarity = np.full((height, len(SIMILARITY)), np.nan, np.float32)
    nodes = np.full((height, len(NODE_READINGS)), np.nan, np.float32)
    came = np.zeros(height, dtype=bool)
    for shard in shards:
        for column, name in enumerate(shard.names):
            values: NDArray[Any] = shard.values[:, column]
            if name.startswith(_SIMILARITY):
                similarity[shard.rows, SIMILARITY.index(name.removeprefix(_SIMILARITY))] = values
            elif name.startswith(_NODES):
                nodes[shard.rows, NODE_READINGS.index(name.removeprefix(_NODES))] = values
            else:
                at[shard.rows, place[name]] = values
        came[shard.rows] = True
    return Readings(whole.names, similarity, {moment: at}, {moment: nodes}), came


def _joined(carried: pl.DataFrame | None, fresh: pl.DataFrame) -> pl.DataFrame:
    return fresh if carried is None else pl.concat([carried, fresh])

"""Histograms of a log in which no user counts for more than a stated bound.

Workload + Layout -> count_tables -> one array of counts per table.

Why the bounds hold. Let a log D' be D without all jobs of one user.

1. What is done before counting looks at one user at a time: his jobs within the public period, in order; his sessions (a gap of
   more than an hour ends one); at most S of them; at most M jobs of those. Which ones is decided by a hash of a salt, his name
   and the place of the session or job among his own. So what is kept of every other user is the same in D and in D'.
2. Every user adds 1 to one cell of `users` and to one of `spans`; every kept session adds 1 to one cell of `starts` and of
   `shapes`; every kept job adds at most 1 to one cell of each other table.
3. So the counts of D and D' differ, summed over all cells of a table, by at most 1, S or M: its `bound`.
4. Discrete Laplace noise of scale bound ÷ (epsilon × share) on every cell makes a table epsilon × share differentially private
   (Ghosh, Roughgarden, Sundararajan 2009): the probability of any noisy table changes by at most exp(difference ÷ scale). The
   shares add up to 1, so all tables together are epsilon-private (composition). Delta is 0.
5. Cells are fixed by public grids; no cell is made or left out because of the data. What is made of the noisy counts later is
   post-processing, which cannot undo this.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.arrays import Flags, Floats, Ints
from stormpetrel.synth.private.layout import (
    ACTIVITY_BINS,
    AT_LIMIT,
    COLUMN,
    GAP_EDGES_S,
    GAP_GRID,
    GAPS,
    HOURS,
    LIMIT,
    LIMIT_EDGES_S,
    LIMIT_GROUPS,
    PACE_EDGES_S,
    REPEATS,
    RUNTIME,
    RUNTIME_GRID,
    SHAPES,
    SIZE_BINS,
    SIZE_EDGES,
    SIZE_GROUPS,
    SPAN_BINS,
    SPANS,
    STARTS,
    USERS,
    Categories,
    Grid,
    Layout,
)
from stormpetrel.synth.workload import STATE, SUBMIT

PAUSE_S: Final = 3600.0  # a longer gap between two jobs of a user ends a session
WEEK_S: Final = 7 * 86_400.0
NEARLY: Final = 0.999  # of the limit from which on a run time has reached it
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """Jobs by user and time, and which of them are counted."""

    jobs: pl.DataFrame
    at_s: Floats  # (jobs,) since the beginning of the period
    user: Ints  # (jobs,)
    session: Ints  # (jobs,)
    gap_s: Floats  # (jobs,) since the job before of the same session; NaN for its first
    sessions: Flags  # (sessions,) counted
    counted: Flags  # (jobs,) counted


def count_tables(jobs: pl.DataFrame, layout: Layout, salt: int) -> dict[str, Ints]:
    """The true counts of every table: they must not leave the process without noise."""
    kept = _keep(jobs, layout, salt)
    if not kept.jobs.height:
        return {name: np.zeros(table.shape, np.int64) for name, table in layout.tables().items()}
    size = np.bincount(kept.user)  # (users,) jobs
    activity = np.minimum(np.log2(np.maximum(size, 1)) // 2, ACTIVITY_BINS - 1).astype(np.int64)
    group = layout.class_of(activity)  # (users,)
    first, last = (np.flatnonzero(np.diff(kept.user, **edge)) for edge in ({"prepend": -1}, {"append": -1}))
    span = np.minimum(np.log2(1 + (kept.at_s[last] - kept.at_s[first]) // WEEK_S), SPAN_BINS - 1).astype(np.int64)
    places: dict[str, tuple[Ints, ...]] = {USERS: (activity,), SPANS: (group, span)}
    places |= _session_places(kept, group) | _job_places(kept, group[kept.user], layout)
    return {name: _histogram(table.shape, places[name]) for name, table in layout.tables().items()}


def gap_class(gap_s: Floats) -> Ints:
    """0 where there is no gap, then rising with it."""
    return np.where(np.isnan(gap_s), 0, 1 + np.searchsorted(GAP_EDGES_S, np.nan_to_num(gap_s), side="right")).astype(np.int64)


def size_group(values: Floats) -> Ints:
    """Which group of sizes; the last one where it is missing."""
    return _grouped(values, SIZE_EDGES, SIZE_GROUPS)


def limit_group(values: Floats) -> Ints:
    """Which group of limits; the last one where it is missing."""
    return _grouped(values, LIMIT_EDGES_S, LIMIT_GROUPS)


def end_class(runtime_cell: Ints) -> Ints:
    """How a job came to its end, as the table of states tells them apart."""
    minute = int(RUNTIME_GRID.cells(np.array([MINUTE_S]))[0])
    short = np.where(runtime_cell < minute, 2, 3)
    return np.where(runtime_cell == RUNTIME_GRID.missing, 0, np.where(runtime_cell == AT_LIMIT, 1, short)).astype(np.int64)


def _grouped(values: Floats, edges: tuple[float, ...], groups: int) -> Ints:
    bins = np.searchsorted(edges, np.nan_to_num(values), side="right")
    return np.where(np.isnan(values), groups - 1, bins).astype(np.int64)


def _keep(jobs: pl.DataFrame, layout: Layout, salt: int) -> _Kept:
    """Sessions of each user, and the part of them that is counted."""
    begin_us = round(layout.begin_s * 1e6)
    at = pl.col(SUBMIT).dt.epoch("us") - begin_us
    who = pl.col("user") if layout.has_users else pl.int_range(pl.len()).cast(pl.String)
    jobs = jobs.with_columns(_at=at, _user=who).filter(
        pl.col("_user").is_not_null() & (pl.col("_at") >= 0) & (pl.col("_at") < int(layout.weeks * WEEK_S * 1e6))
    )
    jobs = jobs.sort("_user", "_at", maintain_order=True)
    names = jobs["_user"].rle_id().to_numpy().astype(np.int64)  # (jobs,)
    at_s = jobs["_at"].to_numpy() / 1e6
    first = np.diff(names, prepend=-1) != 0
    gap = np.diff(at_s, prepend=0.0)
    starts = first | (gap > PAUSE_S)
    session = np.cumsum(starts) - 1
    owner = names[starts]  # (sessions,)
    keys = _user_keys(jobs["_user"].unique(maintain_order=True).to_list(), salt)
    sessions = _some(owner, keys, layout.most_sessions, 1)
    counted = np.zeros(len(names), bool)
    inside = np.flatnonzero(sessions[session]) if len(session) else np.zeros(0, np.int64)
    counted[inside[_some(names[inside], keys, layout.most_jobs, 2)]] = True
    return _Kept(jobs, at_s, names, session, np.where(starts, np.nan, gap), sessions, counted)


def _user_keys(users: list[str], salt: int) -> npt.NDArray[np.uint64]:
    """(users,) a number for each that depends on the salt and on nobody else."""
    key = (salt % 2**64).to_bytes(8, "big")
    hashes = (hashlib.blake2b(user.encode(errors="replace"), digest_size=8, key=key).digest() for user in users)
    return np.array([int.from_bytes(value, "big") for value in hashes], dtype=np.uint64)


def _some(owner: Ints, keys: npt.NDArray[np.uint64], most: int, step: int) -> Flags:
    """(items,) true for `most` items of each owner at random; items come sorted by owner."""
    if not len(owner):
        return np.zeros(0, bool)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    first = np.repeat(begins, np.diff(np.append(begins, len(owner))))
    place = np.arange(len(owner)) - first
    lots = _mixed(keys[owner] + _mixed(np.uint64(step) * np.uint64(1 << 40) + place.astype(np.uint64)))
    order = np.lexsort((place, lots, owner))
    chosen = np.zeros(len(owner), bool)
    chosen[order[place < most]] = True  # sorted by owner again: the same places within each
    return chosen


def _mixed(values: Any) -> Any:
    """splitmix64, so that neighbours have nothing to do with each other."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _session_places(kept: _Kept, group: Ints) -> dict[str, tuple[Ints, ...]]:
    begins = np.flatnonzero(np.diff(kept.session, prepend=-1))
    size = np.minimum(np.log2(np.bincount(kept.session)), SIZE_BINS - 1).astype(np.int64)
    hour = (kept.at_s[begins] // 3600.0).astype(np.int64) % HOURS
    some = kept.sessions
    return {STARTS: (hour[some],), SHAPES: (group[kept.user[begins]][some], size[some], _paces(kept)[some])}


def _job_places(kept: _Kept, group: Ints, layout: Layout) -> dict[str, tuple[Ints, ...]]:
    """Cells of the counted jobs; whatever is "before" is the same user's job before, counted or not."""
    some, jobs = kept.counted, kept.jobs
    own_first = np.diff(kept.user, prepend=-1) != 0
    pace = _paces(kept)[kept.session]
    gap, before = gap_class(kept.gap_s), gap_class(np.append(np.nan, kept.gap_s[:-1]))
    inner = some & (gap > 0)
    cells = {name: _cells(jobs[name], layout.grid(name)) for name in layout.columns if name != RUNTIME}
    if RUNTIME in layout.columns:
        cells[RUNTIME] = _runtime_cells(jobs)
    same = _again(jobs, layout.requests, own_first) * 2
    if RUNTIME in cells:
        same = same + (np.diff(cells[RUNTIME], prepend=-1) == 0) * ~own_first
    lead = size_group(_numbers(jobs, layout.lead)) if layout.lead else np.full(jobs.height, SIZE_GROUPS - 1)
    limit = limit_group(_numbers(jobs, LIMIT)) if LIMIT in layout.columns else np.full(jobs.height, LIMIT_GROUPS - 1)
    within: dict[str, tuple[Ints, ...]] = {LIMIT: (group, lead), RUNTIME: (group, limit)}
    if layout.lead:
        within[layout.lead] = (group,)
    if STATE in cells:
        within[STATE] = (end_class(cells[RUNTIME]) if RUNTIME in cells else np.zeros(jobs.height, np.int64),)
    columns = {COLUMN + name: (*(axis[some] for axis in within.get(name, (lead,))), at[some]) for name, at in cells.items()}
    gaps = GAP_GRID.cells(np.nan_to_num(kept.gap_s))
    return {GAPS: (pace[inner], before[inner], gaps[inner]), REPEATS: (gap[some], same[some].astype(np.int64)), **columns}


def _paces(kept: _Kept) -> Ints:
    """(sessions,) 0 for a session of one job, then rising with the mean gap."""
    jobs = np.bincount(kept.session)
    logs = np.bincount(kept.session, np.nan_to_num(np.log1p(kept.gap_s)))
    mean_s = np.expm1(logs / np.maximum(jobs - 1, 1))
    return np.where(jobs > 1, 1 + np.searchsorted(PACE_EDGES_S, mean_s, side="right"), 0).astype(np.int64)


def _again(jobs: pl.DataFrame, columns: tuple[str, ...], own_first: Flags) -> Ints:
    """(jobs,) 1 where the same is asked for as in the user's job before."""
    if not columns:
        return np.zeros(jobs.height, np.int64)
    same = jobs.select(pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in columns)).to_series()
    return (same.to_numpy() & ~own_first).astype(np.int64)


def _numbers(jobs: pl.DataFrame, name: str) -> Floats:
    return jobs[name].cast(pl.Float64).to_numpy().astype(np.float64)


def _cells(column: pl.Series, grid: Grid | Categories) -> Ints:
    if isinstance(grid, Categories):
        return grid.texts(column.cast(pl.String))
    return grid.cells(column.cast(pl.Float64).to_numpy().astype(np.float64))


def _runtime_cells(jobs: pl.DataFrame) -> Ints:
    runtime = _numbers(jobs, RUNTIME)
    cells = RUNTIME_GRID.cells(runtime)
    if LIMIT not in jobs.columns:
        return cells
    limit = _numbers(jobs, LIMIT)
    reached = (runtime >= NEARLY * limit) & (limit > 0)  # false where either is missing
    return np.where(reached, AT_LIMIT, cells).astype(np.int64)


def _histogram(shape: tuple[int, ...], places: tuple[Ints, ...]) -> Ints:
    flat = np.ravel_multi_index(places, shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(np.int64)

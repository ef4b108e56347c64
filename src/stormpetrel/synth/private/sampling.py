"""New jobs from the chances of a private model: users, their sessions, their jobs.

Chances + Layout -> Period (the sessions of one period of the log) -> chunks of jobs; nothing here has seen the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numba import njit

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.synth.private.histograms import (
    PAUSE_S,
    WEEK_S,
    end_class,
    gap_class,
    limit_group,
    size_group,
)
from stormpetrel.synth.private.layout import (
    AT_LIMIT,
    COLUMN,
    GAP_GRID,
    GAPS,
    HOURS,
    LIMIT,
    PACES,
    REPEATS,
    RUNTIME,
    RUNTIME_GRID,
    SHAPES,
    SIZE_BINS,
    SIZE_GROUPS,
    SPANS,
    STARTS,
    Categories,
    Grid,
    Layout,
)
from stormpetrel.synth.private.learning import Chances
from stormpetrel.synth.workload import STATE

JOBS_AT_ONCE: Final = 50_000
MOST_PERIOD_JOBS: Final = 20_000_000  # of one period, whatever the noise says: they are planned in memory
MOST_PERIOD_USERS: Final = 5_000_000
USER: Final = "synuser"


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """Users: the class of each, how many jobs in a period, and for how many weeks."""

    group: Ints
    jobs: Ints
    weeks: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Sessions of one period by their beginning."""

    user: Ints
    group: Ints
    jobs: Ints
    pace: Ints
    start_s: Floats


def draw_people(chances: Chances, layout: Layout, factor: float, rng: np.random.Generator) -> People:
    """As many users as were counted, times a factor."""
    expected = chances.users * factor
    mean_jobs = np.array([_mean_between(4.0**place, 4.0 ** (place + 1)) for place in range(len(expected))])
    too_many = max(expected @ mean_jobs / MOST_PERIOD_JOBS, expected.sum() / MOST_PERIOD_USERS, 1.0)
    often = np.floor(expected / too_many + rng.random(len(expected))).astype(np.int64)
    if not often.sum():
        often[int(np.argmax(expected))] = 1
    activity = np.repeat(np.arange(len(often)), often)  # (users,)
    group = layout.class_of(activity)
    span = _draw(chances.tables[SPANS], rng, group)
    weeks = np.floor(2.0 ** (span + rng.random(len(span)))).astype(np.int64)
    jobs = _between(4.0**activity, 4.0 ** (activity + 1), rng) if layout.has_users else np.ones(len(activity), np.int64)
    return People(group, jobs, np.clip(weeks, 1, layout.weeks))


def draw_sessions(people: People, chances: Chances, layout: Layout, rng: np.random.Generator) -> Sessions:
    """The sessions of all users in one period; a user is there for some weeks on end."""
    shapes = chances.tables[SHAPES]  # (classes, sizes × paces)
    sizes = np.array([_mean_between(2.0**place, 2.0 ** (place + 1)) for place in range(SIZE_BINS)])
    usual = shapes @ np.repeat(sizes, PACES)  # (classes,) jobs of a session
    count = np.maximum(np.floor(people.jobs / usual[people.group] + rng.random(len(people.jobs))), 1).astype(np.int64)
    user = np.repeat(np.arange(len(count)), count)  # (sessions,)
    shape = _draw(shapes, rng, people.group[user])
    size = _between(2.0 ** (shape // PACES), 2.0 ** (shape // PACES + 1), rng)
    size = np.minimum(size, people.jobs[user])
    first = np.floor(rng.random(len(count)) * (layout.weeks - people.weeks + 1))
    week = np.floor(first[user] + rng.random(len(user)) * people.weeks[user])
    hour = _draw(chances.tables[STARTS][None], rng, np.zeros(len(user), np.int64)) % HOURS
    start = np.floor(week * WEEK_S + (hour + rng.random(len(user))) * 3600.0)
    order = np.argsort(start, kind="stable")
    return Sessions(user[order], people.group[user][order], size[order], (shape % PACES)[order], start[order])


def draw_jobs(
    sessions: Sessions, chances: Chances, layout: Layout, rng: np.random.Generator
) -> Iterator[tuple[pl.DataFrame, float]]:
    """Jobs with `_at` in seconds of the period, not in order, and the second before which no further job will come."""
    jobs_until = np.cumsum(sessions.jobs)
    pieces = max(1, int(jobs_until[-1]) // JOBS_AT_ONCE) if len(jobs_until) else 0
    edges = np.unique(np.searchsorted(jobs_until, np.arange(1, pieces) * JOBS_AT_ONCE) + 1)
    for part in np.split(np.arange(len(jobs_until)), edges[edges < len(jobs_until)]):
        following = part[-1] + 1
        until = sessions.start_s[following] if following < len(jobs_until) else layout.weeks * WEEK_S
        some = Sessions(*(getattr(sessions, name)[part] for name in ("user", "group", "jobs", "pace", "start_s")))
        yield _jobs_of(some, chances, layout, rng), float(until)


def _jobs_of(sessions: Sessions, chances: Chances, layout: Layout, rng: np.random.Generator) -> pl.DataFrame:
    count = int(sessions.jobs.sum())
    session = np.repeat(np.arange(len(sessions.jobs)), sessions.jobs)  # (jobs,)
    cell_class = gap_class(np.array([0.0, *GAP_GRID.edges[1:]]))
    cells = _walk(sessions.jobs, sessions.pace, np.cumsum(chances.tables[GAPS], -1), cell_class, rng.random(count))
    begins = np.cumsum(sessions.jobs) - sessions.jobs
    gap = GAP_GRID.values(np.maximum(cells, 0), rng.random(count), below=np.full(count, PAUSE_S + 1))
    gap[begins] = np.nan
    passed = np.cumsum(np.nan_to_num(gap))
    at = sessions.start_s[session] + passed - passed[begins][session]
    order = np.argsort(sessions.user[session], kind="stable")  # each user's jobs, session after session
    user = sessions.user[session][order]
    columns = _attributes(user, sessions.group[session][order], gap[order], chances, layout, rng)
    who = [USER + pl.Series("user", user + 1).cast(pl.String).str.zfill(4)] if layout.has_users else []
    return pl.DataFrame([pl.Series("_at", at[order]), *(column.alias("user") for column in who), *columns])


@njit(cache=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _walk(sizes: Any, pace: Any, chances: Any, cell_class: Any, uniform: Any) -> Any:
    """(jobs,) the cell of the gap before each job, given the gap before that; -1 for the first of a session."""
    cells = np.empty(len(uniform), np.int64)
    row = 0
    for session in range(len(sizes)):
        before = 0
        for place in range(sizes[session]):
            cells[row] = -1
            if place > 0:
                drawn = np.searchsorted(chances[pace[session], before], uniform[row], side="right")
                cells[row] = min(drawn, chances.shape[2] - 1)
                before = cell_class[cells[row]]
            row += 1
    return cells


def _attributes(
    user: Ints, group: Ints, gap: Floats, chances: Chances, layout: Layout, rng: np.random.Generator
) -> list[pl.Series]:
    """Columns of jobs that come user by user, in order: asked for again or anew, and what becomes of them."""
    first = np.diff(user, prepend=-1) != 0
    again = _draw(chances.tables[REPEATS], rng, gap_class(gap))
    source = _last_true(first | (again < 2))  # (jobs,) the job whose request this one repeats
    numbers: dict[str, Floats] = {}
    columns: dict[str, pl.Series] = {}
    lead = np.full(len(user), SIZE_GROUPS - 1)
    for name in sorted(layout.requests, key=lambda name: name != layout.lead):
        within = {layout.lead: (group,), LIMIT: (group, lead)}.get(name, (lead,))
        cells = _draw(chances.tables[COLUMN + name], rng, *within)[source]
        columns[name], values = _values(name, cells, layout.grid(name), rng, source)
        numbers[name] = values
        if name == layout.lead:
            lead = size_group(values)
    limit = numbers.get(LIMIT, np.full(len(user), np.nan))
    cell = np.full(len(user), RUNTIME_GRID.missing)
    if RUNTIME in layout.columns:
        fresh = _draw(chances.tables[COLUMN + RUNTIME], rng, group, limit_group(limit))
        cell = fresh[_last_true(first | (again % 2 == 0))]
        cell = np.where((cell == AT_LIMIT) & np.isnan(limit), fresh, cell)
        columns[RUNTIME] = _runtimes(cell, limit, rng)
    if STATE in layout.columns:
        states = layout.grid(STATE)
        assert isinstance(states, Categories)
        columns[STATE] = states.words(_draw(chances.tables[COLUMN + STATE], rng, end_class(cell)))
    return [columns[name].alias(name) for name in layout.columns]


def _values(name: str, cells: Ints, grid: Grid | Categories, rng: np.random.Generator, source: Ints) -> tuple[pl.Series, Floats]:
    """A column, as it is and as numbers; jobs that repeat a request have its very values."""
    if isinstance(grid, Categories):
        return grid.words(cells), cells.astype(np.float64)
    values = grid.values(cells, rng.random(len(cells))[source])
    column = pl.Series(name, values, nan_to_null=True)
    return (column.cast(pl.Int64) if grid.whole and name != LIMIT else column), values


def _runtimes(cell: Ints, limit: Floats, rng: np.random.Generator) -> pl.Series:
    """Run times, none of them beyond its limit."""
    uniform = rng.random(len(cell))
    most = np.where(np.isnan(limit), np.inf, limit)
    value = RUNTIME_GRID.values(np.minimum(cell, RUNTIME_GRID.missing), uniform, below=most)
    value = np.where(value >= most, np.floor(most * uniform), value)  # its cell lies beyond the limit
    value = np.where(cell == AT_LIMIT, limit, value)
    return pl.Series(RUNTIME, value, nan_to_null=True)


def _draw(chances: Floats, rng: np.random.Generator, *rows: Ints) -> Ints:
    """(n,) a cell for each row of a table, by its chances."""
    heights = np.cumsum(chances.reshape(-1, chances.shape[-1]), axis=1)  # (rows, cells)
    row = np.ravel_multi_index(rows, chances.shape[:-1])
    # All rows on one staircase: row r climbs from r to r + 1.
    stairs = (heights / heights[:, -1:] + np.arange(len(heights))[:, None]).ravel()
    cells = np.searchsorted(stairs, row + rng.random(len(row)), side="right") - row * chances.shape[-1]
    return np.asarray(np.clip(cells, 0, chances.shape[-1] - 1), dtype=np.int64)


def _last_true(flags: Any) -> Ints:
    """(n,) the place of the last true flag up to each place; the first flag is true."""
    return np.asarray(np.maximum.accumulate(np.where(flags, np.arange(len(flags)), 0)), dtype=np.int64)


def _between(low: Any, high: Any, rng: np.random.Generator) -> Ints:
    """(n,) whole numbers from low to below high, uniform in the logarithm."""
    drawn = np.floor(low * (high / low) ** rng.random(len(low)))
    return np.asarray(np.minimum(drawn, high - 1), dtype=np.int64)


def _mean_between(low: float, high: float) -> float:
    """The mean of `_between`: each whole number by its share of the logarithm, in closed form where there are many."""
    if high > 4096:
        return float((high - low) / np.log(high / low) - 0.5)
    values = np.arange(low, high)
    return float(values @ (np.log1p(1 / values) / np.log(high / low)))


__all__ = ["People", "Sessions", "draw_jobs", "draw_people", "draw_sessions"]

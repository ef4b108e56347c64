"""From counts to a private model: noise once, then nothing but arithmetic on the noisy counts.

jobs + Layout + epsilon -> noisy_tables -> counts with noise; counts -> settle -> Chances, which the sampler draws from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.states import JobState
from stormpetrel.synth.private.histograms import count_tables
from stormpetrel.synth.private.layout import (
    AT_LIMIT,
    COLUMN,
    GAPS,
    LIMIT,
    LIMIT_GRID,
    LIMIT_GROUPS,
    PACES,
    REPEATS,
    RUNTIME,
    SHAPES,
    SIZE_BINS,
    SPANS,
    STARTS,
    USERS,
    Categories,
    Layout,
)
from stormpetrel.synth.private.noise import Noise
from stormpetrel.synth.workload import SIZES, STATE

# The noise of a table has the energy 2 × cells × scale². Counts that differ from what is expected by a third of their total have
# a tenth of that total's energy, and more than half of the noise goes away with what is negative. Chosen on KTH.
LEAN: Final = 8.0
CLEARLY: Final = 2.0  # scales of noise above which a bin of busy users is believed


@dataclass(frozen=True, slots=True, eq=False)
class Chances:
    """What the sampler draws from; rows of `tables` add up to 1."""

    users: Floats  # (activity bins,) how many
    tables: Mapping[str, Floats]  # by name, without `users`


def noisy_tables(jobs: pl.DataFrame, layout: Layout, epsilon: Fraction, noise: Noise) -> dict[str, Ints]:
    """The counts of every table with noise on every cell: all that is kept of the log."""
    counts = count_tables(jobs, layout, noise.salt())
    return {
        name: counts[name] + noise.draw(table.scale(epsilon), int(np.prod(table.shape))).reshape(table.shape)
        for name, table in layout.tables().items()
    }


def settle(counts: Mapping[str, Ints], layout: Layout, epsilon: Fraction) -> Chances:
    """Counts that no log can have, made into ones that a log could have, and those into probabilities."""
    scales = {name: float(table.scale(epsilon)) for name, table in layout.tables().items()}
    totals = _totals(counts, layout, scales)
    tables: dict[str, Floats] = {}
    for name, noisy in counts.items():
        # A session's size and pace are drawn together: one axis.
        shape = (noisy.shape[0], -1) if name == SHAPES else noisy.shape
        possible, expected = _possible(name, layout).reshape(shape), expected_shares(name, layout)
        tables[name] = _conditional(noisy.reshape(shape), totals[name], scales[name], possible, expected)
    tables[STARTS] = _rhythm(counts[STARTS], totals[STARTS], scales[STARTS])
    users = _believed(counts[USERS], totals[USERS], scales[USERS])
    return Chances(users, {name: table for name, table in tables.items() if name != USERS})


def _totals(counts: Mapping[str, Ints], layout: Layout, scales: Mapping[str, float]) -> dict[str, float]:
    """How many users, sessions and jobs are counted: tables of the same things agree on it, the precise ones count for more."""
    kinds = {USERS: (USERS, SPANS), STARTS: (STARTS, SHAPES), REPEATS: (REPEATS, *(COLUMN + name for name in layout.columns))}
    totals: dict[str, float] = {}
    for names in kinds.values():
        precision = np.array([1 / (counts[name].size * max(scales[name], 1e-6) ** 2) for name in names])
        mean = float(np.average([float(counts[name].sum()) for name in names], weights=precision))
        totals |= dict.fromkeys(names, max(mean, 1.0))
    totals[GAPS] = min(max(float(counts[GAPS].sum()), 1.0), totals[REPEATS])  # a session's first job has no gap
    return totals


def _possible(name: str, layout: Layout) -> Any:
    """(shape) false for cells that no job can be in."""
    possible = np.ones(layout.tables()[name].shape, bool)
    if name == SHAPES:
        possible[:, 0, 1:] = False  # one job has no gap
        possible[:, 1:, 0] = False
    if name == GAPS:
        possible[0] = False
    if name == COLUMN + RUNTIME:
        possible[:, LIMIT_GROUPS - 1 if LIMIT in layout.columns else slice(None), AT_LIMIT] = False
    return possible


def _projected(counts: Any, total: float, possible: Any) -> Floats:
    """The nearest counts (least squares) that are not negative and add up to a total: all lose the same, small ones all."""
    values = counts[possible].astype(np.float64)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    lost = excess[np.flatnonzero(falling > excess)[-1]]
    settled = np.zeros(counts.shape)
    settled[possible] = np.maximum(values - lost, 0.0)
    return settled


def _conditional(counts: Ints, total: float, scale: float, possible: Any, expected: Floats) -> Floats:
    """Probabilities along the last axis; a row counts for as much as its total stands out of its noise.

    The rest comes from the sum over the first axis, from that over the first two and so on, and in the end from what is
    expected of any log.
    """
    cells = counts.shape[-1]
    chances = expected
    for axes in range(counts.ndim - 1, -1, -1):
        over = tuple(range(axes))
        part = _projected(counts.sum(axis=over), total, possible.any(axis=over))  # (later axes, cells)
        chances = part + _lean(part.sum(-1, keepdims=True), cells * counts.size / part.size, scale) * chances
        chances = np.where(possible.any(axis=over), chances, 0.0) + 1e-12
        chances = chances / chances.sum(-1, keepdims=True)
    return chances


def _lean(total: Any, cells: float, scale: float) -> Any:
    """How many jobs what is expected counts for: the energy of the noise ÷ that of what the counts may have to say (Stein)."""
    return 1.0 + LEAN * cells * scale**2 / np.maximum(total, 1.0)


def _rhythm(counts: Ints, total: float, scale: float) -> Floats:
    """(168,) the hours of the week, leaning on day × hour of day where there is much noise, and that on an even day."""
    week = counts.reshape(7, 24)
    lean = _lean(np.array(total), 168.0, scale)  # the same for both: 7 cells of 24 summed, 24 of 7
    days, hours = (
        _projected(week.sum(axis), total, np.ones(cells, bool)) + lean / cells for axis, cells in ((1, 7), (0, 24))
    )  # (7,), (24,)
    product = np.outer(days / days.sum(), hours / hours.sum())
    chances = _projected(week, total, np.ones((7, 24), bool)) + lean * product
    return np.asarray(chances / chances.sum()).ravel()


def _believed(counts: Ints, total: float, scale: float) -> Floats:
    """(bins,) users by activity. Beyond the first bin above the fullest one that noise may have filled, nobody is believed.

    One user too many with a million jobs would be most of the log.
    """
    settled = _projected(counts, total, np.ones(len(counts), bool))
    fullest = int(np.argmax(counts[:-1]))
    weak = np.flatnonzero(counts[fullest + 1 :] < CLEARLY * scale)
    end = fullest + 1 + int(weak[0]) if len(weak) else len(counts)
    believed = np.where(np.arange(len(counts)) < end, settled, 0.0)
    return believed if believed.sum() >= 1 else np.eye(len(counts))[fullest]


_MISSING: Final = 1e-3
_SMALLER: Final = 0.85  # as likely as the next smaller cell
_LESS_ROUND: Final = 0.2  # as likely as a round limit
_USUAL_RUNTIME: Final = 10.0  # in powers of two of a second: a quarter of an hour
_SPREAD: Final = 3.5
_STATES: Final = {JobState.COMPLETED: 0.8, JobState.FAILED: 0.1, JobState.CANCELLED: 0.05, JobState.TIMEOUT: 0.05}
_AGAIN: Final = (0.25, 0.15, 0.3, 0.3)  # neither, run time, request, both as before


def expected_shares(name: str, layout: Layout) -> Floats:
    """(cells,) the shares of a table's last axis (of sizes × paces, for shapes)."""
    shares = _shares(name.removeprefix(COLUMN), layout, layout.tables()[name].shape[-1])
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _shares(name: str, layout: Layout, cells: int) -> Floats:
    if name == SHAPES:
        return np.repeat(0.5 ** np.arange(SIZE_BINS), PACES)
    if name == REPEATS:
        return np.array(_AGAIN)
    if name == RUNTIME:
        bell = np.exp(-0.5 * ((np.arange(cells) - 1 - _USUAL_RUNTIME) / _SPREAD) ** 2)
        return np.append(bell[:-2], [_MISSING, 0.05 * bell.sum()])  # missing, at the limit
    if name == STATE:
        states = layout.grid(STATE)
        assert isinstance(states, Categories)
        return np.array([*(_STATES.get(JobState(state), _MISSING) for state in states.known), _MISSING])
    if name == LIMIT:
        start, end = LIMIT_GRID.bounds
        return np.append(np.where(end - start <= 1, 1.0, _LESS_ROUND), _MISSING)
    if name in SIZES:
        return np.append(_SMALLER ** np.arange(cells - 1.0), _MISSING)
    return np.ones(cells)

"""What is expected of any log before one has been seen: what a private model falls back on where noise hides the counts.

table -> expected_shares -> shares of its cells. Written down once from general knowledge of clusters (jobs are mostly small,
limits are round, most jobs complete), never from the log at hand; so it costs no privacy.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.records.states import JobState
from stormpetrel.synth.private.grids import LIMIT_GRID, Floats, Words
from stormpetrel.synth.private.layout import COLUMN, LIMIT, PACES, REPEATS, RUNTIME, SHAPES, SIZE_BINS, Layout
from stormpetrel.synth.workload import SIZES, STATE

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
        assert isinstance(states, Words)
        return np.array([*(_STATES.get(JobState(state), _MISSING) for state in states.known), _MISSING])
    if name == LIMIT:
        start, end = LIMIT_GRID.bounds
        return np.append(np.where(end - start <= 1, 1.0, _LESS_ROUND), _MISSING)
    if name in SIZES:
        return np.append(_SMALLER ** np.arange(cells - 1.0), _MISSING)
    return np.ones(cells)

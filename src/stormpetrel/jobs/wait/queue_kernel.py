"""The compiled core of the queue: who waits, who runs and how long others have waited, read at each submission.

One row per entity (the site, a partition, a user, a shape of request): its latest `DEPTH` waits, and sums over what waits
or runs. A wait is known from the start of its job on; `sweep` walks through submissions, starts and ends in the order of time.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

DEPTH: Final = 20
READINGS: Final = (
    "started",  # log(1 + number of jobs that have started)
    "last",  # log(1 + wait) of the latest that started; this and the next two
    "median",  # of the latest 20
    "q90",
    "since_start",  # log seconds since the latest start
    "waiting",  # log(1 + number of jobs that wait)
    "waiting_cores",  # log(1 + cores that they ask for)
    "waiting_for",  # log(1 + seconds that they have waited, on average)
    "running",  # log(1 + number of jobs that run)
    "busy_cores",  # log(1 + cores that they have)
    "until_limit",  # log(1 + seconds until their limits, on average, by cores)
    "until_end",  # the same until their ends as forecast from what such jobs ran
)
N_READINGS: Final = len(READINGS)
SUBMIT: Final = 0
START: Final = 1
END: Final = 2

# Columns of an entity's state.
COUNT: Final = 0
LAST_START: Final = 1
WAITING: Final = 2
WAITING_CORES: Final = 3
SUBMITS: Final = 4  # sum of the submit times of the jobs that wait
RUNNING: Final = 5
BUSY_CORES: Final = 6
LIMITS: Final = 7  # sum of cores × the time at which the limit ends a job that runs
ENDS: Final = 8  # the same for the forecast end
N_STATE: Final = 9

Row = NDArray[np.float64]


def empty_rows(count: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows of entities that nothing is known about: logs of waits, and the state."""
    return np.zeros((count, DEPTH), np.float32), np.zeros((count, N_STATE))


@njit(cache=True)
def _log_positive(value: float) -> float:
    return float(np.log1p(max(0.0, value)))


@njit(cache=True)
def read_queue(waits: NDArray[np.float32], state: Row, now: float, out: NDArray[np.float32]) -> None:
    """What an entity's row says at `now`, in the order of READINGS; NaN where it says nothing."""
    count = int(state[COUNT])
    size = min(count, DEPTH)
    out[0] = np.log1p(count)
    for place in range(1, 5):
        out[place] = np.nan
    if size > 0:
        ordered = np.empty(size, np.float32)
        for back in range(size):
            ordered[back] = waits[(count - 1 - back) % DEPTH]
        out[1] = ordered[0]
        ordered.sort()
        out[2] = ordered[size // 2] if size % 2 == 1 else 0.5 * (ordered[size // 2 - 1] + ordered[size // 2])
        out[3] = ordered[min(size - 1, int(0.9 * size))]
        out[4] = _log_positive(now - state[LAST_START])
    waiting, running, cores = state[WAITING], state[RUNNING], state[BUSY_CORES]
    out[5] = _log_positive(waiting)
    out[6] = _log_positive(state[WAITING_CORES])
    out[7] = _log_positive(now - state[SUBMITS] / waiting) if waiting > 0.5 else np.nan
    out[8] = _log_positive(running)
    out[9] = _log_positive(cores)
    out[10] = _log_positive(state[LIMITS] / cores - now) if cores > 0.5 else np.nan
    out[11] = _log_positive(state[ENDS] / cores - now) if cores > 0.5 else np.nan


@njit(cache=True)
def read_jobs(codes: NDArray[np.int64], now: float, waits: NDArray[np.float32], state: Row, out: NDArray[np.float32]) -> None:
    """What each space of each job (job, space) says at `now` goes to `out` (job, space × reading)."""
    for job in range(codes.shape[0]):
        for space in range(codes.shape[1]):
            code = codes[job, space]
            if code >= 0:
                at = space * N_READINGS
                read_queue(waits[code], state[code], now, out[job, at : at + N_READINGS])


@njit(cache=True)
def note_submit(state: Row, now: float, cores: float) -> None:
    """A job of this entity was submitted and waits."""
    state[WAITING] += 1.0
    state[WAITING_CORES] += cores
    state[SUBMITS] += now


@njit(cache=True)
def note_leaves_queue(state: Row, submit: float, cores: float) -> None:
    """A job of this entity waits no more."""
    state[WAITING] -= 1.0
    state[WAITING_CORES] -= cores
    state[SUBMITS] -= submit


@njit(cache=True)
def note_start(
    waits: NDArray[np.float32], state: Row, now: float, submit: float, cores: float, limit_s: float, run_s: float
) -> None:
    """A job of this entity started: its wait is known now."""
    note_leaves_queue(state, submit, cores)
    waits[int(state[COUNT]) % DEPTH] = np.log1p(max(0.0, now - submit))
    state[COUNT] += 1.0
    state[LAST_START] = now
    state[RUNNING] += 1.0
    state[BUSY_CORES] += cores
    state[LIMITS] += cores * (now + limit_s)
    state[ENDS] += cores * (now + run_s)


@njit(cache=True)
def note_end(state: Row, start: float, cores: float, limit_s: float, run_s: float) -> None:
    """A job of this entity that ran has ended."""
    state[RUNNING] -= 1.0
    state[BUSY_CORES] -= cores
    state[LIMITS] -= cores * (start + limit_s)
    state[ENDS] -= cores * (start + run_s)


@njit(cache=True, nogil=True)
def sweep(
    event_kind: NDArray[np.int8],
    event_job: NDArray[np.int64],
    event_time: NDArray[np.float64],
    codes: NDArray[np.int64],
    submit: NDArray[np.float64],
    start: NDArray[np.float64],
    cores: NDArray[np.float64],
    limit_s: NDArray[np.float64],
    run_s: NDArray[np.float64],
    waits: NDArray[np.float32],
    state: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    out: NDArray[np.float32],
) -> None:
    """Walk through the events; what each space says at the submission of a `wanted` job goes to `out` (job, space × reading)."""
    for event in range(event_kind.size):
        what, job, now = event_kind[event], event_job[event], event_time[event]
        for space in range(codes.shape[1]):
            code = codes[job, space]
            if code < 0:
                continue
            if what == SUBMIT:
                if wanted[job]:
                    at = space * N_READINGS
                    read_queue(waits[code], state[code], now, out[job, at : at + N_READINGS])
                note_submit(state[code], now, cores[job])
            elif what == START:
                note_start(waits[code], state[code], now, submit[job], cores[job], limit_s[job], run_s[job])
            elif np.isnan(start[job]):
                note_leaves_queue(state[code], submit[job], cores[job])
            else:
                note_end(state[code], start[job], cores[job], limit_s[job], run_s[job])


@njit(cache=True, nogil=True)
def follow_levels(
    submit: NDArray[np.float64],
    wait_s: NDArray[np.float64],
    gone_s: NDArray[np.float64],
    steps: NDArray[np.float64],
    below: NDArray[np.float32],
    recent: NDArray[np.float64],
    share: float,
    wanted: float,
    pace: float,
    level: float,
    until: float,
    out: NDArray[np.float64],
) -> float:
    """Write a quantile of each job's wait (log(1 + seconds)) to `out`, at a level that follows how often it was enough.

    Jobs in the order of submission; a wait without end is infinite, `gone_s` is after how long a job left the queue without a
    start. Whether a quantile was enough is known when its job starts, or when it has waited longer; of a job that left the
    queue before, never. `below` (job, step) is the forecast's running sum. The level at `until` is returned.
    """
    pending = [(np.inf, 0)]  # when it is known, and of which job
    for job in range(submit.size + 1):
        now = submit[job] if job < submit.size else until
        while pending[0][0] <= now and pending[0][0] < np.inf:
            _, known = heapq.heappop(pending)
            enough = 1.0 if np.log1p(wait_s[known]) <= out[known] + 1e-9 else 0.0
            level = min(0.999, max(0.001, level + pace * (wanted - enough)))
        if job == submit.size:
            break
        out[job] = blended_quantile(steps, below[job], level, share, recent[job])
        longest_s = np.expm1(out[job]) + 1.0
        if min(wait_s[job], longest_s) <= gone_s[job]:
            heapq.heappush(pending, (submit[job] + min(wait_s[job], longest_s), job))
    return level


@njit(cache=True)
def blended_quantile(steps: NDArray[np.float64], below: NDArray[np.float32], level: float, share: float, recent: float) -> float:
    """A quantile of a wait at a level, all in log(1 + seconds): `share` of it is the forecast's, the rest `recent` waits'."""
    return float(share * quantile_of(steps, below, level) + (1.0 - share) * recent)


@njit(cache=True)
def quantile_of(steps: NDArray[np.float64], below: NDArray[np.float32], level: float) -> float:
    """The value of a distribution at a level: between two steps by straight line."""
    previous, before = 0.0, steps[0]
    for step in range(steps.size):
        if below[step] >= level:
            gap = below[step] - previous
            share = (level - previous) / gap if gap > 1e-9 else 1.0
            return float(before + share * (steps[step] - before))
        previous, before = below[step], steps[step]
    return float(steps[-1])


@njit(cache=True)
def quantiles_of(
    steps: NDArray[np.float64], below: NDArray[np.float32], levels: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """The values of distributions at levels: (row, level)."""
    for row in range(below.shape[0]):
        for column in range(levels.size):
            out[row, column] = quantile_of(steps, below[row], levels[column])

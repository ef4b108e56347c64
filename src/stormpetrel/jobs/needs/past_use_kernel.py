"""The compiled core of past use: what the jobs of a user, an application or a request used, read at each submission.

One row per entity with its latest `DEPTH` ended jobs (log of use, and whether it was cut off at the limit), and what runs.
A job's use enters when it ends; `sweep` walks through submissions, starts and ends in the order of time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

DEPTH: Final = 32  # ended jobs that an entity remembers
RECENT: Final = 8  # of these, the ones that say most about the next
READINGS: Final = (
    "ended",  # log(1 + number of ended jobs)
    "last",  # log use of the latest; this and the next seven in logs of the unit
    "median",  # of the RECENT latest
    "recent_max",
    "q90",  # of all that are remembered
    "max",
    "min",
    "q95",  # of all that are remembered: Witt's percentile
    "first_allocation",  # Tovar's: the one that costs least if whoever needs more is given the most that was seen
    "cut_off_share",  # of all that are remembered: ran into their limit, so that they needed more
    "since_end",  # log seconds since the latest end
    "share_last",  # log of used ÷ requested, of the latest; the next two of all that are remembered
    "share_q90",
    "share_max",
    "running",  # log(1 + number of jobs that run)
    "running_for",  # log seconds that they have run, on average
)
LEVELS: Final = slice(1, 9)  # the readings that are logs of use
N_READINGS: Final = len(READINGS)
SUBMIT: Final = 0
START: Final = 1
END: Final = 2

# Columns of an entity's state.
COUNT: Final = 0
LAST_END: Final = 1
RUNNING: Final = 2
STARTS: Final = 3  # sum of the start times of the jobs that run
N_STATE: Final = 4


def empty_rows(count: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64]]:
    """Rows of entities that nothing is known about: logs of use, of use ÷ request, whether cut off, and the state."""
    shares = np.full((count, DEPTH), np.nan, np.float32)
    return np.zeros((count, DEPTH), np.float32), shares, np.zeros((count, DEPTH), np.bool_), np.zeros((count, N_STATE))


@njit(cache=True)
def read_use(
    used: NDArray[np.float32],
    shares: NDArray[np.float32],
    cut_off: NDArray[np.bool_],
    state: NDArray[np.float64],
    now: float,
    out: NDArray[np.float32],
) -> None:
    """What an entity's past use says at `now`, in the order of READINGS; NaN where it has none."""
    count = int(state[COUNT])
    size = min(count, DEPTH)
    out[0] = np.log1p(count)
    for place in range(1, N_READINGS):
        out[place] = np.nan
    if size > 0:
        ordered = np.empty(size, np.float32)
        recent = min(size, RECENT)
        last_few = np.empty(recent, np.float32)
        of_request = np.empty(size, np.float32)
        known_shares = 0
        cut = 0.0
        for back in range(size):
            slot = (count - 1 - back) % DEPTH
            ordered[back] = used[slot]
            if back < recent:
                last_few[back] = used[slot]
            if not np.isnan(shares[slot]):
                of_request[known_shares] = shares[slot]
                known_shares += 1
            cut += 1.0 if cut_off[slot] else 0.0
        out[1] = ordered[0]
        ordered.sort()
        last_few.sort()
        out[2] = last_few[recent // 2]
        out[3] = last_few[recent - 1]
        out[4] = ordered[min(size - 1, int(0.9 * size))]
        out[5] = ordered[size - 1]
        out[6] = ordered[0]
        out[7] = ordered[min(size - 1, int(0.95 * size))]
        out[8] = _first_allocation(ordered)
        out[9] = cut / size
        out[10] = np.log1p(max(0.0, now - state[LAST_END]))
        if known_shares > 0:
            out[11] = of_request[0]
            known = of_request[:known_shares]
            known.sort()
            out[12] = known[min(known_shares - 1, int(0.9 * known_shares))]
            out[13] = known[known_shares - 1]
    running = state[RUNNING]
    out[14] = np.log1p(running)
    out[15] = np.log1p(max(0.0, now - state[STARTS] / running)) if running > 0.5 else np.nan


@njit(cache=True)
def read_jobs(
    codes: NDArray[np.int64],
    now: NDArray[np.float64],
    used: NDArray[np.float32],
    shares: NDArray[np.float32],
    cut_off: NDArray[np.bool_],
    state: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """What each space of each job (job, space) says at the job's `now` goes to `out` (job, space × reading)."""
    for job in range(codes.shape[0]):
        for space in range(codes.shape[1]):
            code = codes[job, space]
            if code >= 0:
                at = space * N_READINGS
                read_use(used[code], shares[code], cut_off[code], state[code], now[job], out[job, at : at + N_READINGS])


@njit(cache=True)
def _first_allocation(ordered: NDArray[np.float32]) -> float:
    """The log of the amount that costs least in all: each job gets it once, and the most for each that needs more."""
    size = ordered.size
    most = ordered[size - 1]
    best, best_cost = most, np.inf
    for place in range(size):
        cost = np.exp(ordered[place] - most) + (size - 1 - place) / size
        if cost < best_cost:
            best, best_cost = ordered[place], cost
    return float(best)


@njit(cache=True)
def note_end(
    used: NDArray[np.float32],
    shares: NDArray[np.float32],
    cut_off: NDArray[np.bool_],
    state: NDArray[np.float64],
    now: float,
    start: float,
    log_use: float,
    log_request: float,
    was_cut_off: bool,
) -> None:
    """A job of this entity ended; `log_use` is NaN where nobody knows what it used, `start` NaN where it never started."""
    if not np.isnan(start):
        state[RUNNING] -= 1.0
        state[STARTS] -= start
    if np.isnan(log_use):
        return
    slot = int(state[COUNT]) % DEPTH
    used[slot] = log_use
    shares[slot] = log_use - log_request
    cut_off[slot] = was_cut_off
    state[COUNT] += 1.0
    state[LAST_END] = now


@njit(cache=True, nogil=True)
def sweep(
    event_kind: NDArray[np.int8],
    event_job: NDArray[np.int64],
    event_time: NDArray[np.float64],
    codes: NDArray[np.int64],
    start: NDArray[np.float64],
    log_use: NDArray[np.float64],
    log_request: NDArray[np.float64],
    was_cut_off: NDArray[np.bool_],
    used: NDArray[np.float32],
    shares: NDArray[np.float32],
    cut_off: NDArray[np.bool_],
    state: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    out: NDArray[np.float32],
) -> None:
    """Walk through the events; what each space says at the submission of a `wanted` job goes to `out` (job, space × reading)."""
    spaces = codes.shape[1]
    for event in range(event_kind.size):
        what, job, now = event_kind[event], event_job[event], event_time[event]
        for space in range(spaces):
            code = codes[job, space]
            if code < 0:
                continue
            if what == SUBMIT:
                if wanted[job]:
                    at = space * N_READINGS
                    read_use(used[code], shares[code], cut_off[code], state[code], now, out[job, at : at + N_READINGS])
            elif what == START:
                state[code, RUNNING] += 1.0
                state[code, STARTS] += start[job]
            else:
                note_end(
                    used[code], shares[code], cut_off[code], state[code], now, start[job], log_use[job], log_request[job],
                    was_cut_off[job],
                )  # fmt: skip

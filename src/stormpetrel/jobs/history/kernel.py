"""The compiled core of the history: what an entity (a user, an application, a queue, …) remembers of its ended jobs.

One row of float64 per entity. `note_*` change a row in constant time when something happens to a job; `read_entity` writes
what the row says at a moment; `sweep` walks through a log in the order of time. The batch and the live path call these same
functions, so they cannot disagree. One file: numba's cache on disk looks at the file of a function, not at those it calls.
Loops stand where numpy would have a slice: each kind of slice that is written takes the compiler half a second.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stormpetrel.jobs.history.keys import READINGS

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
# Half-lives: in time, because people come back tomorrow; in jobs, because a burst of failures ends with the burst.
HALF_LIVES_S: Final = (HOUR_S, 12 * HOUR_S, 4 * DAY_S, 30 * DAY_S)
HALF_LIVES_JOBS: Final = (2.0, 12.0)
_DECAY_S: Final = np.log(2.0) / np.array(HALF_LIVES_S)
_KEEP_JOBS: Final = 0.5 ** (1.0 / np.array(HALF_LIVES_JOBS))
_N_TIME: Final = len(HALF_LIVES_S)
_N_JOBS: Final = len(HALF_LIVES_JOBS)
LONG: Final = _N_TIME - 1  # the half-life that the slow sums share
PRIOR_JOBS: Final = 2.0  # how many jobs of its own an entity needs to count as much as its parent's rate
QUICK_S: Final = 120.0
BURST_GAP_S: Final = 600.0

# Slots of an entity's row.
UPDATED: Final = 0
WEIGHT: Final = 1  # decayed number of ended jobs, one per half-life in time
FAILED: Final = WEIGHT + _N_TIME
JOB_WEIGHT: Final = FAILED + _N_TIME
JOB_FAILED: Final = JOB_WEIGHT + _N_JOBS
TOTAL: Final = JOB_FAILED + _N_JOBS
TOTAL_FAILED: Final = TOTAL + 1
STREAK: Final = TOTAL_FAILED + 1  # failures in a row, successes negative
LAST_END: Final = STREAK + 1
LAST_FAILURE: Final = LAST_END + 1
LAST_SUCCESS: Final = LAST_FAILURE + 1
ENDED: Final = LAST_SUCCESS + 1  # decayed (LONG) number of ended jobs of any state
KIND: Final = ENDED + 1  # decayed (LONG) number per outcome
N_KINDS: Final = 5
NEVER_STARTED: Final = -2  # the kind of a job that was over before it ran; −1 where a job has no outcome
LOG_RUN: Final = KIND + N_KINDS  # decayed (LONG) sum of log run time
RUN_WEIGHT: Final = LOG_RUN + 1
LIMIT_SHARE: Final = RUN_WEIGHT + 1  # of run time ÷ limit
LIMIT_WEIGHT: Final = LIMIT_SHARE + 1
QUICK: Final = LIMIT_WEIGHT + 1  # of jobs over within two minutes
RUNNING: Final = QUICK + 1
PENDING: Final = RUNNING + 1
LAST_SUBMIT: Final = PENDING + 1
BURST: Final = LAST_SUBMIT + 1  # submissions since the last pause
SUBMITTED: Final = BURST + 1
REQUESTED_CPUS: Final = SUBMITTED + 1  # log of what the last submission requested
REQUESTED_LIMIT: Final = REQUESTED_CPUS + 1
REQUESTED_MEM: Final = REQUESTED_LIMIT + 1
N_SLOTS: Final = REQUESTED_MEM + 1

N_READINGS: Final = len(READINGS)
# Positions that others look up.
RATE_LONG: Final = READINGS.index("failed_rate_30d")

# Events of the sweep, in the order that they are taken in at equal times: readings come before endings.
SUBMIT: Final = 0
START: Final = 1
TWO_MINUTES: Final = 2
END: Final = 3
MOST_NODES: Final = 128  # of one job whose history is kept and read: the first ones in its list

# Next to the readings of the spaces: how the request differs from the user's previous one, and the nodes' history.
SIMILARITY: Final = ("cpus_to_previous", "limit_to_previous", "memory_to_previous")
NODE_READINGS: Final = ("node_failed_rate_mean", "node_failed_rate_max", "node_failed_rate_12h_max", "node_since_failure")

_NODE_RATE: Final = READINGS.index("failed_rate_4d")
_NODE_RATE_SHORT: Final = READINGS.index("failed_rate_12h")
_NODE_SINCE: Final = READINGS.index("since_failure")

Row = NDArray[np.float64]


@njit(cache=True)
def empty_rows(count: int) -> NDArray[np.float64]:
    """Rows of entities that nothing is known about."""
    rows = np.zeros((count, N_SLOTS))
    for slot in (UPDATED, LAST_END, LAST_FAILURE, LAST_SUCCESS, LAST_SUBMIT, REQUESTED_CPUS, REQUESTED_LIMIT, REQUESTED_MEM):
        for row in range(count):
            rows[row, slot] = np.nan
    return rows


@njit(cache=True)
def note_submit(row: Row, now: float, asked_cpus: float, asked_limit: float, asked_mem: float) -> None:
    """A job of this entity was submitted."""
    if not (now - row[LAST_SUBMIT] <= BURST_GAP_S):
        row[BURST] = 0.0
    row[BURST] += 1.0
    row[SUBMITTED] += 1.0
    row[LAST_SUBMIT] = now
    row[PENDING] += 1.0
    row[REQUESTED_CPUS] = asked_cpus
    row[REQUESTED_LIMIT] = asked_limit
    row[REQUESTED_MEM] = asked_mem


@njit(cache=True)
def note_start(row: Row, waited: bool) -> None:
    """A job of this entity started; `waited` if its submission was noted, which that of a rerun is not."""
    if waited:
        row[PENDING] -= 1.0
    row[RUNNING] += 1.0


@njit(cache=True)
def note_end(  # noqa: C901
    row: Row, now: float, started: bool, waited: bool, failed: float, kind: int, log_run: float, limit_share: float
) -> None:
    """A job of this entity ended: `failed` is 1, 0, or NaN where its state does not count; `kind` −1 where it has no outcome.

    One that never started waits no more: nothing else is to be learnt from it.
    """
    if started:
        row[RUNNING] -= 1.0
    elif waited:
        row[PENDING] -= 1.0
    if kind == NEVER_STARTED:
        return
    if not np.isnan(row[UPDATED]):
        past = max(0.0, now - row[UPDATED])
        for h in range(_N_TIME):
            keep = np.exp(-_DECAY_S[h] * past)
            row[WEIGHT + h] *= keep
            row[FAILED + h] *= keep
        keep = np.exp(-_DECAY_S[LONG] * past)
        for slot in range(ENDED, QUICK + 1):
            row[slot] *= keep
    row[UPDATED] = now
    row[ENDED] += 1.0
    if kind >= 0:
        row[KIND + kind] += 1.0
    if not np.isnan(log_run):
        row[LOG_RUN] += log_run
        row[RUN_WEIGHT] += 1.0
        if log_run <= np.log1p(QUICK_S):
            row[QUICK] += 1.0
    if not np.isnan(limit_share):
        row[LIMIT_SHARE] += limit_share
        row[LIMIT_WEIGHT] += 1.0
    if np.isnan(failed):
        return
    row[LAST_END] = now
    row[TOTAL] += 1.0
    row[TOTAL_FAILED] += failed
    for h in range(_N_TIME):
        row[WEIGHT + h] += 1.0
        row[FAILED + h] += failed
    for j in range(_N_JOBS):
        row[JOB_WEIGHT + j] = row[JOB_WEIGHT + j] * _KEEP_JOBS[j] + 1.0
        row[JOB_FAILED + j] = row[JOB_FAILED + j] * _KEEP_JOBS[j] + failed
    if failed > 0.0:
        row[STREAK] = max(row[STREAK], 0.0) + 1.0
        row[LAST_FAILURE] = now
    else:
        row[STREAK] = min(row[STREAK], 0.0) - 1.0
        row[LAST_SUCCESS] = now


@njit(cache=True)
def read_entity(row: Row, now: float, prior: float, out: NDArray[np.float32]) -> None:
    """What the entity's row says at `now`, in the order of READINGS; rates lean on `prior` while there are few jobs."""
    past = 0.0 if np.isnan(row[UPDATED]) else max(0.0, now - row[UPDATED])
    for h in range(_N_TIME):
        keep = np.exp(-_DECAY_S[h] * past)
        out[h] = (row[FAILED + h] * keep + PRIOR_JOBS * prior) / (row[WEIGHT + h] * keep + PRIOR_JOBS)
    for j in range(_N_JOBS):
        out[_N_TIME + j] = (row[JOB_FAILED + j] + prior) / (row[JOB_WEIGHT + j] + 1.0)
    out[_N_TIME + _N_JOBS] = (row[TOTAL_FAILED] + prior) / (row[TOTAL] + 1.0)
    at = _N_TIME + _N_JOBS + 1
    out[at] = np.log1p(row[WEIGHT + 1] * np.exp(-_DECAY_S[1] * past))
    out[at + 1] = np.log1p(row[WEIGHT + LONG] * np.exp(-_DECAY_S[LONG] * past))
    out[at + 2] = np.log1p(row[TOTAL])
    out[at + 3] = row[STREAK]
    out[at + 4] = _log_since(now, row[LAST_END])
    out[at + 5] = _log_since(now, row[LAST_FAILURE])
    out[at + 6] = _log_since(now, row[LAST_SUCCESS])
    ended = row[ENDED]
    if ended > 1e-9:
        out[at + 7] = row[KIND] / ended
        out[at + 8] = row[KIND + 1] / ended
        out[at + 9] = row[KIND + 2] / ended
        out[at + 10] = row[KIND + 4] / ended
    else:
        for place in range(at + 7, at + 11):
            out[place] = np.nan
    runs = row[RUN_WEIGHT]
    out[at + 11] = row[LOG_RUN] / runs if runs > 1e-9 else np.nan
    out[at + 13] = row[QUICK] / runs if runs > 1e-9 else np.nan
    out[at + 12] = row[LIMIT_SHARE] / row[LIMIT_WEIGHT] if row[LIMIT_WEIGHT] > 1e-9 else np.nan
    out[at + 14] = row[RUNNING]
    out[at + 15] = row[PENDING]
    out[at + 16] = _log_since(now, row[LAST_SUBMIT])
    out[at + 17] = row[BURST]


@njit(cache=True)
def _log_since(now: float, then: float) -> float:
    """Log of the seconds since something happened; NaN where it never did."""
    return np.nan if np.isnan(then) else np.log1p(max(0.0, now - then))


@njit(cache=True)
def read_job(
    rows: NDArray[np.float64],
    codes: NDArray[np.int64],
    parents: NDArray[np.int64],
    wanted: NDArray[np.int64],
    now: float,
    out: NDArray[np.float32],
) -> None:
    """Write one job's readings of every space to `out`; `wanted[space, reading]` is its place there, −1 for none."""
    spaces, readings = wanted.shape
    buffer = np.empty(readings, dtype=np.float32)
    rates = np.empty(spaces)
    for space in range(spaces):
        rates[space] = np.nan
    for space in range(spaces):
        code = codes[space]
        if code < 0:
            for reading in range(readings):
                if wanted[space, reading] >= 0:
                    out[wanted[space, reading]] = np.nan
            continue
        parent = parents[space]
        while parent > 0 and np.isnan(rates[parent]):  # the job has none of these: what is wider still
            parent = parents[parent]
        prior = rates[parent] if parent >= 0 and not np.isnan(rates[parent]) else rates[0] if space > 0 else 0.1
        read_entity(rows[code], now, prior, buffer)
        rates[space] = buffer[RATE_LONG]
        for reading in range(readings):
            if wanted[space, reading] >= 0:
                out[wanted[space, reading]] = buffer[reading]


@njit(cache=True)
def compare_request(user_row: NDArray[np.float64], request: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Write how a request differs from the user's previous one to `out`, in the order of SIMILARITY (differences of logs)."""
    out[0] = request[0] - user_row[REQUESTED_CPUS]
    out[1] = request[1] - user_row[REQUESTED_LIMIT]
    out[2] = request[2] - user_row[REQUESTED_MEM]


@njit(cache=True)
def read_nodes(rows: NDArray[np.float64], nodes: NDArray[np.int64], now: float, prior: float, out: NDArray[np.float32]) -> None:
    """Write what the history of a job's nodes says to `out`, in the order of NODE_READINGS."""
    for place in range(out.size):
        out[place] = np.nan
    if nodes.size == 0:
        return
    buffer = np.empty(N_READINGS, dtype=np.float32)
    total, highest, highest_short, since = 0.0, 0.0, 0.0, np.inf
    for node in nodes:
        read_entity(rows[node], now, prior, buffer)
        total += buffer[_NODE_RATE]
        highest = max(highest, buffer[_NODE_RATE])
        highest_short = max(highest_short, buffer[_NODE_RATE_SHORT])
        if not np.isnan(buffer[_NODE_SINCE]):
            since = min(since, buffer[_NODE_SINCE])
    out[0] = total / nodes.size
    out[1] = highest
    out[2] = highest_short
    out[3] = since if since < np.inf else np.nan


@njit(cache=True)
def read_many(
    rows: NDArray[np.float64],
    node_rows: NDArray[np.float64],
    codes: NDArray[np.int64],
    parents: NDArray[np.int64],
    wanted: NDArray[np.int64],
    user_space: int,
    requests: NDArray[np.float64],
    node_from: NDArray[np.int64],
    node_codes: NDArray[np.int64],
    now: NDArray[np.float64],
    out_similarity: NDArray[np.float32],
    out: NDArray[np.float32],
    out_nodes: NDArray[np.float32],
) -> None:
    """Read the history for each job at its own `now`, changing nothing."""
    for job in range(codes.shape[0]):
        read_job(rows, codes[job], parents, wanted, now[job], out[job])
        compare_request(rows[codes[job, user_space]], requests[job], out_similarity[job])
        read_nodes(
            node_rows, node_codes[node_from[job] : node_from[job + 1]], now[job], site_rate(rows[codes[job, 0]]), out_nodes[job]
        )


@njit(cache=True)
def site_rate(row: NDArray[np.float64]) -> float:
    """The failure rate of all jobs of a cluster so far: what a node without a history of its own is taken for."""
    return float((row[TOTAL_FAILED] + 0.1) / (row[TOTAL] + 1.0))


@njit(cache=True)
def sweep(  # noqa: C901
    event_kind: NDArray[np.int8],
    event_job: NDArray[np.int64],
    event_time: NDArray[np.float64],
    codes: NDArray[np.int64],
    parents: NDArray[np.int64],
    wanted: NDArray[np.int64],
    user_space: int,
    requests: NDArray[np.float64],
    started: NDArray[np.bool_],
    first_run: NDArray[np.bool_],
    failed: NDArray[np.float64],
    outcome: NDArray[np.int64],
    log_run: NDArray[np.float64],
    limit_share: NDArray[np.float64],
    node_from: NDArray[np.int64],
    node_codes: NDArray[np.int64],
    rows: NDArray[np.float64],
    node_rows: NDArray[np.float64],
    out_similarity: NDArray[np.float32],
    out_submit: NDArray[np.float32],
    out_start: NDArray[np.float32],
    out_two_minutes: NDArray[np.float32],
    out_nodes_start: NDArray[np.float32],
    out_nodes_two_minutes: NDArray[np.float32],
) -> None:
    """Walk through the events; readings go to the matrices that have rows, the others are not made."""
    spaces = codes.shape[1]
    yes = bool(np.bool_(True))  # a plain True would be a type of its own, and `note_end` compiled twice
    for event in range(event_kind.size):
        what, job, now = event_kind[event], event_job[event], event_time[event]
        nodes = node_codes[node_from[job] : node_from[job + 1]]
        if what == SUBMIT:
            if out_submit.shape[0] > 0:
                read_job(rows, codes[job], parents, wanted, now, out_submit[job])
            if codes[job, user_space] >= 0:
                compare_request(rows[codes[job, user_space]], requests[job], out_similarity[job])
            for space in range(spaces):
                if codes[job, space] >= 0 and first_run[job]:
                    note_submit(rows[codes[job, space]], now, requests[job, 0], requests[job, 1], requests[job, 2])
        elif what == END:
            for space in range(spaces):
                if codes[job, space] >= 0:
                    row = rows[codes[job, space]]
                    note_end(row, now, started[job], first_run[job], failed[job], outcome[job], log_run[job], limit_share[job])
            for node in nodes:
                note_end(node_rows[node], now, yes, yes, failed[job], outcome[job], log_run[job], limit_share[job])
        else:
            out = out_start if what == START else out_two_minutes
            if out.shape[0] > 0:
                read_job(rows, codes[job], parents, wanted, now, out[job])
                out_nodes = out_nodes_start if what == START else out_nodes_two_minutes
                read_nodes(node_rows, nodes, now, site_rate(rows[codes[job, 0]]), out_nodes[job])
            if what == START:
                for space in range(spaces):
                    if codes[job, space] >= 0:
                        note_start(rows[codes[job, space]], first_run[job])

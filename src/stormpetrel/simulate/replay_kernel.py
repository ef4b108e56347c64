"""The compiled part of `replay`: first come, first served, with EASY backfill over two resources (cores, GPUs).

Arrays of jobs + what runs -> advance -> start of every job that has started before the horizon. One file: numba's cache on disk
looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Places in `counts`. HEAD and TAIL are jobs (-1: nobody waits), COMING is the first job that is not submitted yet.
RUNNING, FREE_CORES, FREE_GPUS, HEAD, TAIL, WAITING, COMING = range(7)
# Places in `promise`: when the first of the queue can start at the latest, and what is left over from then on.
AT, SPARE_CORES, SPARE_GPUS = range(3)
NOBODY: Final = -1


class Jobs(NamedTuple):
    """(jobs,) each, in the order of submission; `start` is NaN and `after` (the next in the queue) -1 until they are known."""

    submit: Floats
    cores: Ints
    gpus: Ints
    holds_s: Floats  # how long the job may hold what it gets, as far as the scheduler knows: at least its run time
    run_s: Floats
    start: Floats
    after: Ints


class Running(NamedTuple):
    """(slots,) each: what runs. `by_latest` lists slots by their latest end, `heap` is a heap of slots by their true end."""

    end: Floats
    latest: Floats
    cores: Ints
    gpus: Ints
    by_latest: Ints
    heap: Ints
    unused: Ints  # slots that nothing runs in, from place RUNNING on


@njit(cache=True)
def advance(jobs: Jobs, running: Running, counts: Ints, promise: Floats, horizon: float, depth: int) -> None:
    """Let everything happen that happens before `horizon`; behind the first of the queue `depth` jobs are tried."""
    total = jobs.submit.shape[0]
    while True:
        now = np.inf
        if counts[RUNNING] > 0:
            now = running.end[running.heap[0]]
        if counts[COMING] < total and jobs.submit[counts[COMING]] < now:
            now = jobs.submit[counts[COMING]]
        if not now < horizon:
            return
        ended = _end_until(running, counts, now)
        if ended or counts[HEAD] == NOBODY:
            _queue_until(jobs, counts, now)
            _start_first(jobs, running, counts, now)
            if counts[HEAD] != NOBODY:
                _promise(jobs, running, counts, promise)
                _backfill(jobs, running, counts, promise, now, depth)
        else:  # nothing came free: whoever could not start before cannot start now
            _submit_behind(jobs, running, counts, promise, now, depth)


@njit(cache=True)
def _end_until(running: Running, counts: Ints, now: float) -> bool:
    ended = False
    while counts[RUNNING] > 0 and running.end[running.heap[0]] <= now:
        slot = _pop(running, counts)
        counts[FREE_CORES] += running.cores[slot]
        counts[FREE_GPUS] += running.gpus[slot]
        ended = True
    return ended


@njit(cache=True)
def _queue_until(jobs: Jobs, counts: Ints, now: float) -> None:
    while counts[COMING] < jobs.submit.shape[0] and jobs.submit[counts[COMING]] <= now:
        _append(jobs, counts)


@njit(cache=True)
def _submit_behind(jobs: Jobs, running: Running, counts: Ints, promise: Floats, now: float, depth: int) -> None:
    """New jobs behind a queue: they start at once if the first does not suffer, or wait."""
    while counts[COMING] < jobs.submit.shape[0] and jobs.submit[counts[COMING]] <= now:
        job = counts[COMING]
        if counts[WAITING] <= depth and _is_harmless(jobs, counts, promise, job, now):
            counts[COMING] += 1
            _start_early(jobs, running, counts, promise, job, now)
        else:
            _append(jobs, counts)


@njit(cache=True)
def _append(jobs: Jobs, counts: Ints) -> None:
    job = counts[COMING]
    jobs.after[job] = NOBODY
    if counts[HEAD] == NOBODY:
        counts[HEAD] = job
    else:
        jobs.after[counts[TAIL]] = job
    counts[TAIL] = job
    counts[WAITING] += 1
    counts[COMING] += 1


@njit(cache=True)
def _start_first(jobs: Jobs, running: Running, counts: Ints, now: float) -> None:
    """Start from the front of the queue as long as there is room."""
    while counts[HEAD] != NOBODY and _fits(jobs, counts, counts[HEAD]):
        job = counts[HEAD]
        counts[HEAD] = jobs.after[job]
        counts[WAITING] -= 1
        _start(jobs, running, counts, job, now)


@njit(cache=True)
def _promise(jobs: Jobs, running: Running, counts: Ints, promise: Floats) -> None:
    """When the first of the queue can start at the latest: once enough of what runs has reached its latest end."""
    first = counts[HEAD]
    cores, gpus = counts[FREE_CORES], counts[FREE_GPUS]
    at = np.inf
    for place in range(counts[RUNNING]):
        slot = running.by_latest[place]
        if running.latest[slot] > at:
            break
        cores += running.cores[slot]
        gpus += running.gpus[slot]
        if at == np.inf and cores >= jobs.cores[first] and gpus >= jobs.gpus[first]:
            at = running.latest[slot]
    promise[AT] = at
    promise[SPARE_CORES] = cores - jobs.cores[first]
    promise[SPARE_GPUS] = gpus - jobs.gpus[first]


@njit(cache=True)
def _backfill(jobs: Jobs, running: Running, counts: Ints, promise: Floats, now: float, depth: int) -> None:
    before = counts[HEAD]
    job = jobs.after[before]
    tried = 0
    while job != NOBODY and tried < depth and counts[FREE_CORES] > 0:
        tried += 1
        following = jobs.after[job]
        if _is_harmless(jobs, counts, promise, job, now):
            jobs.after[before] = following
            if counts[TAIL] == job:
                counts[TAIL] = before
            counts[WAITING] -= 1
            _start_early(jobs, running, counts, promise, job, now)
        else:
            before = job
        job = following


@njit(cache=True)
def _is_harmless(jobs: Jobs, counts: Ints, promise: Floats, job: int, now: float) -> bool:
    """Whether a job fits now, and is over when the first of the queue needs room, or leaves it enough."""
    if not _fits(jobs, counts, job):
        return False
    if now + jobs.holds_s[job] <= promise[AT]:
        return True
    return bool(jobs.cores[job] <= promise[SPARE_CORES] and jobs.gpus[job] <= promise[SPARE_GPUS])


@njit(cache=True)
def _start_early(jobs: Jobs, running: Running, counts: Ints, promise: Floats, job: int, now: float) -> None:
    if now + jobs.holds_s[job] > promise[AT]:
        promise[SPARE_CORES] -= jobs.cores[job]
        promise[SPARE_GPUS] -= jobs.gpus[job]
    _start(jobs, running, counts, job, now)


@njit(cache=True)
def _fits(jobs: Jobs, counts: Ints, job: int) -> bool:
    return bool(jobs.cores[job] <= counts[FREE_CORES] and jobs.gpus[job] <= counts[FREE_GPUS])


@njit(cache=True)
def _start(jobs: Jobs, running: Running, counts: Ints, job: int, now: float) -> None:
    jobs.start[job] = now
    counts[FREE_CORES] -= jobs.cores[job]
    counts[FREE_GPUS] -= jobs.gpus[job]
    slot = running.unused[counts[RUNNING]]
    running.end[slot] = now + jobs.run_s[job]
    running.latest[slot] = now + jobs.holds_s[job]
    running.cores[slot] = jobs.cores[job]
    running.gpus[slot] = jobs.gpus[job]
    _insert(running, counts[RUNNING], slot)
    _push(running, counts[RUNNING], slot)
    counts[RUNNING] += 1


@njit(cache=True)
def _insert(running: Running, size: int, slot: int) -> None:
    """Put a slot into its place among those sorted by latest end, behind equals."""
    place = _place(running, size, running.latest[slot], True)
    for at in range(size, place, -1):
        running.by_latest[at] = running.by_latest[at - 1]
    running.by_latest[place] = slot


@njit(cache=True)
def _remove(running: Running, size: int, slot: int) -> None:
    place = _place(running, size, running.latest[slot], False)
    while running.by_latest[place] != slot:
        place += 1
    for at in range(place, size - 1):
        running.by_latest[at] = running.by_latest[at + 1]


@njit(cache=True)
def _place(running: Running, size: int, latest: float, behind: bool) -> int:
    """The first place whose latest end is not before (`behind`: is after) the one given."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        here = running.latest[running.by_latest[middle]]
        if here < latest or (behind and here == latest):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _push(running: Running, size: int, slot: int) -> None:
    heap, end = running.heap, running.end
    place = size
    while place > 0:
        above = (place - 1) // 2
        if end[heap[above]] <= end[slot]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = slot


@njit(cache=True)
def _pop(running: Running, counts: Ints) -> int:
    """Take the slot out that ends first; it can be used again."""
    heap, end = running.heap, running.end
    first = heap[0]
    _remove(running, counts[RUNNING], first)
    counts[RUNNING] -= 1
    size = counts[RUNNING]
    last = heap[size]
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and end[heap[below + 1]] < end[heap[below]]:
            below += 1
        if end[last] <= end[heap[below]]:
            break
        heap[place] = heap[below]
        place = below
    if size > 0:
        heap[place] = last
    running.unused[size] = first
    return int(first)

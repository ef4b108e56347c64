"""A scheduler for any workload: when each job would have started on a machine of a given size.

workload frame + Machine -> replay -> the same jobs with `wait_s`; frames in order -> replayed -> frames in order, in the memory
of what waits. First come, first served, with EASY backfill over cores and GPUs: the first of the queue is promised a time by the
limits of what runs, and later jobs may start before it if they do not delay it. The compiled part is replay_kernel.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.workload_columns import SUBMIT, WAIT

if TYPE_CHECKING:
    from stormpetrel.simulate.replay_kernel import Jobs, Running

DEPTH: Final = 100  # jobs behind the first that backfill looks at, as in scheduler.py
LOAD: Final = 0.7  # of a machine of unknown size
SIZED_BY: Final = 50_000  # jobs at the beginning of a stream that say how large its machine is


@dataclass(frozen=True, slots=True)
class Machine:
    """What the scheduler has to give away."""

    cores: int
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.cores < 1 or self.gpus < 0:
            raise UsageError(
                f"A machine of {self.cores} cores and {self.gpus} GPUs runs nothing.", hint="Give it one core or more."
            )


def machine_of(jobs: pl.DataFrame, *, load: float = LOAD) -> Machine:
    """The smallest machine that the largest job fits on and that these jobs keep no busier than `load`."""
    if not 0 < load <= 1:
        raise UsageError(f"load = {load} makes no sense.", hint="It is a share above 0, at most 1.")
    if not jobs.height:
        raise NotEnoughJobsError("There is no job that could say how large a machine it needs.", hint="Name a number of cores.")
    submit, cores, gpus, _, run_s = _columns(jobs)
    span_s = max(float(submit.max() - submit.min()), float(run_s.max()), 1.0)
    sizes = [max(int(size.max()), int(np.ceil((size * run_s).sum() / span_s / load))) for size in (cores, gpus)]
    return Machine(sizes[0], sizes[1])


def replay(jobs: pl.DataFrame, machine: Machine, *, depth: int = DEPTH) -> pl.DataFrame:
    """The jobs with `wait_s`, in the order in which they were given; a wait that they had is replaced.

    A job without a run time ends at once, one without a limit is expected to end when it does. One that asks for more than the
    machine has gets all of it; a machine without GPUs gives cores only.
    """
    order = jobs[SUBMIT].arg_sort()
    waits = np.empty(jobs.height)
    scheduler = Scheduler(machine, depth=depth)
    starts = np.concatenate([scheduler.submit(jobs[order]), scheduler.finish()])
    waits[order.to_numpy()] = starts
    return jobs.with_columns(pl.Series(WAIT, waits))


def replayed(frames: Iterable[pl.DataFrame], machine: Machine, *, depth: int = DEPTH) -> Iterator[pl.DataFrame]:
    """The frames of a stream, each with `wait_s`, as soon as all its jobs have started. Jobs must be in order of submission.

    Memory holds what waits: on a machine that is too small for its load that grows without end.
    """
    scheduler = Scheduler(machine, depth=depth)
    held: deque[pl.DataFrame] = deque()
    known = np.empty(0)
    for frame in chain(frames, (None,)):
        if frame is not None:
            held.append(frame)
        starts = scheduler.finish() if frame is None else scheduler.submit(frame)
        known = np.concatenate([known, starts])
        while held and held[0].height <= known.size:
            ready = held.popleft()
            yield ready.with_columns(pl.Series(WAIT, known[: ready.height]))
            known = known[ready.height :]


def sized(frames: Iterable[pl.DataFrame], *, load: float = LOAD, jobs: int = SIZED_BY) -> tuple[Machine, Iterator[pl.DataFrame]]:
    """A machine for a stream, by the first so many of its jobs, and the whole stream."""
    coming, first, height = iter(frames), list[pl.DataFrame](), 0
    for frame in coming:
        first.append(frame)
        height += frame.height
        if height >= jobs:
            break
    seen = pl.concat(first, how="vertical_relaxed") if first else pl.DataFrame(schema={SUBMIT: pl.Datetime("us", "UTC")})
    return machine_of(seen, load=load), chain(first, coming)


def mean_wait_s(jobs: pl.DataFrame) -> float:
    """The mean wait of jobs that were replayed; 0 where there are none."""
    mean = jobs[WAIT].mean()
    return float(mean) if isinstance(mean, float) else 0.0


def utilisation(jobs: pl.DataFrame, machine: Machine) -> float:
    """The share of the machine's core time that replayed jobs used between the first submission and the last."""
    if not jobs.height:
        return 0.0
    submit, cores, _, _, run_s = _columns(jobs)
    start = submit + jobs[WAIT].fill_null(0.0).to_numpy()
    first, last = submit.min(), submit.max()
    inside = np.clip(np.minimum(start + run_s, last) - np.maximum(start, first), 0.0, None)
    used = float((np.minimum(cores, machine.cores) * inside).sum())
    return used / (machine.cores * (last - first)) if last > first else 0.0


class Scheduler:
    """The scheduler of a stream: `submit` takes jobs in order, and returns the waits that are known by then, in that order.

    Waits come in the order of submission: the first one that is not known yet holds back those behind it.
    """

    def __init__(self, machine: Machine, *, depth: int = DEPTH) -> None:
        self._machine, self._depth = machine, depth
        self._counts = np.array([0, machine.cores, machine.gpus, -1, -1, 0, 0], dtype=np.int64)
        self._promise = np.array([np.inf, 0.0, 0.0])
        self._open: Jobs | None = None  # jobs whose waits have not been returned
        self._running: Running | None = None
        self._begin_s, self._last_s = np.nan, -np.inf
        self.too_large = 0  # jobs that asked for more than there is, and got all of it

    @property
    def open_jobs(self) -> int:
        """How many jobs are held because their wait, or that of a job before them, is not known yet."""
        return 0 if self._open is None else int(self._open.submit.size)

    def submit(self, jobs: pl.DataFrame) -> Floats:
        """Take more jobs, none of them submitted before the last one taken; the waits that are known."""
        if not jobs.height:
            return np.empty(0)
        submit, cores, gpus, limit_s, run_s = _columns(jobs)
        if submit[0] < self._last_s or (np.diff(submit) < 0).any():
            raise UsageError("The jobs of a stream are not in the order of submission.", hint="Sort them first.")
        self._begin_s = submit[0] if np.isnan(self._begin_s) else self._begin_s
        self._last_s = submit[-1]
        self.too_large += int((cores > self._machine.cores).sum())
        fitting = (np.minimum(cores, self._machine.cores), np.minimum(gpus, self._machine.gpus))
        self._take(submit - self._begin_s, *fitting, np.maximum(limit_s, run_s), run_s)
        # What happens at the time of the last job waits for those that may be submitted at the same time.
        return self._advance(self._last_s - self._begin_s)

    def finish(self) -> Floats:
        """Let the queue run empty; the waits that were not returned yet."""
        return self._advance(np.inf) if self._open is not None else np.empty(0)

    def _take(self, submit: Floats, cores: Ints, gpus: Ints, holds_s: Floats, run_s: Floats) -> None:
        from stormpetrel.simulate.replay_kernel import RUNNING, Jobs, Running

        size = submit.size
        more = Jobs(submit, cores, gpus, holds_s, run_s, np.full(size, np.nan), np.full(size, -1, dtype=np.int64))
        held = self._open
        self._open = more if held is None else Jobs._make(map(np.concatenate, zip(held, more, strict=True)))
        wanted = int(self._counts[RUNNING]) + self._open.submit.size
        running = self._running
        if running is None or running.end.size < wanted:
            have = 0 if running is None else running.end.size
            kinds = (np.float64, np.float64, *[np.int64] * 5)
            grown = [np.zeros(wanted - have, dtype=kind) for kind in kinds]
            grown[-1] = np.arange(have, wanted)
            self._running = Running._make(grown if running is None else map(np.concatenate, zip(running, grown, strict=True)))

    def _advance(self, horizon: float) -> Floats:
        from stormpetrel.simulate.replay_kernel import COMING, HEAD, NOBODY, TAIL, Jobs, advance

        jobs, counts = self._open, self._counts
        assert jobs is not None and self._running is not None
        advance(jobs, self._running, counts, self._promise, horizon, self._depth)
        waiting = np.isnan(jobs.start)
        known = int(waiting.argmax()) if waiting.any() else waiting.size
        waits = np.round(jobs.start[:known] - jobs.submit[:known], 6)
        self._open = Jobs._make(column[known:] for column in jobs)
        self._open.after[self._open.after != NOBODY] -= known
        counts[COMING] -= known
        if counts[HEAD] != NOBODY:
            counts[[HEAD, TAIL]] -= known
        return waits


def _columns(jobs: pl.DataFrame) -> tuple[Floats, Ints, Ints, Floats, Floats]:
    """(jobs,) submit (Unix seconds), cores, GPUs, limit (0: not known) and run time; without cores, its nodes count."""
    there = set(jobs.columns)
    size = next((name for name in ("cores", "nodes") if name in there), None)
    cores = jobs[size].fill_null(1).clip(1).to_numpy() if size else np.ones(jobs.height, dtype=np.int64)
    gpus = jobs["gpus"].fill_null(0).clip(0).to_numpy() if "gpus" in there else np.zeros(jobs.height, dtype=np.int64)
    spans = [
        jobs[name].fill_null(0.0).fill_nan(0.0).clip(0.0).to_numpy() if name in there else np.zeros(jobs.height)
        for name in ("time_limit_s", "runtime_s")
    ]
    submit = jobs[SUBMIT].dt.epoch("us").to_numpy().astype(np.float64) / 1e6
    return submit, cores.astype(np.int64), gpus.astype(np.int64), spans[0].astype(np.float64), spans[1].astype(np.float64)

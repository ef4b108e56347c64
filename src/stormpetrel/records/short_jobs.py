"""Windows of jobs too short for the grid of windows: one window per job and thread, so that short jobs are seen as well.

Trace -> short_job_windows -> Windows of each length. All threads are cut at the same moments, and a job that contains none of
these windows would only be seen in windows that it shares with others ("Mixed"). Such a job gets one window of its own on each of
its threads: its last steps, if it ran for a whole window, else all of it, which is shorter than the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import Indices, Trace
from stormpetrel.records.windows import BRIDGE_STEPS, TOO_SHORT, Windows, bridge

FEWEST_SHARE: Final = 0.1  # of a window: a job that was seen for less is not cut

Whole = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Stretches of one job on one thread: from step `first` up to, not including, `end`."""

    thread: Whole
    first: Whole
    end: Whole
    job: Indices

    def take(self, rows: npt.NDArray[np.bool_]) -> _Runs:
        return _Runs(self.thread[rows], self.first[rows], self.end[rows], self.job[rows])


def short_job_windows(
    trace: Trace, *, steps: int, origin: int = 0, until: int | None = None, bridge_steps: int = BRIDGE_STEPS
) -> list[Windows]:
    """The windows of the jobs in a trace that contain no window of `steps` steps; those of one length together, shortest first.

    Windows of the grid begin at the step `origin` and every `steps` before and after it. With `until`, the trace is a piece of a
    longer one: only jobs that end at the step `origin` or behind it, and before `until`, are cut, so that each is cut in one
    piece only, and nothing behind `until` need be known; a window before `origin` must be in it.
    """
    runs = _runs(trace.job)
    before_grid = origin - -(-origin // steps) * steps  # a beginning of a window at or before the first step
    next_start = before_grid + -(-(runs.first - before_grid) // steps) * steps
    length = runs.end - runs.first
    wanted = (runs.job >= 0) & (next_start + steps > runs.end) & (length >= max(2, round(FEWEST_SHARE * steps)))
    if until is not None:
        wanted &= (runs.end >= origin) & (runs.end < until)
    runs = runs.take(wanted)
    if not runs.job.size:
        return []
    filled, _ = bridge(trace.rates, bridge_steps)
    kept = np.minimum(runs.end - runs.first, steps)
    return [_windows(trace, filled, runs.take(kept == size), int(size)) for size in np.unique(kept)]


def without_short_jobs(windows: Windows, short: list[Windows]) -> Windows:
    """Windows without those whose thread and beginning a window of a short job has as well: it says more than a mixed one.

    Threads of a trace that is shorter than a window are not told as left out where the job on them was cut.
    """
    taken = {key for part in short for key in _keys(part)}
    if not taken:
        return windows
    kept = windows.take(np.array([key not in taken for key in _keys(windows)], dtype=bool))
    unseen = kept.left_out.get(TOO_SHORT, 0) - len(taken)
    others = {why: number for why, number in kept.left_out.items() if why != TOO_SHORT}
    return replace(kept, left_out=others | ({TOO_SHORT: unseen} if unseen > 0 else {}))


def _keys(windows: Windows) -> list[tuple[str, int, int]]:
    starts = np.round(windows.start_s * 1e6).astype(np.int64)
    nodes = [windows.nodes[node] for node in windows.node]
    return list(zip(nodes, windows.cpu.tolist(), starts.tolist(), strict=True))


def _runs(job: Indices) -> _Runs:
    """The stretches in which a thread keeps its job: (steps, threads) -> runs, by thread and time."""
    steps, threads = job.shape
    if not job.size:
        none = np.zeros(0, dtype=np.intp)
        return _Runs(none, none, none, np.zeros(0, dtype=np.int32))
    by_thread = job.T  # (threads, steps)
    begins = np.ones((threads, steps), dtype=bool)
    begins[:, 1:] = by_thread[:, 1:] != by_thread[:, :-1]
    at = np.flatnonzero(begins)
    end = np.append(at[1:], threads * steps)
    thread = at // steps
    return _Runs(thread, at % steps, end - thread * steps, by_thread.ravel()[at])


def _windows(trace: Trace, filled: npt.NDArray[np.float32], runs: _Runs, steps: int) -> Windows:
    inside = runs.end[:, None] - steps + np.arange(steps)  # (runs, steps): the last ones
    rates = filled[inside, runs.thread[:, None]]  # (runs, steps, 4)
    seen = ~np.isnan(rates).any(axis=(1, 2))
    node_names = tuple(sorted(set(trace.nodes)))
    node = np.array([node_names.index(name) for name in trace.nodes], dtype=np.int32)[runs.thread]
    cpu = np.array(trace.cpus, dtype=np.int32)[runs.thread]
    start_s = trace.time_s[inside[:, 0]] - trace.step_s
    order = np.lexsort((cpu, node, start_s))
    order = order[seen[order]]
    missed = np.isnan(trace.rates[inside, runs.thread[:, None], 0]).any(axis=1)
    return Windows(
        rates=np.ascontiguousarray(rates[order]),
        step_s=trace.step_s,
        start_s=start_s[order],
        trace=np.zeros(order.size, dtype=np.int32),
        node=node[order],
        cpu=cpu[order],
        job=runs.job[order],
        traces=(trace.name,),
        nodes=node_names,
        jobs=trace.jobs,
        left_out={"gap": int((~seen).sum())} if not seen.all() else {},
        bridged=int((missed & seen).sum()),
    )

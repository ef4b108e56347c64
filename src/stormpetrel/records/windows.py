"""Windows: pieces of equal length of the threads' traces, the unit that the models see.

Trace -> cut_windows -> Windows. All threads are cut at the same moments, so that the threads of a node or of a job can be put
side by side. A window with a gap is left out and counted; nothing is invented to fill it beyond `bridge_steps`.

Trace -> short_job_windows -> Windows of each length: a job that contains none of the common windows would only be seen in windows
that it shares with others ("Mixed"). It gets one window of its own on each of its threads: its last steps, if it ran for a whole
window, else all of it, which is shorter than the others.

Trace -> job_start_windows -> Windows of the first seconds of each job on each of its threads, wherever the others lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import IDLE, MIXED, MIXED_JOB, UNKNOWN, Indices, Rates, Seconds, Trace, TraceJob

WINDOW_STEPS: Final = 100  # the paper's window: 100 s at 1 Hz
TOO_SHORT: Final = "too short"  # why threads are left out of a trace that is shorter than a window
BRIDGE_STEPS: Final = 3  # a missed scrape or two is bridged by a straight line, and counted
FEWEST_SHARE: Final = 0.1  # of a window: a job that was seen for less is not cut

START_S: Final = 100.0  # of a job, that its first windows cover

Whole = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of one length, sorted by time, node and CPU within each trace."""

    rates: Rates  # (windows, steps, 4), finite, sums to one
    step_s: float
    start_s: Seconds  # (windows,) Unix time at the beginning of the first step
    trace: Indices  # (windows,) which of `traces`
    node: Indices  # (windows,) which of `nodes`
    cpu: Indices  # (windows,) number of the CPU on its node
    job: Indices  # (windows,) which of `jobs`, or NO_JOB, UNKNOWN_JOB, MIXED_JOB
    traces: tuple[str, ...]
    nodes: tuple[str, ...]
    jobs: tuple[TraceJob, ...]
    left_out: dict[str, int] = field(default_factory=dict)  # why -> how many windows
    bridged: int = 0  # windows that needed a bridge

    def __len__(self) -> int:
        return int(self.rates.shape[0])

    @property
    def steps(self) -> int:
        """The length of a window in steps."""
        return int(self.rates.shape[1])

    @property
    def window_s(self) -> float:
        """The length of a window in seconds."""
        return self.steps * self.step_s

    def job_types(self) -> npt.NDArray[np.str_]:
        """The job type of each window: Idle without a job, Mixed where the thread changed hands, empty where nobody knows."""
        names = np.array([*(job.job_type for job in self.jobs), MIXED, UNKNOWN, IDLE])  # the last three at -3, -2, -1
        return names[self.job]

    def is_anomalous(self) -> npt.NDArray[np.bool_]:
        """Which windows are labelled as trouble, under any name: a model must not learn from them."""
        anomalous = np.array([*(job.is_anomalous for job in self.jobs), False, False, False])  # the last three: no job's
        return anomalous[self.job]

    def of_normal(self) -> Windows:
        """The windows to learn from: neither anomalous nor mixed."""
        return self.take(~self.is_anomalous() & (self.job != MIXED_JOB))

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Windows:
        """Some of the windows, by mask, index or slice."""
        picked = {name: getattr(self, name)[rows] for name in ("rates", "start_s", "trace", "node", "cpu", "job")}
        return replace(self, **picked)

    def independent(self) -> int:
        """How many windows there are if those of one job (or of none) on one node at one moment count once: they do the same."""
        return int(np.unique(_numbered(self.trace, self.start_s, self.node, self.job)).size)

    def hours(self) -> float:
        """How many hours of time the windows cover, time that several of them share counted once."""
        covered_s = 0.0
        for trace in np.unique(self.trace):
            starts = np.unique(self.start_s[self.trace == trace])
            covered_s += float(np.minimum(np.diff(starts), self.window_s).sum()) + self.window_s
        return covered_s / 3600

    def node_graphs(self) -> npt.NDArray[np.int64]:
        """A number for each window; equal numbers are threads of the same node at the same moment."""
        return _numbered(self.trace, self.start_s, self.node)

    def job_graphs(self) -> npt.NDArray[np.int64]:
        """A number for each window; equal numbers are threads of the same job on the same node at the same moment.

        A thread without a job, or of which nobody knows, is alone.
        """
        alone = np.where(self.job < 0, np.arange(len(self)) + 1, 0)
        return _numbered(self.trace, self.start_s, self.node, self.job, alone)


def cut_windows(
    trace: Trace, *, steps: int = WINDOW_STEPS, stride: int | None = None, bridge_steps: int = BRIDGE_STEPS
) -> Windows:
    """Cut a trace into windows of `steps` steps, one every `stride` (by default side by side)."""
    stride = steps if stride is None else stride
    if steps < 2 or stride < 1:
        raise UsageError(f"Windows of {steps} steps every {stride} cannot be cut.", hint="At least 2 steps, every 1 or more.")
    firsts = np.arange(0, trace.steps - steps + 1, stride)
    inside = firsts[:, None] + np.arange(steps)  # (starts, steps)
    filled, was_missing = bridge(trace.rates, bridge_steps)
    rates = filled[inside].transpose(0, 2, 1, 3)  # (starts, threads, steps, 4)
    job = trace.job[inside].transpose(0, 2, 1)  # (starts, threads, steps)
    whole_job = np.where((job == job[..., :1]).all(axis=2), job[..., 0], MIXED_JOB).astype(np.int32)
    node_names = tuple(sorted(set(trace.nodes)))
    node_of_thread = np.array([node_names.index(node) for node in trace.nodes], dtype=np.int32)
    order = np.lexsort((np.array(trace.cpus), node_of_thread))
    shape = (firsts.size, trace.threads)
    start_s = np.broadcast_to((trace.time_s[firsts] - trace.step_s)[:, None], shape)
    seen = ~np.isnan(rates).any(axis=(2, 3))[:, order]  # (starts, threads)
    needed_bridge = was_missing[inside].any(axis=1)[:, order] & seen
    ends_lost = trace.threads if trace.steps < steps and trace.steps else 0
    return Windows(
        rates=np.ascontiguousarray(rates[:, order][seen]),
        step_s=trace.step_s,
        start_s=start_s[seen],
        trace=np.zeros(int(seen.sum()), dtype=np.int32),
        node=np.broadcast_to(node_of_thread[order], shape)[seen],
        cpu=np.broadcast_to(np.array(trace.cpus, dtype=np.int32)[order], shape)[seen],
        job=whole_job[:, order][seen],
        traces=(trace.name,),
        nodes=node_names,
        jobs=trace.jobs,
        left_out={why: n for why, n in (("gap", int((~seen).sum())), (TOO_SHORT, ends_lost)) if n},
        bridged=int(needed_bridge.sum()),
    )


def join_windows(parts: Sequence[Windows]) -> Windows:
    """Windows of several traces as one; nodes of the same name are the same node, jobs stay apart."""
    if not parts:
        raise UsageError("There are no windows to join.")
    if len({(part.steps, part.step_s) for part in parts}) > 1:
        lengths = ", ".join(sorted({f"{part.steps} steps of {part.step_s:g} s" for part in parts}))
        raise UsageError(f"Windows of different lengths cannot be put together: {lengths}.")
    nodes = tuple(sorted({node for part in parts for node in part.nodes}))
    traces: tuple[str, ...] = ()
    jobs: tuple[TraceJob, ...] = ()
    columns: dict[str, list[npt.NDArray[np.int32]]] = {"trace": [], "node": [], "job": []}
    for part in parts:
        columns["trace"].append(part.trace + np.int32(len(traces)))
        columns["node"].append(np.array([nodes.index(node) for node in part.nodes], dtype=np.int32)[part.node])
        columns["job"].append(np.where(part.job >= 0, part.job + np.int32(len(jobs)), part.job).astype(np.int32))
        traces, jobs = (*traces, *part.traces), (*jobs, *part.jobs)
    left_out: dict[str, int] = {}
    for why, number in (item for part in parts for item in part.left_out.items()):
        left_out[why] = left_out.get(why, 0) + number
    return Windows(
        rates=np.concatenate([part.rates for part in parts]),
        step_s=parts[0].step_s,
        start_s=np.concatenate([part.start_s for part in parts]),
        trace=np.concatenate(columns["trace"]),
        node=np.concatenate(columns["node"]),
        cpu=np.concatenate([part.cpu for part in parts]),
        job=np.concatenate(columns["job"]),
        traces=traces,
        nodes=nodes,
        jobs=jobs,
        left_out=left_out,
        bridged=sum(part.bridged for part in parts),
    )


def bridge(rates: Rates, longest: int) -> tuple[Rates, npt.NDArray[np.bool_]]:
    """Rates with gaps of up to `longest` steps filled by a straight line between their ends, and what was missing before.

    A mixture of two shares is a share: the bridged steps still sum to one. Longer gaps, and those at an end, stay.
    """
    missing = np.isnan(rates[..., 0])  # (steps, threads)
    inner = _has_inner_gap(missing)
    if longest < 1 or not inner.any():
        return rates, missing
    if not inner.all():  # of a few threads only
        filled = rates.copy()
        filled[:, inner], _ = bridge(rates[:, inner], longest)
        return filled, missing
    steps = missing.shape[0]
    at = np.arange(steps)[:, None]
    before = np.maximum.accumulate(np.where(missing, -1, at), axis=0)  # last step seen
    after = np.minimum.accumulate(np.where(missing, steps, at)[::-1], axis=0)[::-1]  # next step seen
    short = missing & (before >= 0) & (after < steps) & (after - before - 1 <= longest)
    step, thread = np.nonzero(short)
    first, last = before[step, thread], after[step, thread]
    weight = ((step - first) / (last - first)).astype(np.float32)[:, None]
    filled = rates.copy()
    filled[step, thread] = (1 - weight) * rates[first, thread] + weight * rates[last, thread]
    return filled, missing


def _has_inner_gap(missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which threads have a step that is missing between two that are not: (steps, threads) -> (threads,)."""
    if not missing.any():
        return np.zeros(missing.shape[1], dtype=bool)
    seen = ~missing
    first, last = seen.argmax(axis=0), len(seen) - 1 - seen[::-1].argmax(axis=0)
    count = seen.sum(axis=0)
    inner: npt.NDArray[np.bool_] = (count > 0) & (count < last - first + 1)
    return inner


def _numbered(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Rows with equal columns get the same number."""
    order = np.lexsort(columns)
    new = np.zeros(order.size, dtype=bool)
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(order.size, dtype=np.int64)
    numbers[order] = np.cumsum(new)
    return numbers


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


def start_steps(steps: int, step_s: float) -> tuple[int, int]:
    """The length in steps of the windows that a job begins with, and how many there are, where others have `steps`.

    Together they cover at most the first START_S seconds: a job is seen some seconds after its start, and what it did in its
    first two minutes is to be known when these are over.

    >>> start_steps(100, 1.0), start_steps(30, 1.0), start_steps(300, 1.0)
    ((100, 1), (30, 3), (100, 1))
    """
    most = max(2, int(START_S / step_s))
    return min(steps, most), max(1, most // steps)


def job_start_windows(
    trace: Trace, *, steps: int, count: int = 1, origin: int = 0, until: int | None = None, bridge_steps: int = BRIDGE_STEPS
) -> Windows:
    """The first `count` windows of `steps` steps of each job on each of its threads, side by side from its first step there.

    With `until`, the trace is a piece of a longer one: only windows that end behind the step `origin` and at `until` at the
    latest are cut, so that each is cut in one piece only; `count` windows before `origin` must be in it.
    """
    runs = _runs(trace.job)
    filled, _ = bridge(trace.rates, bridge_steps)
    parts = []
    for number in range(1, count + 1):
        end = runs.first + number * steps
        wanted = (runs.job >= 0) & (end <= runs.end)
        if until is not None:
            wanted &= (runs.first > 0) & (end > origin) & (end <= until)
        parts.append(_windows(trace, filled, replace(runs, end=end).take(wanted), steps))
    return join_windows(parts)


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

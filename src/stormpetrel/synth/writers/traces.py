"""CPU traces of synthetic jobs: what the threads do that these jobs hold, while they hold them.

job frame with nodes, start and end -> job_traces -> Traces (train, validation, test) of some hours on some nodes;
write_job_traces -> campaign files, and `threads.csv` that says whose job ran on which threads. What a job does (trace_types.py)
is drawn by user and request: the like jobs of a user behave alike. A job that fails falls silent or hangs before its end. A
thread without a job idles.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.spreadsheet import without_formulas
from stormpetrel.records.states import JobState
from stormpetrel.records.traces import (
    BAD_IO,
    GOOD_IO,
    HUNG,
    IDLE,
    NO_JOB,
    NP,
    SILENT,
    SWAPPING,
    Indices,
    Rates,
    Split,
    Trace,
    TraceJob,
    mpi,
)
from stormpetrel.records.windows import WINDOW_STEPS
from stormpetrel.simulate.telemetry.kernel_ticks import counted, with_node_noise
from stormpetrel.simulate.telemetry.schedule import cpu_of_slot
from stormpetrel.simulate.telemetry.trace_types import JOB_SHARES, MPI, JobShape, Shares
from stormpetrel.sources.trace_files import SUFFIX, write_trace

HOURS: Final = 4.0
NODES: Final = 4
THREADS_FILE: Final = "threads.csv"
_USUAL_THREADS: Final = 128  # as many nodes as have so many together, unless a number of nodes was named
_MOST_VALUES: Final = 2**27  # of the rates: half a gigabyte
# The parts of the span, in the order of time.
_PARTS: Final = ((Split.TRAIN, 0.5), (Split.VALIDATION, 0.2), (Split.TEST, 0.3))
# What jobs do, by their share; one thread cannot wait for others.
_ALONE: Final = {NP: 0.52, GOOD_IO: 0.26, BAD_IO: 0.14, IDLE: 0.08}
_TOGETHER: Final = {MPI: 0.38, NP: 0.28, GOOD_IO: 0.15, BAD_IO: 0.14, IDLE: 0.05}
_CPU_SHARES: Final = {NP: (0.96, 0.01), MPI: (0.90, 0.09), GOOD_IO: (0.57, 0.27), BAD_IO: (0.03, 0.14), IDLE: (0.001, 0.002)}
_STARVED: Final = 0.2  # of the CPU-bound: their data do not fit in memory
_LEAD_S: Final = 120  # of a job that runs already when the span begins, so much is made and cut off: it is past its start-up
_STALLED: Final = (0.05, 0.4)  # of its run time, what a job spends silent or hung before its end
_LONGEST_STALL_S, _SHORTEST_STALL_S = 3600.0, 120.0
_JOB_STREAM, _NODE_STREAM = 11, 12


@dataclass(frozen=True, slots=True)
class _Stall:
    """What a job does that does nothing useful any more: the type of its last seconds, and user, system and iowait."""

    job_type: str
    levels: tuple[float, float, float]


_SILENT, _SPINS = _Stall(SILENT, (0.0, 0.002, 0.0)), _Stall(HUNG, (0.985, 0.012, 0.0))
_WAITS, _SWAPS = _Stall(HUNG, (0.0, 0.01, 0.97)), _Stall(SWAPPING, (0.12, 0.25, 0.55))
# How jobs end that do not end well, and the share of each way.
_ENDS: Final[dict[str, tuple[tuple[float, _Stall], ...]]] = {
    JobState.FAILED.value: ((0.6, _SILENT), (0.2, _SPINS), (0.2, _WAITS)),
    JobState.NODE_FAIL.value: ((0.5, _SILENT), (0.5, _WAITS)),
    JobState.BOOT_FAIL.value: ((1.0, _SILENT),),
    JobState.OUT_OF_MEMORY.value: ((1.0, _SWAPS),),
    JobState.TIMEOUT.value: ((0.2, _SILENT), (0.2, _SPINS), (0.1, _WAITS)),  # the other half was just too slow
    JobState.CANCELLED.value: ((0.3, _SILENT),),
}
_FACTS: Final = ("job_id_raw", "user", "job_name", "cpus", "req_cpus", "state")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a job does: its type as traces name it, and whether it waits for data that do not fit in memory."""

    job_type: str
    starved: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """The seconds of the span in which a job runs, from which on it is stuck, and what its threads do."""

    seconds: slice
    stuck: int
    shares: Shares  # (seconds, threads, 3)
    stuck_type: str | None


@dataclass(frozen=True, slots=True)
class TracedSpan:
    """Which traces are wanted: so many hours up to `until`, on so many nodes (as many as are usual if None) drawn by the seed."""

    until: datetime
    threads_per_node: int
    hours: float = HOURS
    nodes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.hours <= 24 * 366 or self.steps < len(_PARTS) * WINDOW_STEPS:
            raise UsageError(
                f"Traces of {self.hours:g} hours cannot be made.",
                hint=f"At least {len(_PARTS) * WINDOW_STEPS / 3600:.2f} hours: a window for each part.",
            )
        if (self.nodes is not None and self.nodes < 1) or self.threads_per_node < 1:
            raise UsageError("Traces need a node and a thread at least.")
        values = self.steps * self.most_nodes * self.threads_per_node * 4
        if values > _MOST_VALUES:
            raise UsageError(
                f"{self.hours:g} hours of {self.most_nodes} nodes with {self.threads_per_node} threads each are too many.",
                hint=f"Ask for {_MOST_VALUES / values:.0%} of it: fewer hours, or fewer nodes.",
            )

    @property
    def steps(self) -> int:
        """How many seconds, in whole windows."""
        return int(self.hours * 3600) // WINDOW_STEPS * WINDOW_STEPS

    @property
    def most_nodes(self) -> int:
        """How many nodes, if as many have work."""
        return self.nodes or max(1, min(NODES, _USUAL_THREADS // self.threads_per_node))

    @property
    def start_s(self) -> int:
        """Unix time of the beginning."""
        return int(self.until.timestamp()) - self.steps


@dataclass(frozen=True, slots=True, eq=False)
class JobTraces:
    """Traces of the parts of a span, and a row for each job on each node: whose it is, what it does, which threads, when."""

    traces: tuple[Trace, ...]
    threads: pl.DataFrame


def job_traces(jobs: pl.DataFrame, span: TracedSpan, *, progress: Callable[[float], None] | None = None) -> JobTraces:
    """What the threads of some nodes did in a span of time, and for which of these jobs; the same for the same seed."""
    held = held_threads(jobs, threads_per_node=span.threads_per_node, since_s=span.start_s, until_s=span.start_s + span.steps)
    nodes = drawn_nodes(held, span.most_nodes, span.seed)
    if not nodes:
        raise NotEnoughJobsError(
            f"No job ran in the {span.hours:g} hours up to {span.until:%Y-%m-%d %H:%M}: there is nothing to trace.",
            hint="Ask for more hours, or for more jobs.",
        )
    here = [threads for threads in held if threads.node in nodes]
    rows = sorted({threads.job for threads in here})
    facts = jobs.select(_FACTS)[rows].to_dicts()
    doing = [behaviour_of(fact, span.seed) for fact in facts]
    number_of = {row: number for number, row in enumerate(rows)}
    board = _Board(span, facts, doing)
    rates = np.empty((span.steps, len(nodes) * span.threads_per_node, 4), dtype=np.float32)
    job = np.full(rates.shape[:2], NO_JOB, dtype=np.int32)
    for place, node in enumerate(nodes):
        part = slice(place * span.threads_per_node, (place + 1) * span.threads_per_node)
        rates[:, part] = board.node_rates(
            node, [(number_of[threads.job], threads) for threads in here if threads.node == node], job[:, part]
        )
        if progress is not None:
            progress((place + 1) / len(nodes))
    table = _thread_table(here, number_of, facts, doing, span.start_s + span.steps)
    return JobTraces(_parts(span, nodes, rates, job, tuple(board.jobs)), table)


class _Board:
    """Who does what: the jobs as traces name them, those that are stuck a second time with the type of their end."""

    def __init__(self, span: TracedSpan, facts: list[dict[str, object]], doing: list[Behaviour]) -> None:
        self._span, self._facts, self._doing = span, facts, doing
        self.jobs = [TraceJob(str(fact["job_id_raw"]), does.job_type) for fact, does in zip(facts, doing, strict=True)]
        self._stuck: dict[int, int] = {}  # number of a job -> its number once it is stuck

    def node_rates(self, node: str, here: list[tuple[int, HeldThreads]], job: Indices) -> Rates:
        """The rates of a node's threads (steps, threads, 4); `job` (steps, threads) is filled in on the way."""
        span = self._span
        shares = np.zeros((span.steps, span.threads_per_node, 3), dtype=np.float32)
        for number, held in here:
            work = _work_of(held, self._facts[number], self._doing[number], span)
            cpus = np.array(held.cpus)
            shares[work.seconds, cpus] = work.shares
            job[work.seconds, cpus] = number
            if work.stuck_type is not None:
                job[work.stuck : work.seconds.stop, cpus] = self._number_once_stuck(number, work.stuck_type)
        rng = np.random.default_rng([span.seed, _NODE_STREAM, _number(node)])
        return counted(rng, with_node_noise(rng, shares, 1.0), 1.0)

    def _number_once_stuck(self, number: int, job_type: str) -> int:
        if number not in self._stuck:
            self._stuck[number] = len(self.jobs)
            self.jobs.append(TraceJob(self.jobs[number].job_id, job_type))
        return self._stuck[number]


def write_job_traces(
    jobs: pl.DataFrame, folder: Path, span: TracedSpan, *, progress: Callable[[float], None] | None = None
) -> JobTraces:
    """Write the traces into a folder, for `stormpetrel ingest traces FOLDER`; what was written."""
    traced = job_traces(jobs, span, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traced.traces:
        write_trace(trace, folder / f"{trace.name}{SUFFIX}")
    with writing_private(folder / THREADS_FILE) as file:
        without_formulas(traced.threads).write_csv(file, datetime_format="%Y-%m-%dT%H:%M:%SZ")
    return traced


def behaviour_of(job: dict[str, object], seed: int) -> Behaviour:
    """What a job does, by its user and what it asks for (job names say that, see job_records.py), and the seed."""
    cores = _cores(job)
    shares = _ALONE if cores < 2 else _TOGETHER
    # Two numbers out of one: a generator for each job would take ten times as long.
    drawn, rest = divmod(_number(f"{seed}\n{job['user']}\n{job['job_name']}\n{cores}"), 2**32)
    kind = list(shares)[min(bisect(list(accumulate(shares.values())), drawn / 2**32), len(shares) - 1)]
    return Behaviour(mpi(cores) if kind == MPI else kind, starved=kind == NP and rest / 2**32 < _STARVED)


def cpu_share(does: Behaviour) -> tuple[float, float]:
    """About which share of its time a thread of such a job spends in user and in system."""
    return _CPU_SHARES[MPI if does.job_type.startswith(MPI) else does.job_type]


def _work_of(held: HeldThreads, job: dict[str, object], does: Behaviour, span: TracedSpan) -> _Work:
    """What a job does on one node in the seconds of the span in which it runs."""
    begin, end = max(held.start_s - span.start_s, 0), min(held.end_s - span.start_s, span.steps)
    lead = min(_LEAD_S, max(span.start_s - held.start_s, 0))
    rng = np.random.default_rng([span.seed, _JOB_STREAM, _number(f"{job['job_id_raw']} {held.node}")])
    shape = JobShape(len(held.cpus), end - begin + lead, 1.0, does.starved)
    shares = JOB_SHARES[MPI if does.job_type.startswith(MPI) else does.job_type](rng, shape)[lead:]
    stall, since_s = _stall(job, held)
    if stall is None:
        return _Work(slice(begin, end), end, shares, None)
    first = int(np.clip(since_s - span.start_s, begin, end))
    level = np.array(stall.levels, dtype=np.float32)
    shares[first - begin :] = level * rng.uniform(0.97, 1.0, (end - first, shape.threads, 1))
    return _Work(slice(begin, end), first, shares, stall.job_type)


def _stall(job: dict[str, object], held: HeldThreads) -> tuple[_Stall | None, float]:
    """What a job does in the end that does not end well, and from when on (Unix time); the same on all its nodes."""
    rng = np.random.default_rng(_number(f"end {job['job_id_raw']}"))
    drawn, run_s = float(rng.random()), held.end_s - held.start_s
    for share, stall in _ENDS.get(str(job["state"]), ()):
        drawn -= share
        if drawn < 0:
            wanted_s = np.clip(run_s * rng.uniform(*_STALLED), _SHORTEST_STALL_S, _LONGEST_STALL_S)
            return stall, held.end_s - min(float(wanted_s), run_s / 2)
    return None, float(held.end_s)


def _parts(span: TracedSpan, nodes: Sequence[str], rates: Rates, job: Indices, jobs: tuple[TraceJob, ...]) -> tuple[Trace, ...]:
    """The span cut into a part to learn from, one to stop by and one to judge by, each with the jobs that are seen in it."""
    windows = span.steps // WINDOW_STEPS
    shares = np.cumsum([share for _, share in _PARTS])
    cuts = np.clip(np.round(shares * windows).astype(int), np.arange(1, len(_PARTS) + 1), windows - np.arange(len(_PARTS))[::-1])
    edges = [0, *(cuts * WINDOW_STEPS).tolist()]
    time_s = np.arange(1, span.steps + 1, dtype=np.float64) + span.start_s
    traces = []
    for (split, _), first, last in zip(_PARTS, edges, edges[1:], strict=False):
        inside = job[first:last]
        seen = np.unique(inside[inside >= 0])
        number = np.full(len(jobs) + 1, NO_JOB, dtype=np.int32)  # the last one at -1: no job
        number[seen] = np.arange(seen.size)
        traces.append(
            Trace(
                name=f"synthetic-{split.value}",
                step_s=1.0,
                time_s=time_s[first:last],
                nodes=tuple(node for node in nodes for _ in range(span.threads_per_node)),
                cpus=tuple(range(span.threads_per_node)) * len(nodes),
                rates=rates[first:last],
                job=number[inside],
                jobs=tuple(jobs[place] for place in seen.tolist()),
                split=split,
            )
        )
    return tuple(traces)


def _thread_table(
    held: list[HeldThreads], number_of: dict[int, int], facts: list[dict[str, object]], doing: list[Behaviour], until_s: int
) -> pl.DataFrame:
    rows = [
        {
            "job": str(facts[number_of[threads.job]]["job_id_raw"]),
            "user": facts[number_of[threads.job]]["user"],
            "job_name": facts[number_of[threads.job]]["job_name"],
            # What comes after the span is not revealed.
            "state": facts[number_of[threads.job]]["state"] if threads.end_s <= until_s else JobState.RUNNING.value,
            "type": doing[number_of[threads.job]].job_type,
            "node": threads.node,
            "cpus": " ".join(str(cpu) for cpu in threads.cpus),
            "start": datetime.fromtimestamp(threads.start_s, UTC),
            "end": datetime.fromtimestamp(threads.end_s, UTC) if threads.end_s <= until_s else None,
        }
        for threads in held
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _cores(job: dict[str, object]) -> int:
    for name in ("cpus", "req_cpus"):
        if isinstance(cores := job[name], int):
            return max(1, cores)
    return 1


def _number(text: str) -> int:
    """A number that stands for a text, the same everywhere and always."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class HeldThreads:
    """The threads that a job (a row of its frame) holds on one node, and from when to when (Unix seconds)."""

    job: int
    node: str
    cpus: tuple[int, ...]
    start_s: int
    end_s: int


def held_threads(jobs: pl.DataFrame, *, threads_per_node: int, since_s: int, until_s: int) -> list[HeldThreads]:
    """What the jobs hold that run between the two times, by job and node; no thread is held by two jobs at once."""
    free: defaultdict[str, list[int]] = defaultdict(lambda: list(range(threads_per_node)))  # slots in core order, lowest first
    ends: list[tuple[int, int, str, list[int]]] = []
    held: list[HeldThreads] = []
    for job, start_s, end_s, shares in _shared_out(jobs, threads_per_node, until_s):
        if end_s <= since_s:  # who is gone before the span holds nothing in it
            continue
        while ends and ends[0][0] <= start_s:
            _, _, node, slots = heapq.heappop(ends)
            free[node] = sorted(free[node] + slots)
        for node, cores in shares:
            slots, free[node] = free[node][:cores], free[node][cores:]
            heapq.heappush(ends, (end_s, len(held), node, slots))
            cpus = tuple(sorted(cpu_of_slot(slot, threads_per_node) for slot in slots))
            held.append(HeldThreads(job, node, cpus, start_s, end_s))
    return sorted(held, key=lambda threads: (threads.job, threads.node))


def _shared_out(jobs: pl.DataFrame, threads_per_node: int, until_s: int) -> Iterator[tuple[int, int, int, list[tuple[str, int]]]]:
    """Row, start, end, and cores on each node of every job that ran, in the order of their starts.

    Of several nodes the emptiest is filled first: as `places` of answers/workload/recorded_site.py allocates them.
    """
    facts = (
        jobs.with_row_index("_row")
        .filter(pl.col("start_time").is_not_null(), pl.col("end_time") > pl.col("start_time"), pl.col("node_list").is_not_null())
        .select(
            pl.col("_row").cast(pl.Int64),
            pl.col("start_time").dt.epoch("s").alias("start"),
            pl.col("end_time").dt.epoch("s").alias("end"),
            pl.coalesce("cpus", "req_cpus", pl.lit(1)).cast(pl.Int64).clip(1).alias("cores"),
            "node_list",
        )
        .filter(pl.col("start") < until_s)
        .sort("start", "_row")
    )
    nodes_of = {listed: expand_nodes(listed) for listed in facts["node_list"].unique()}
    free: defaultdict[str, int] = defaultdict(lambda: threads_per_node)
    ends: list[tuple[int, int, list[tuple[str, int]]]] = []
    for row, start_s, end_s, cores, listed in facts.iter_rows():
        while ends and ends[0][0] <= start_s:
            for node, taken in heapq.heappop(ends)[2]:
                free[node] += taken
        shares, left = [], cores
        for node in sorted(nodes_of[listed], key=lambda name: -free[name]):
            taken = min(free[node], left)
            if taken:
                shares.append((node, taken))
                free[node] -= taken
                left -= taken
        heapq.heappush(ends, (end_s, row, shares))
        yield row, start_s, end_s, shares


def drawn_nodes(held: list[HeldThreads], count: int, seed: int) -> list[str]:
    """So many of the nodes that work in the span, drawn by the seed, by name."""
    working = sorted({threads.node for threads in held})
    drawn = np.random.default_rng([seed, len(working)]).permutation(len(working))[:count]
    return sorted(working[place] for place in drawn.tolist())

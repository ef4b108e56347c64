"""The sliding score: how abnormal the last window of every thread is, anew with each step, and what it comes to in spans.

rates of one step (threads, 4) -> SlidingScores.push -> error (threads,). It is the score of the whole window that ends with this
step, by the graph of `fast` that embeds, decodes and scores at once: exact, not an estimate. Of each thread the last window is
held and nothing else. To reuse the patches that a window shares with the one before would save a tenth at most, because nine
tenths of the work come behind them.

NodeSteps of many nodes -> SlidingSpans.push; SlidingSpans.take -> a frame of SPAN_SCHEMA: how many scores were above the
threshold, by node and job, and since when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import MODES, NO_JOB, UNKNOWN_JOB, Indices, NodeSteps
from stormpetrel.traces.networks.runtime import FAST_AT_ONCE, TraceScorer

Array = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

SPAN_SCHEMA: Final = pl.Schema(
    {
        "node": pl.String(),  # empty: all nodes together
        "job_id": pl.String(),  # null: threads without a known job
        "first_step": pl.Int64(),  # of the span; it begins at this number times the length of a step, in Unix time
        "threads": pl.Int32(),  # that had a score in it
        "scored": pl.Int64(),  # scores of them, one for each step
        "above": pl.Int64(),  # of these above the threshold
        "threads_above": pl.Int32(),  # with at least one of them
        "peak": pl.Float32(),  # the highest, divided by the threshold
        "cpu": pl.Int32(),  # of the thread with the highest; null for all nodes together
        "above_since": pl.Int64(),  # the step of the first one above; null: none was
    }
)

_NOT_SEEN: Final = np.float32(np.nan)
_LEAST: Final = 1e-12  # threshold that a peak is divided by
_NEVER: Final = np.iinfo(np.int64).min // 2
_GROWTH: Final = 8  # room for an eighth more threads, when there is no room left


class SlidingScores:
    """The last window of some threads, and its score after each step.

    A thread has no score (NaN) before it was seen for a whole window, and for as long as a step that was missed lies within it.
    Steps have numbers: not all threads need to come to the same step at the same time, but each of them in order.
    """

    def __init__(self, scorer: TraceScorer, threads: int) -> None:
        self._scorer, self.threads = scorer, threads
        self._steps = scorer.settings.steps
        self._ring: Array = np.full((threads, self._steps, len(MODES)), _NOT_SEEN, dtype=np.float32)
        self._next = 0  # the number of the step that comes next, where nobody says
        self._last = np.full(threads, _NEVER, dtype=np.int64)  # the number of the last step of each
        self._seen = np.zeros(threads, dtype=np.int64)  # steps without a gap up to now

    @property
    def bytes_held(self) -> int:
        """Memory that the windows need."""
        return self._ring.nbytes + self._last.nbytes + self._seen.nbytes

    def push(self, rates: Array, *, step: int | None = None, rows: Numbers | None = None) -> Array:
        """Take one step of threads, NaN where one was not seen; return the error of each window that it ends.

        Parameters
        ----------
        rates
            Of every thread, or of those in `rows`: (threads, 4).
        step
            The number of the step; that behind the last one by default.
        rows
            The threads that the step is of, each once; all by default.
        """
        threads = self.threads if rows is None else len(rows)
        if rates.shape != (threads, len(MODES)):
            raise ModelError(f"A step of {threads} threads has the shape {threads} × 4, not {rates.shape}.")
        number = self._next if step is None else step
        chosen: Any = slice(None) if rows is None else rows
        self._next = number + 1
        self._ring[chosen, number % self._steps] = rates
        follows = np.isfinite(rates).all(axis=1) & (self._last[chosen] == number - 1)
        alone = np.isfinite(rates).all(axis=1) & ~follows
        self._seen[chosen] = np.where(follows, self._seen[chosen] + 1, np.where(alone, 1, 0))
        self._last[chosen] = number
        return self._scores(number, chosen, self._seen[chosen] >= self._steps)

    def windows(self) -> Array:
        """The last window of each thread, oldest step first: (threads, steps, 4); all must have come to the same step."""
        return np.roll(self._ring, -(self._next % self._steps), axis=1)

    def grow(self, threads: int) -> None:
        """Make room for so many threads; those that are there stay as they are."""
        more = threads - self.threads
        if more <= 0:
            return
        self._ring = np.concatenate([self._ring, np.full((more, *self._ring.shape[1:]), _NOT_SEEN, dtype=np.float32)])
        self._last = np.concatenate([self._last, np.full(more, _NEVER, dtype=np.int64)])
        self._seen = np.concatenate([self._seen, np.zeros(more, dtype=np.int64)])
        self.threads = threads

    def forget(self, rows: Numbers) -> None:
        """Forget the windows of some threads: their places are for others."""
        self._seen[rows], self._last[rows] = 0, _NEVER

    def _scores(self, number: int, chosen: Any, whole: npt.NDArray[np.bool_]) -> Array:
        """Portion by portion, so that a portion's windows, put in order, stay in the cache."""
        scores = np.full(len(whole), _NOT_SEEN, dtype=np.float32)
        oldest = (number + 1) % self._steps
        behind = self._steps - oldest
        portion: Array = np.empty((FAST_AT_ONCE, self._steps, len(MODES)), dtype=np.float32)
        for first in range(0, len(whole), FAST_AT_ONCE):
            rows = slice(first, min(first + FAST_AT_ONCE, len(whole)))
            if not whole[rows].any():
                continue
            ring = self._ring[rows if isinstance(chosen, slice) else chosen[rows]]
            ordered = portion[: rows.stop - first]
            ordered[:, :behind], ordered[:, behind:] = ring[:, oldest:], ring[:, :oldest]
            _, error = self._scorer.embed_and_score_rates(ordered)
            scores[rows] = np.where(whole[rows], error, _NOT_SEEN)
        return scores


@dataclass(slots=True, eq=False)
class _Node:
    """Where the threads of one node lie, and what is known of them in the span that goes on."""

    cpus: tuple[int, ...]
    rows: Numbers  # of SlidingScores
    next: int  # the number of the step that comes next
    job: npt.NDArray[np.object_]  # on each thread: a name, or why there is none
    job_since: Numbers  # the step since which it has been there
    scored: Numbers
    above: Numbers
    peak: Array
    above_since: Numbers


@dataclass(frozen=True, slots=True)
class _Arrival:
    """What has come of a node and was not scored yet: its steps from `first` up to `end`."""

    node: _Node
    steps: NodeSteps
    jobs: npt.NDArray[np.object_]  # on each thread after each step: (steps, cpus)
    first: int
    end: int

    @classmethod
    def of(cls, node: _Node, steps: NodeSteps) -> _Arrival:
        """The steps that a node has not seen."""
        return cls(node, steps, _names(steps), max(node.next, steps.first), steps.first + len(steps.rates))


class SlidingSpans:
    """The sliding score of the threads of many nodes, summed up in spans of some steps by node and job.

    A thread counts as above the threshold only where one job (or none) was on it for the whole window, as a window is flagged.
    Nodes with nothing above have no row of their own, but are in that of all nodes together.
    """

    def __init__(self, scorer: TraceScorer, threshold: float, span_steps: int) -> None:
        self._scores, self._threshold, self._span = SlidingScores(scorer, 0), threshold, span_steps
        self._window = scorer.settings.steps
        self._nodes: dict[str, _Node] = {}
        self._free: list[int] = []
        self._rows: dict[int, list[dict[str, Any]]] = {}  # of spans that are not taken yet, by node and job

    @property
    def threads(self) -> int:
        """How many are followed."""
        return sum(len(node.cpus) for node in self._nodes.values())

    @property
    def done(self) -> int | None:
        """The number of the step up to which every node has come; None where there is no node."""
        return min((node.next for node in self._nodes.values()), default=None)

    def push(self, new: Iterable[NodeSteps]) -> None:
        """Take the steps that came of some nodes, each node once."""
        arrivals = [_Arrival.of(self._place(steps), steps) for steps in new]
        arrivals = [arrival for arrival in arrivals if arrival.first < arrival.end]
        if not arrivals:
            return
        for number in range(min(arrival.first for arrival in arrivals), max(arrival.end for arrival in arrivals)):
            of_step = [arrival for arrival in arrivals if arrival.first <= number < arrival.end]
            if of_step:
                self._step(number, of_step)

    def take(self, before: int) -> pl.DataFrame:
        """Give out the spans that end at or before a step, as a frame of SPAN_SCHEMA: what comes of them later is lost.

        Nodes that have not come near that step are gone.
        """
        limit = before // self._span
        for name, node in list(self._nodes.items()):
            self._close(name, node, limit)
            if node.next < before - 2 * self._window:
                self._scores.forget(node.rows)
                self._free += node.rows.tolist()
                del self._nodes[name]
        spans = sorted(span for span in self._rows if span < limit)
        return pl.concat([pl.DataFrame(schema=SPAN_SCHEMA), *(self._frame(span, self._rows.pop(span)) for span in spans)])

    def _step(self, number: int, arrivals: Sequence[_Arrival]) -> None:
        """One step of the nodes that have come to it."""
        for arrival in arrivals:
            node, job = arrival.node, arrival.jobs[number - arrival.steps.first]
            self._close(arrival.steps.node, node, number // self._span)
            changed = (job != node.job) | (node.next != number)
            node.job_since = np.where(changed, number, node.job_since)
            node.job, node.next = job, number + 1
        rows = np.concatenate([arrival.node.rows for arrival in arrivals])
        rates = np.concatenate([arrival.steps.rates[number - arrival.steps.first] for arrival in arrivals])
        scores = self._scores.push(rates, step=number, rows=rows)
        place = 0
        for node in (arrival.node for arrival in arrivals):
            of_node = scores[place : place + len(node.cpus)]
            place += len(node.cpus)
            steady = np.isfinite(of_node) & (number - node.job_since + 1 >= self._window)
            if not steady.any():
                continue
            above = steady & (of_node > self._threshold)
            node.scored += steady
            node.above += above
            node.peak = np.where(steady, np.fmax(node.peak, of_node), node.peak)
            node.above_since = np.where(above & (node.above_since < 0), number, node.above_since)

    def _close(self, name: str, node: _Node, span: int) -> None:
        """Sum up the span that a node was in, where it has come to another."""
        was = (node.next - 1) // self._span
        if span <= was or not node.scored.any():
            return
        for job in dict.fromkeys(node.job.tolist()):
            there = (node.job == job) & (node.scored > 0)
            if not there.any():
                continue
            peak = int(np.argmax(np.where(there, node.peak, -np.inf)))
            since = node.above_since[there & (node.above > 0)]
            row = {
                "node": name,
                "job_id": job if isinstance(job, str) else None,
                "first_step": was * self._span,
                "threads": int(there.sum()),
                "scored": int(node.scored[there].sum()),
                "above": int(node.above[there].sum()),
                "threads_above": int((node.above[there] > 0).sum()),
                "peak": float(node.peak[peak]) / max(self._threshold, _LEAST),
                "cpu": node.cpus[peak],
                "above_since": int(since.min()) if since.size else None,
            }
            self._rows.setdefault(was, []).append(row)
        node.scored, node.above, node.peak, node.above_since = _nothing(len(node.cpus))

    def _frame(self, span: int, rows: list[dict[str, Any]]) -> pl.DataFrame:
        """The rows of nodes with something above the threshold, and one of all nodes together."""
        together = pl.DataFrame(rows, schema=SPAN_SCHEMA)
        everything = together.select(
            node=pl.lit(""),
            job_id=pl.lit(None, dtype=pl.String),
            first_step=pl.lit(span * self._span, dtype=pl.Int64),
            threads=pl.col("threads").sum(),
            scored=pl.col("scored").sum(),
            above=pl.col("above").sum(),
            threads_above=pl.col("threads_above").sum(),
            peak=pl.col("peak").max(),
            cpu=pl.lit(None, dtype=pl.Int32),
            above_since=pl.col("above_since").min(),
        )
        has_any = (pl.col("above") > 0).any().over("node")
        return pl.concat([everything, together.filter(has_any).sort("node", "job_id")]).cast(SPAN_SCHEMA)

    def _place(self, steps: NodeSteps) -> _Node:
        """The node that steps are of; one whose CPUs are others than before begins anew."""
        node = self._nodes.get(steps.node)
        if node is not None and node.cpus == steps.cpus:
            return node
        if node is not None:
            self._close(steps.node, node, steps.first // self._span)
            self._scores.forget(node.rows)
            self._free += node.rows.tolist()
        size = len(steps.cpus)
        missing = size - len(self._free)
        if missing > 0:
            had = self._scores.threads
            self._scores.grow(had + max(missing, had // _GROWTH))
            self._free += range(had, self._scores.threads)
        rows, self._free = np.array(self._free[:size], dtype=np.int64), self._free[size:]
        empty = np.full(size, None, dtype=object)
        node = _Node(steps.cpus, rows, steps.first, empty, np.full(size, steps.first, dtype=np.int64), *_nothing(size))
        self._nodes[steps.node] = node
        return node


def _nothing(size: int) -> tuple[Numbers, Numbers, Array, Numbers]:
    return (
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.full(size, -np.inf, dtype=np.float32),
        np.full(size, -1, dtype=np.int64),
    )


def _names(steps: NodeSteps) -> npt.NDArray[np.object_]:
    """The job on each thread after each step: its id, or the number that says why there is none. (steps, cpus)."""
    names = np.array([*steps.jobs, UNKNOWN_JOB, NO_JOB], dtype=object)
    job: Indices = steps.job
    return names[job]  # from behind: -1 is no job, -2 unknown

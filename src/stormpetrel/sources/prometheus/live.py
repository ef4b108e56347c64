"""The CPU counters of a Prometheus as they come: read in pieces while a window fills, kept as shares until it can be cut.

PrometheusTraces -> LiveTraces.moments(now) -> the traces around each window, as soon as every exporter that was there has told of
a moment behind its end, or `settle_s` behind its end at the latest. What is held grows with the threads and the length of a
window, not with time; after a kill it is read again from the server. Pieces come to the same shares as one read of the whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import numpy as np

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.traces import LIVE, Indices, NodeSteps, Rates, Trace, TraceJob
from stormpetrel.sources.prometheus.cpu_shares import DISTINGUISHED, SAMPLE_TIME, Grid, is_cpu, thread_jobs
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces, node_batches
from stormpetrel.sources.prometheus.exporters import TAIL_STEPS, Exporter, JobSeries, table_of, target_of
from stormpetrel.sources.prometheus.matrix import SampleBlock

PIECES: Final = 10  # in which a window is read
_MOST_SAMPLES: Final = 600_000  # of one answer: some 40 MB
_MOST_LABELS: Final = 2_000_000  # whose place is remembered
_CATCH_UP_S: Final = 60.0  # the longest piece, where there is much to be read
_MODES: Final = 8  # counters of a thread, as Linux has them
_NODES_AT_ONCE: Final = 16  # that are cut together
_SOON_STEPS: Final = 1.25  # behind the end of a window, until every node has been scraped once more
_AGAIN_S: Final = 0.4  # until one that was not there yet is looked for again


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What was seen around one window: `before` steps, the window, `beside` steps; of a few nodes in each trace."""

    start_s: float
    end_s: float
    traces: list[Trace]
    cursor: Cursor
    nodes: int = 0  # of which the server had samples
    left_out: int = 0  # of them that were not to be read


class NodeChoice(Protocol):
    """Says which nodes are read in which window, where there is no time for all; a window has the number start / length."""

    def includes(self, node: str, window: int) -> bool:
        """Whether a node is read in a window; it never changes its mind about a window that has begun."""

    def after(self, window: int) -> int:
        """The window that is read after this one: mostly the next."""

    def begin(self, window: int, threads: int) -> None:
        """Reading of a window begins, or goes on; the server has counters of about so many threads."""


class EveryNode:
    """The choice of whoever keeps up."""

    def includes(self, node: str, window: int) -> bool:
        """All of them."""
        del node, window
        return True

    def after(self, window: int) -> int:
        """The next."""
        return window + 1

    def begin(self, window: int, threads: int) -> None:
        """However many there are."""


class LiveTraces:
    """Reads on from a moment; `before` and `after` are the steps that a cut needs around a window, `only` the nodes it reads.

    A node that was not read in the window before, because `choice` left it out, is read from the begin of its window on.
    """

    def __init__(
        self,
        reading: PrometheusTraces,
        start_s: float,
        *,
        settle_s: float,
        before: int,
        after: int,
        is_first: bool = False,
        only: Collection[str] | None = None,
        choice: NodeChoice | None = None,
    ) -> None:
        self._reading, self._settle_s, self._only = reading, max(settle_s, 2 * reading.step_s), only
        self._choice = choice or EveryNode()
        self._delivered_to: dict[str, int] = {}  # by node, the step up to which `new_steps` has returned
        self._entered: set[str] = set()  # nodes that were left out in the window before, and are read in this one
        self._before, self._after = before, after
        self._window = round(start_s / reading.window_s)  # the number of the one that fills
        self._read_to = start_s - ((0 if is_first else before) + TAIL_STEPS) * reading.step_s
        self._begin = self._read_to
        self._nodes_read_to = -math.inf  # until when it was asked which nodes there are
        self._nodes: dict[str, dict[str, int]] = {}
        self._exporters: dict[str, dict[str, Exporter]] = {}
        self._companions_of: dict[str, JobSeries] = {}
        self._places: dict[bytes, tuple[Exporter, int] | None] = {}
        self._job_places: dict[bytes, tuple[str, dict[str, str]] | None] = {}

    def use(self, reading: PrometheusTraces) -> None:
        """Read on through another connection to the same server."""
        self._reading = reading
        reading.resume = datetime.fromtimestamp(self._window * reading.window_s, UTC)

    @property
    def end_s(self) -> float:
        """The end of the window that fills."""
        return (self._window + 1) * self._reading.window_s

    def moments(self, now_s: float) -> Iterator[Moment]:
        """Read up to now, and give out each window that can be cut, in order; one in which nothing was seen has no traces."""
        while True:
            until_s = min(now_s, self.end_s + self._settle_s)
            while self._read_to < until_s and not self._is_whole():
                self._read(min(until_s, self._read_to + _CATCH_UP_S))
            is_settled = now_s >= self.end_s + self._settle_s
            if not self._is_whole() and not is_settled:
                return
            yield self._cut()
            self._go_on()

    @property
    def reading(self) -> PrometheusTraces:
        """The connection that is read through."""
        return self._reading

    def so_far(self) -> list[Trace]:
        """What is known of the window that fills, with `before` steps before it: of nodes on which a job has begun in that time.

        Steps that may still change are not in it; a node of which less is known than of others has gaps at the end.
        """
        reading, step_s = self._reading, self._reading.step_s
        begin = round(self.end_s / step_s) - reading.steps
        first = begin - self._before
        chosen = {
            node: exporter
            for node in sorted(self._exporters)
            if self._has_new_job(node, first * step_s) and (exporter := self._usable(node, begin * step_s)) is not None
        }
        done = max((exporter.done for exporter in chosen.values()), default=begin)
        if done <= begin:
            return []
        names, grid = list(chosen), Grid(first * step_s, step_s, done - first)
        return [
            self._trace({name: chosen[name] for name in names[at : at + _NODES_AT_ONCE]}, grid, first, None)
            for at in range(0, len(names), _NODES_AT_ONCE)
        ]

    def new_steps(self) -> Iterator[NodeSteps]:
        """The steps of each node whose shares have become known since they were asked for last, and that are still kept."""
        step_s, start_s = self._reading.step_s, self.end_s - self._reading.window_s
        for node in sorted(self._exporters):
            exporter = self._usable(node, start_s)
            if exporter is None:
                continue
            first = max(self._delivered_to.get(node, 0), exporter.first)
            if exporter.done <= first:
                continue
            self._delivered_to[node] = exporter.done
            number_of: dict[str, int] = {}
            companions = self._companions_of[node].series() if node in self._companions_of else []
            grid = Grid(first * step_s, step_s, exporter.done - first)
            job = thread_jobs(companions, exporter.cpus(), grid, self._reading.window_s, number_of)
            yield NodeSteps(node, exporter.known_cpus, first, exporter.steps(first, exporter.done - first), job, tuple(number_of))

    def _has_new_job(self, node: str, since_s: float) -> bool:
        """Whether some series of a job on a node begins after a moment: until then nothing was told of that job there."""
        if node not in self._companions_of:
            return False
        series = self._companions_of[node].series()
        return any(each.time_s[0] > since_s for each in series if each.labels.get("__name__") not in (SAMPLE_TIME, DISTINGUISHED))

    def settled(self) -> Moment:
        """The window that fills, as it can be seen once everything has settled: for one that was over long ago."""
        return next(self.moments(self.end_s + self._settle_s))

    def next_read(self, now_s: float) -> float:
        """When there is something to be read again: a tenth of a window later, or just behind the end of one."""
        step_s, window_s = self._reading.step_s, self._reading.window_s
        soon_s = self.end_s + _SOON_STEPS * step_s
        if now_s >= soon_s:
            return now_s + min(_AGAIN_S, step_s)
        piece_s = max(window_s / PIECES, 2 * step_s)
        last_s = self.end_s - 2 * step_s  # so that little is left for the end
        return min(soon_s, last_s if now_s + piece_s / 2 <= last_s < now_s + 1.5 * piece_s else now_s + piece_s)

    def _read(self, end_s: float) -> None:
        """One piece: of every node what has come since the one before."""
        reading = self._reading
        if end_s > self._nodes_read_to:
            start_s = self._read_to - self._settle_s
            nodes = reading.nodes(start_s, end_s)
            samples = sum(sum(labels.values()) for labels in nodes.values())
            self._choice.begin(self._window, round(samples * reading.step_s / (end_s - start_s) / _MODES))
            self._nodes = nodes if self._only is None else {node: nodes[node] for node in nodes if node in self._only}
            is_before = end_s <= self.end_s - reading.window_s  # who is there in the window itself is not known by then
            self._nodes_read_to = end_s if is_before else max(self.end_s, end_s)
        chosen = [node for node in self._nodes if self._choice.includes(node, self._window)]
        stayed = {node for node in chosen if self._choice.includes(node, self._window - 1)}
        for batch in self._batches([node for node in chosen if node in stayed], self._read_to, end_s):
            self._read_nodes(batch, self._start_of(batch), end_s)
        came = [node for node in chosen if node in self._entered]
        for batch in self._batches(came, self._read_to, end_s):
            self._read_nodes(batch, max(self._start_of(batch), self._enter_s), end_s)
        if end_s > self._enter_s:
            new = [node for node in chosen if node not in stayed and node not in self._entered]
            for batch in self._batches(new, self._enter_s, end_s):
                self._read_nodes(batch, self._enter_s, end_s)
            self._entered.update(new)
        self._read_to = end_s
        for exporters in self._exporters.values():
            for exporter in exporters.values():
                exporter.advance()

    @property
    def _enter_s(self) -> float:
        """From when on a node is read that was left out in the window before: what the window needs, and no more."""
        margin = self._after + TAIL_STEPS
        return self._window * self._reading.window_s - margin * self._reading.step_s

    def _read_nodes(self, batch: Sequence[str], start_s: float, end_s: float) -> None:
        labels = [label for node in batch for label in self._nodes[node]]
        self._take_counters(self._reading.counters(labels, start_s, end_s))
        self._take_jobs(self._reading.companion_counters(batch, start_s, end_s))

    def _batches(self, nodes: Sequence[str], start_s: float, end_s: float) -> Iterator[list[str]]:
        steps = (end_s - start_s) / self._reading.step_s + 2
        series = ((node, sum(exporter.series for exporter in self._exporters.get(node, {}).values()) or 1024) for node in nodes)
        return node_batches(((node, steps * max(1, count)) for node, count in series), _MOST_SAMPLES)

    def _start_of(self, batch: Sequence[str]) -> float:
        """From when on a piece is asked for: what was scraped, but not there yet, the last time is in it."""
        earliest_s = self._read_to - self._settle_s
        newest = [exporter.whole_to(self._settle_s) for node in batch for exporter in self._exporters.get(node, {}).values()]
        if len(newest) < len(batch):
            return max(self._begin, earliest_s)
        return min([self._read_to, *(moment for moment in newest if moment > earliest_s)])

    def _take_counters(self, block: SampleBlock) -> None:
        if len(self._places) > _MOST_LABELS:
            self._places.clear()
        rows: dict[int, tuple[Exporter, list[int], list[int]]] = {}
        for number, metric in enumerate(block.metrics):
            if metric not in self._places:
                self._places[metric] = self._place(json.loads(metric))
            place = self._places[metric]
            if place is not None:
                exporter, column = place
                _, numbers, columns = rows.setdefault(id(exporter), (exporter, [], []))
                numbers.append(number)
                columns.append(column)
        for exporter, numbers, columns in rows.values():
            exporter.put(*table_of(block, np.array(numbers)), np.array(columns))

    def _place(self, labels: dict[str, str]) -> tuple[Exporter, int] | None:
        name = self._reading.node_of(labels)
        if name is None or not is_cpu(labels.get("cpu", "")):
            return None
        exporters = self._exporters.setdefault(name, {})
        target = target_of(labels)
        if target not in exporters:
            exporters[target] = Exporter(self._reading.step_s)
        return exporters[target], exporters[target].column(int(labels["cpu"]), labels.get("mode", ""))

    def _take_jobs(self, block: SampleBlock) -> None:
        if len(self._job_places) > _MOST_LABELS:
            self._job_places.clear()
        first = block.first.tolist()
        for number, metric in enumerate(block.metrics):
            if metric not in self._job_places:
                labels = json.loads(metric)
                name = self._reading.node_of(labels)
                self._job_places[metric] = None if name is None else (name, labels)
            place = self._job_places[metric]
            if place is None:
                continue
            node, labels = place
            samples = slice(first[number], first[number + 1])
            if labels.get("__name__") == SAMPLE_TIME:
                exporter = self._exporters.get(node, {}).get(target_of(labels))
                if exporter is not None:
                    exporter.put_clock(block.time_s[samples], block.values[samples])
            self._companions_of.setdefault(node, JobSeries()).put(metric, labels, block.time_s[samples], block.values[samples])

    def _is_whole(self) -> bool:
        """Whether every exporter that told of the window has told of a moment behind its end."""
        step_s, last = self._reading.step_s, round(self.end_s / self._reading.step_s)
        start_s, waits, anything = self.end_s - self._reading.window_s, False, False
        for exporters in self._exporters.values():
            for exporter in exporters.values():
                if exporter.newest_s <= start_s:
                    continue
                anything = True
                waits = waits or not exporter.is_whole(last, self._after)
        if not anything and self._nodes and not any(self._choice.includes(node, self._window) for node in self._nodes):
            return self._read_to > self.end_s - step_s  # nobody's turn
        return anything and not waits and self._read_to > self.end_s - step_s

    def _cut(self) -> Moment:
        reading, step_s = self._reading, self._reading.step_s
        last = round(self.end_s / step_s)
        first = last - reading.steps - self._before
        grid = Grid(first * step_s, step_s, last + self._after - first)
        start_s = self.end_s - reading.window_s
        chosen = {node: exporter for node in sorted(self._exporters) if (exporter := self._usable(node, start_s)) is not None}
        names = list(chosen)
        traces = [
            self._trace({name: chosen[name] for name in names[begin : begin + _NODES_AT_ONCE]}, grid, first, last)
            for begin in range(0, len(names), _NODES_AT_ONCE)
        ]
        left_out = sum(not self._choice.includes(node, self._window) for node in self._nodes)
        return Moment(start_s, self.end_s, traces, Cursor(CURSOR, round(self.end_s * 1e6)), len(self._nodes), left_out)

    def _usable(self, node: str, start_s: float) -> Exporter | None:
        """Of the exporters that tell about a node, one: that with a clock of its own, else the fullest."""
        there = {target: exporter for target, exporter in self._exporters[node].items() if exporter.newest_s > start_s}
        if not there:
            return None
        best = max(there, key=lambda target: (there[target].clock_s.size > 0, there[target].samples, target))
        why = there[best].problem()
        if why:
            self._reading.leave_out(node, f"{node} {why}")
            return None
        return there[best]

    def _trace(self, chosen: dict[str, Exporter], grid: Grid, first: int, last: int | None) -> Trace:
        """The steps of some nodes from one on; up to `last` with what there is, where nothing is waited for any longer."""
        number_of: dict[str, int] = {}
        threads: list[tuple[str, int]] = []
        rates: list[Rates] = []
        job: list[Indices] = []
        for node, exporter in chosen.items():
            if last is not None:
                exporter.finish(last)
            cpus = exporter.cpus()
            companions = self._companions_of[node].series() if node in self._companions_of else []
            threads += [(node, cpu) for cpu in cpus]
            rates.append(exporter.steps(first, grid.steps))
            job.append(thread_jobs(companions, cpus, grid, self._reading.window_s, number_of))
        return Trace(
            name=LIVE,
            step_s=self._reading.step_s,
            time_s=grid.edges_s[1:],
            nodes=tuple(node for node, _ in threads),
            cpus=tuple(cpu for _, cpu in threads),
            rates=np.concatenate(rates, axis=1),
            job=np.concatenate(job, axis=1),
            jobs=tuple(TraceJob(job_id) for job_id in number_of),
        )

    def _go_on(self) -> None:
        """To the next window; what is not read in it, or was not in the one before it, is forgotten."""
        last, self._window = self._window, self._choice.after(self._window)
        if self._window > last + 1:  # some are passed over: as if it began here
            self._exporters.clear()
            self._read_to = self._begin = self._enter_s
        gone = [
            node for node in self._exporters
            if not (self._choice.includes(node, self._window) and self._choice.includes(node, self._window - 1))
        ]  # fmt: skip
        for node in gone:
            del self._exporters[node]
            self._companions_of.pop(node, None)
        if gone or not self._exporters:
            self._places.clear()
        self._entered.clear()
        self._trim()

    def _trim(self) -> None:
        """Forget what no later window needs, and exporters that have been silent for all of it."""
        start_s = self._window * self._reading.window_s - (self._before + TAIL_STEPS) * self._reading.step_s
        first = math.floor(start_s / self._reading.step_s)
        for node, exporters in list(self._exporters.items()):
            silent = [target for target, exporter in exporters.items() if exporter.newest_s < start_s]
            for target in silent:
                del exporters[target]
            if silent:
                self._places.clear()  # some of them lead to what is gone
            if not exporters:
                del self._exporters[node]
                self._companions_of.pop(node, None)
            for exporter in exporters.values():
                exporter.trim(first)
        for series in self._companions_of.values():
            series.trim(start_s)

"""The CPU counters of a Prometheus as they come: read in pieces while a window fills, kept as shares until it can be cut.

PrometheusTraces -> LiveTraces.moments(now) -> the traces around each window, as soon as every exporter that was there has told of
a moment behind its end, or `settle_s` behind its end at the latest. What is held grows with the threads and the length of a
window, not with time; after a kill it is read again from the server. Pieces come to the same shares as one read of the whole.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.traces import LIVE, Indices, Rates, Seconds, Trace, TraceJob
from stormpetrel.sources.prometheus.cpu_shares import (
    LONGEST_GAP_STEPS,
    NEEDED_MODES,
    SAMPLE_TIME,
    Grid,
    is_cpu,
    table_rates,
    thread_jobs,
    true_times,
)
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces, node_batches
from stormpetrel.sources.prometheus.matrix import SampleBlock
from stormpetrel.sources.prometheus.query import Series

PIECES: Final = 10  # in which a window is read
_MOST_SAMPLES: Final = 600_000  # of one answer: some 40 MB
_MOST_LABELS: Final = 2_000_000  # whose place is remembered
_CATCH_UP_S: Final = 60.0  # the longest piece, where there is much to be read
_TAIL_STEPS: Final = 6  # of samples that are kept behind what they have come to
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


class LiveTraces:
    """Reads on from a moment; `before` and `after` are the steps that a cut needs around a window, `only` the nodes it reads."""

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
    ) -> None:
        self._reading, self._settle_s, self._only = reading, max(settle_s, 2 * reading.step_s), only
        self._before, self._after = before, after
        self._window = round(start_s / reading.window_s)  # the number of the one that fills
        self._read_to = start_s - ((0 if is_first else before) + _TAIL_STEPS) * reading.step_s
        self._begin = self._read_to
        self._nodes_read_to = -math.inf  # until when it was asked which nodes there are
        self._nodes: dict[str, dict[str, int]] = {}
        self._exporters: dict[str, dict[str, _Exporter]] = {}
        self._companions_of: dict[str, _JobSeries] = {}
        self._places: dict[bytes, tuple[_Exporter, int] | None] = {}
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
            self._window += 1
            self._trim()

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
            nodes = reading.nodes(self._read_to - self._settle_s, end_s)
            self._nodes = nodes if self._only is None else {node: nodes[node] for node in nodes if node in self._only}
            self._nodes_read_to = max(self.end_s, end_s)
        for batch in self._batches(end_s):
            start_s = self._start_of(batch)
            labels = [label for node in batch for label in self._nodes[node]]
            self._take_counters(reading.counters(labels, start_s, end_s))
            self._take_jobs(reading.companion_counters(batch, start_s, end_s))
        self._read_to = end_s
        for exporters in self._exporters.values():
            for exporter in exporters.values():
                exporter.advance()

    def _batches(self, end_s: float) -> Iterator[list[str]]:
        steps = (end_s - self._read_to) / self._reading.step_s + 2
        series = ((node, sum(one.series for one in self._exporters.get(node, {}).values()) or 1024) for node in self._nodes)
        return node_batches(((node, steps * max(1, count)) for node, count in series), _MOST_SAMPLES)

    def _start_of(self, batch: Sequence[str]) -> float:
        """From when on a piece is asked for: what was scraped, but not there yet, the last time is in it."""
        earliest_s = self._read_to - self._settle_s
        newest = [one.whole_to(self._settle_s) for node in batch for one in self._exporters.get(node, {}).values()]
        if len(newest) < len(batch):
            return max(self._begin, earliest_s)
        return min([self._read_to, *(moment for moment in newest if moment > earliest_s)])

    def _take_counters(self, block: SampleBlock) -> None:
        if len(self._places) > _MOST_LABELS:
            self._places.clear()
        rows: dict[int, tuple[_Exporter, list[int], list[int]]] = {}
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
            exporter.put(*_table_of(block, np.array(numbers)), np.array(columns))

    def _place(self, labels: dict[str, str]) -> tuple[_Exporter, int] | None:
        name = self._reading.node_of(labels)
        if name is None or not is_cpu(labels.get("cpu", "")):
            return None
        exporters = self._exporters.setdefault(name, {})
        target = _target(labels)
        if target not in exporters:
            exporters[target] = _Exporter(self._reading.step_s)
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
                one = self._exporters.get(node, {}).get(_target(labels))
                if one is not None:
                    one.put_clock(block.time_s[samples], block.values[samples])
            self._companions_of.setdefault(node, _JobSeries()).put(metric, labels, block.time_s[samples], block.values[samples])

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
        return anything and not waits and self._read_to > self.end_s - step_s

    def _cut(self) -> Moment:
        reading, step_s = self._reading, self._reading.step_s
        last = round(self.end_s / step_s)
        first = last - reading.steps - self._before
        grid = Grid(first * step_s, step_s, last + self._after - first)
        start_s = self.end_s - reading.window_s
        chosen = {node: one for node in sorted(self._exporters) if (one := self._usable(node, start_s)) is not None}
        names = list(chosen)
        traces = [
            self._trace({name: chosen[name] for name in names[begin : begin + _NODES_AT_ONCE]}, grid, first, last)
            for begin in range(0, len(names), _NODES_AT_ONCE)
        ]
        return Moment(start_s, self.end_s, traces, Cursor(CURSOR, round(self.end_s * 1e6)))

    def _usable(self, node: str, start_s: float) -> _Exporter | None:
        """Of the exporters that tell about a node, one: that with a clock of its own, else the fullest."""
        there = {target: one for target, one in self._exporters[node].items() if one.newest_s > start_s}
        if not there:
            return None
        best = max(there, key=lambda target: (there[target].clock_s.size > 0, there[target].samples, target))
        why = there[best].problem()
        if why:
            self._reading.leave_out(node, f"{node} {why}")
            return None
        return there[best]

    def _trace(self, chosen: dict[str, _Exporter], grid: Grid, first: int, last: int) -> Trace:
        number_of: dict[str, int] = {}
        threads: list[tuple[str, int]] = []
        rates: list[Rates] = []
        job: list[Indices] = []
        for node, one in chosen.items():
            one.finish(last)
            cpus = one.cpus()
            companions = self._companions_of[node].series() if node in self._companions_of else []
            threads += [(node, cpu) for cpu in cpus]
            rates.append(one.steps(first, grid.steps))
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

    def _trim(self) -> None:
        """Forget what no later window needs, and exporters that have been silent for all of it."""
        start_s = self._window * self._reading.window_s - (self._before + _TAIL_STEPS) * self._reading.step_s
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


class _Exporter:
    """What one exporter tells about one node: the last samples of its counters, and the shares that they have come to."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._columns: dict[tuple[int, str], int] = {}
        self._time_s: Seconds = np.empty(0)
        self._table: npt.NDArray[np.float64] = np.empty((0, 0))  # (samples, series), NaN where there is none
        self._newest: Seconds = np.empty(0)  # (series,)
        self._first = 0  # the number of the first step in `_rates`
        self._rates: Rates | None = None  # (steps, cpus, 4)
        self._cpus: tuple[int, ...] = ()
        self.clock_s: Seconds = np.empty(0)
        self._clock: Seconds = np.empty(0)
        self.samples = 0
        self.newest_s = -math.inf
        self._interval_s: float | None = None

    @property
    def series(self) -> int:
        """How many counters it has."""
        return len(self._columns)

    @property
    def done(self) -> int:
        """The number of the step behind the last whose share is known."""
        return self._first + (0 if self._rates is None else len(self._rates))

    def cpus(self) -> tuple[int, ...]:
        """The CPUs, in order."""
        return tuple(sorted({cpu for cpu, _ in self._columns}))

    def column(self, cpu: int, mode: str) -> int:
        """The place of a counter; a new one where it was not known."""
        return self._columns.setdefault((cpu, mode), len(self._columns))

    def put(self, time_s: Seconds, values: npt.NDArray[np.float64], columns: npt.NDArray[np.int64]) -> None:
        """Take in samples (times, columns); what is there already stays."""
        if self.series > self._newest.size:
            more = self.series - self._newest.size
            self._newest = np.concatenate([self._newest, np.full(more, -np.inf)])
            self._table = np.concatenate([self._table, np.full((len(self._table), more), np.nan)], axis=1)
        new = time_s > (self._time_s[0] if self._time_s.size else -np.inf)
        if self._time_s.size and self._rates is not None:
            new &= time_s > self.done * self._step_s - _TAIL_STEPS * self._step_s
        time_s, values = time_s[new], values[new]
        if not time_s.size:
            return
        together = np.union1d(self._time_s, time_s)
        table = np.full((together.size, self.series), np.nan)
        table[np.searchsorted(together, self._time_s)] = self._table
        cells = np.ix_(np.searchsorted(together, time_s), columns)
        there = np.isfinite(values)
        table[cells] = np.where(there, values, table[cells])
        self._time_s, self._table = together, table
        last = np.where(there, time_s[:, None], -np.inf).max(axis=0)
        self._newest[columns] = np.maximum(self._newest[columns], last)
        self.samples += int(there.sum())
        self.newest_s = max(self.newest_s, float(last.max()))
        if together.size > 2:
            self._interval_s = float(np.median(np.diff(together)))

    def put_clock(self, time_s: Seconds, values: Seconds) -> None:
        """Take in what the node's own clock said."""
        new = time_s > (self.clock_s[-1] if self.clock_s.size else -np.inf)
        self.clock_s, self._clock = np.concatenate([self.clock_s, time_s[new]]), np.concatenate([self._clock, values[new]])

    def whole_to(self, quiet_s: float) -> float:
        """Up to when every counter that is still told has been seen."""
        if not self._newest.size:
            return -math.inf
        moment = float(self._newest[self._newest > self.newest_s - quiet_s].min())
        if self.clock_s.size and self.clock_s[-1] > self.newest_s - quiet_s:
            moment = min(moment, float(self.clock_s[-1]))
        return moment

    def is_whole(self, last: int, margin: int) -> bool:
        """Whether nothing that may still come changes the steps up to `last`: a gap at their end may yet be bridged."""
        if self.done < last or self._rates is None:
            return False
        if self.done >= last + margin:
            return True
        return last > self._first and not np.isnan(self._rates[last - 1 - self._first, :, 0]).any()

    def problem(self) -> str:
        """Why it cannot be used; empty where it can."""
        modes = {mode for _, mode in self._columns}
        missing = [mode for mode in NEEDED_MODES if mode not in modes]
        if missing:
            return f"exports no node_cpu_seconds_total with mode {' or '.join(missing)}"
        if self._interval_s is not None and self._interval_s > LONGEST_GAP_STEPS * self._step_s:
            return f"is scraped every {self._interval_s:.3g} s, and prometheus.step_s is {self._step_s:g}"
        return ""

    def advance(self) -> None:
        """Work out the shares of the steps that all counters have been seen behind."""
        if self._time_s.size < 2:
            return
        moment = self.whole_to(_TAIL_STEPS * self._step_s)
        rows = int(np.searchsorted(self._time_s, moment, side="right"))
        if rows:
            true_s, _ = true_times(self._time_s[:rows], self._clock_series(), self._step_s)
            moment = min(moment, float(true_s[-1]))
        # Behind, not at: a sample at the very edge is read off as the first of two, whenever it is read.
        self._work_out(math.ceil(moment / self._step_s - 1e-9) - 1)

    def finish(self, last: int) -> None:
        """Work out the steps up to `last` with what there is: nothing is waited for any longer."""
        self._work_out(last)

    def _work_out(self, last: int) -> None:
        cpus = self.cpus()
        if self._rates is None:
            self._first = math.floor(self._time_s[0] / self._step_s) - _TAIL_STEPS  # its own clock may be before the server's
            self._rates, self._cpus = np.empty((0, len(cpus), 4), dtype=np.float32), cpus
        if cpus != self._cpus:
            wider = np.full((len(self._rates), len(cpus), 4), np.nan, dtype=np.float32)
            wider[:, [cpus.index(cpu) for cpu in self._cpus]] = self._rates
            self._rates, self._cpus = wider, cpus
        if last <= self.done:
            return
        grid = Grid(self.done * self._step_s, self._step_s, last - self.done)
        modes, counters = self._counters(cpus)
        new = table_rates(self._time_s, modes, counters, self._clock_series(), grid, Counter())
        self._rates = np.concatenate([self._rates, new])
        old = int(np.searchsorted(self._time_s, (self.done - _TAIL_STEPS) * self._step_s))
        keep = max(0, min(old, self._time_s.size - 3))
        self._time_s, self._table = self._time_s[keep:], self._table[keep:]

    def _counters(self, cpus: Sequence[int]) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
        """The samples as a table (samples, cpus, modes); a mode that a node may leave out is zero."""
        modes = tuple(sorted({mode for _, mode in self._columns}))
        column = np.array([[self._columns.get((cpu, mode), -1) for mode in modes] for cpu in cpus], dtype=np.int64)
        counters = self._table[:, column]
        optional = np.array([mode not in NEEDED_MODES for mode in modes])
        counters[:, column < 0] = np.nan
        counters[:, (column < 0) & optional] = 0.0
        return modes, counters

    def _clock_series(self) -> Series | None:
        return Series({}, self.clock_s, self._clock) if self.clock_s.size else None

    def steps(self, first: int, count: int) -> Rates:
        """The shares of so many steps from one on, NaN where they are not known."""
        assert self._rates is not None
        answer = np.full((count, len(self._cpus), 4), np.nan, dtype=np.float32)
        begin, end = max(first, self._first), min(first + count, self.done)
        if begin < end:
            answer[begin - first : end - first] = self._rates[begin - self._first : end - self._first]
        return answer

    def trim(self, first: int) -> None:
        """Forget the steps before `first`."""
        if self._rates is not None and first > self._first:
            gone = min(first - self._first, len(self._rates))
            self._rates, self._first = self._rates[gone:].copy(), self._first + gone
        old = np.searchsorted(self.clock_s, self._time_s[0] if self._time_s.size else 0.0)
        self.clock_s, self._clock = self.clock_s[old:], self._clock[old:]


@dataclass(slots=True)
class _JobSeries:
    """What is told next to the counters of one node about the jobs on it."""

    kept: dict[bytes, Series] = field(default_factory=dict)

    def put(self, metric: bytes, labels: dict[str, str], time_s: Seconds, values: Seconds) -> None:
        """Take in samples of a series; what is there already stays."""
        there = self.kept.get(metric)
        if there is None:
            self.kept[metric] = Series(labels, time_s.copy(), values.copy())  # not a view of the whole answer
            return
        new = int(np.searchsorted(time_s, there.time_s[-1], side="right"))
        if new < time_s.size:
            times, numbers = np.concatenate([there.time_s, time_s[new:]]), np.concatenate([there.values, values[new:]])
            self.kept[metric] = Series(labels, times, numbers)

    def series(self) -> list[Series]:
        """All of it."""
        return list(self.kept.values())

    def trim(self, start_s: float) -> None:
        """Forget what was told before a moment."""
        for metric, one in list(self.kept.items()):
            old = int(np.searchsorted(one.time_s, start_s))
            if old == one.time_s.size:
                del self.kept[metric]
            elif old:
                self.kept[metric] = Series(one.labels, one.time_s[old:].copy(), one.values[old:].copy())


def _target(labels: dict[str, str]) -> str:
    """What tells the exporters of a node apart."""
    return "\n".join(f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("cpu", "mode", "__name__"))


def _table_of(block: SampleBlock, series: npt.NDArray[np.int64]) -> tuple[Seconds, npt.NDArray[np.float64]]:
    """Some series of a block side by side: their times, and a table (times, series), NaN where one has no sample."""
    first, count = block.first[series], block.first[series + 1] - block.first[series]
    if (count == count[0]).all():
        places = first[:, None] + np.arange(count[0])  # (series, samples)
        times = block.time_s[places]
        if (times == times[0]).all():
            return times[0], block.values[places].T
    times = np.unique(np.concatenate([block.time_s[begin : begin + n] for begin, n in zip(first, count, strict=True)]))
    table = np.full((times.size, series.size), np.nan)
    for column, (begin, n) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        table[np.searchsorted(times, block.time_s[begin : begin + n]), column] = block.values[begin : begin + n]
    return times, table

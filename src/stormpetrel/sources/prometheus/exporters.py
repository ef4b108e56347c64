"""The counters of one node as they come: samples of one exporter -> shares of steps, and the series of its jobs.

Samples -> Exporter.put -> advance -> steps; what a later window needs is kept, the rest is forgotten by `trim`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import Rates, Seconds
from stormpetrel.sources.prometheus.cpu_shares import LONGEST_GAP_STEPS, NEEDED_MODES, Grid, table_rates, true_times
from stormpetrel.sources.prometheus.matrix import SampleBlock
from stormpetrel.sources.prometheus.query import Series

TAIL_STEPS: Final = 6  # of samples that are kept behind what they have come to


class Exporter:
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
    def first(self) -> int:
        """The number of the first step that is kept."""
        return self._first

    @property
    def known_cpus(self) -> tuple[int, ...]:
        """The CPUs that shares are known of, in order."""
        return self._cpus

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
            new &= time_s > self.done * self._step_s - TAIL_STEPS * self._step_s
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
        moment = self.whole_to(TAIL_STEPS * self._step_s)
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
            self._first = math.floor(self._time_s[0] / self._step_s) - TAIL_STEPS  # its own clock may be before the server's
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
        old = int(np.searchsorted(self._time_s, (self.done - TAIL_STEPS) * self._step_s))
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
class JobSeries:
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


def target_of(labels: dict[str, str]) -> str:
    """What tells the exporters of a node apart."""
    return "\n".join(f"{name}={value}" for name, value in sorted(labels.items()) if name not in ("cpu", "mode", "__name__"))


def table_of(block: SampleBlock, series: npt.NDArray[np.int64]) -> tuple[Seconds, npt.NDArray[np.float64]]:
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

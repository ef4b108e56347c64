"""The last minutes of the node in memory: Sample -> Ring -> one window as JSON -> read_window.

A row holds, for every CPU, the ticks it spent in each of four modes since the row before; two bytes each, so that 128 CPUs at
10 Hz take a megabyte per 100 s. The four modes are those that the models see.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from stormpetrel.exporter.bindings import Bindings
from stormpetrel.exporter.cpu_lists import format_cpu_list, parse_cpu_list
from stormpetrel.exporter.proc_stat import TICKS_PER_SECOND, WIDTH, CpuSample

FORMAT: Final = "stormpetrel window"
VERSION: Final = 1
MODES: Final = ("user", "system", "iowait", "other")
UNKNOWN: Final = -1  # a CPU that was not there, began to count anew, or was not read for too long
MAX_BYTES: Final = 16 << 20
_MAX_TICKS: Final = (1 << 15) - 1


class _Row(NamedTuple):
    time_s: float
    cpus: tuple[int, ...]
    ticks: array[int]  # four per CPU
    bindings: Bindings


class Ring:
    """The last rows, oldest first; old ones make room for new ones, by number and by bytes."""

    def __init__(self, hertz: int, keep_s: float) -> None:
        self.hertz, self.keep_s = hertz, keep_s
        self._rows: deque[_Row] = deque(maxlen=max(2, int(hertz * keep_s)))
        self._bytes = 0
        self._last: CpuSample | None = None
        self._lock = threading.Lock()

    def add(self, sample: CpuSample, bindings: Bindings) -> None:
        """Keep what happened since the sample before."""
        last, self._last = self._last, sample
        if last is None:
            return
        row = _Row(sample.time_s, sample.cpus, _steps(last, sample), bindings)
        with self._lock:
            if self._rows and self._rows[-1].bindings == bindings:
                row = row._replace(bindings=self._rows[-1].bindings)  # thousands of rows share one
            if len(self._rows) == self._rows.maxlen:
                self._bytes -= _size(self._rows.popleft())
            self._rows.append(row)
            self._bytes += _size(row)
            while self._bytes > MAX_BYTES and len(self._rows) > 1:
                self._bytes -= _size(self._rows.popleft())

    def window(self, seconds: float, until: float | None = None, *, node: str = "") -> str | None:
        """The rows of the last seconds before a moment, as JSON; None where there are none."""
        with self._lock:
            rows = list(self._rows)
        end = until if until is not None else rows[-1].time_s if rows else 0.0
        chosen = [row for row in rows if end - seconds < row.time_s <= end]
        return _write_window(chosen, hertz=self.hertz, node=node) if chosen else None


def _size(row: _Row) -> int:
    return 200 + row.ticks.itemsize * len(row.ticks)


def _steps(last: CpuSample, sample: CpuSample) -> array[int]:
    """Ticks per CPU and mode from one sample to the next."""
    before = last.ticks
    if last.cpus != sample.cpus:
        rows = {cpu: last.ticks[at * WIDTH : (at + 1) * WIDTH] for at, cpu in enumerate(last.cpus)}
        nothing = [1 << 62] * WIDTH  # the difference is negative, and that means unknown
        before = [ticks for cpu in sample.cpus for ticks in rows.get(cpu, nothing)]
    steps = [now - then for now, then in zip(sample.ticks, before)]  # noqa: B905 - Python 3.9 has no strict
    folded = array("h", bytes(2 * len(MODES) * len(sample.cpus)))
    for at in range(len(sample.cpus)):
        user, nice, system, idle, iowait, irq, softirq, steal = row = steps[at * WIDTH : (at + 1) * WIDTH]
        known = min(row) >= 0 and sum(row) <= _MAX_TICKS
        four = (user + nice, system + irq + softirq, iowait, idle + steal) if known else (UNKNOWN,) * len(MODES)
        folded[at * 4 : at * 4 + 4] = array("h", four)
    return folded


def _write_window(rows: Sequence[_Row], *, hertz: int, node: str) -> str:
    cpus = sorted({cpu for layout in {row.cpus for row in rows} for cpu in layout})
    head = {
        "format": FORMAT,
        "version": VERSION,
        "node": node,
        "hertz": hertz,
        "ticks_per_second": TICKS_PER_SECOND,
        "modes": MODES,
        "cpus": cpus,
        "times_s": [round(row.time_s, 6) for row in rows],
        "jobs": _spans(rows),
    }
    ticks = ",".join(f"[{','.join(map(str, _aligned(row, cpus)))}]" for row in rows)
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},"ticks":[{ticks}]}}\n'


def _aligned(row: _Row, cpus: list[int]) -> Iterable[int]:
    """A row with a place for every CPU of the window."""
    if list(row.cpus) == cpus:
        return row.ticks
    places = {cpu: at for at, cpu in enumerate(row.cpus)}
    unknown = (UNKNOWN,) * len(MODES)
    return [value for cpu in cpus for value in (row.ticks[places[cpu] * 4 : places[cpu] * 4 + 4] if cpu in places else unknown)]


def _spans(rows: Sequence[_Row]) -> list[dict[str, object]]:
    """Which job had which CPUs, from which row on; a span lasts until the next."""
    spans: list[dict[str, object]] = []
    last: Bindings | None = None
    for at, row in enumerate(rows):
        if row.bindings is not last:
            last = row.bindings
            jobs: dict[str, list[int]] = {}
            for cpu, job_id in last.jobs.items():
                jobs.setdefault(job_id.encode("utf-8", "backslashreplace").decode(), []).append(cpu)
            lists = {job_id: format_cpu_list(jobs[job_id]) for job_id in sorted(jobs)}
            spans.append({"from": at, "told_apart": last.told_apart, "cpus": lists})
    return spans


def read_window(text: str) -> dict[str, Any]:
    """A window as plain values, checked; ValueError says what is wrong with the text.

    `times_s`: Unix seconds per row · `cpus`: numbers · `modes`: four names · `ticks`: per row and CPU four numbers, or None where
    they are not known · `jobs`: per row {cpu: job} · `told_apart`: per row, whether a CPU without a job is known to have none ·
    `node`, `hertz`, `ticks_per_second`: as they were.
    """
    try:
        window = json.loads(text)
        if window["format"] != FORMAT or window["version"] != VERSION:
            raise ValueError(f"it is not a window of version {VERSION}")
        rows, cpus, times = window["ticks"], window["cpus"], window["times_s"]
        if len(rows) != len(times) or any(len(row) != len(MODES) * len(cpus) for row in rows):
            raise ValueError("its rows do not fit its CPUs and times")
        ticks = [[_four(row, at) for at in range(0, len(row), len(MODES))] for row in rows]
        jobs, told = _unrolled(window["jobs"], len(rows))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"The text is no window: {error!r}.") from error
    except ValueError as error:
        raise ValueError(f"The text is no window: {error}.") from error
    known = {name: window.get(name) for name in ("node", "hertz", "ticks_per_second")}
    return {**known, "modes": MODES, "cpus": cpus, "times_s": times, "ticks": ticks, "jobs": jobs, "told_apart": told}


def _four(row: list[int], at: int) -> tuple[int, ...] | None:
    four = tuple(map(int, row[at : at + len(MODES)]))
    return four if min(four) >= 0 else None


def _unrolled(spans: list[dict[str, Any]], count: int) -> tuple[list[dict[int, str]], list[bool]]:
    jobs: list[dict[int, str]] = [{} for _ in range(count)]
    told = [False] * count
    ends = [int(span["from"]) for span in spans[1:]] + [count]
    for span, end in zip(spans, ends):  # noqa: B905
        lists = {job_id: parse_cpu_list(text.encode()) or () for job_id, text in span["cpus"].items()}
        bound = {cpu: job_id for job_id, cpus in lists.items() for cpu in cpus}
        for at in range(max(0, int(span["from"])), min(end, count)):
            jobs[at], told[at] = bound, bool(span["told_apart"])
    return jobs, told

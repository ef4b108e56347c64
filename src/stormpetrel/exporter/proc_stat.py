"""/proc/stat: bytes -> CpuSample, the counters of every CPU that is online.

CPUs come and go between two reads, and the kernel's idle and iowait counters now and then step back by a little: a value that is
shown never falls by that little, since Prometheus would take the fall for a restart and the next value for a huge rate.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from stormpetrel.exporter.files import Files

MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
WIDTH: Final = len(MODES)
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = MODES.index("idle")
_LIMIT_BYTES: Final = 1 << 22  # the line of interrupts is long on large machines
_RESET_TICKS: Final = 3 * TICKS_PER_SECOND  # idle time that falls by more than 3 s began anew: the CPU was taken out and put back


class ExporterError(Exception):
    """The exporter cannot go on; the text says why and what to do."""


class CpuSample(NamedTuple):
    """The counters of all CPUs at one moment."""

    time_s: float  # Unix time, taken halfway through the read
    cpus: tuple[int, ...]
    ticks: list[int]  # WIDTH numbers per CPU, in the order of `cpus` and MODES


class CpuReader:
    """Reads /proc/stat again and again."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path = files.at("/proc/stat")
        self._last: CpuSample | None = None
        self._names: tuple[list[bytes], tuple[int, ...]] = ([], ())

    def read(self) -> CpuSample:
        """The counters now."""
        before = time.time()
        text = self._files.read(self._path, _LIMIT_BYTES)
        moment = (before + time.time()) / 2
        cpus, ticks = self._parse(text or b"")
        if not cpus:
            raise ExporterError(f"{self._path} cannot be read or names no CPU; the exporter needs Linux and a readable /proc.")
        sample = CpuSample(moment, cpus, _never_falling(cpus, ticks, self._last))
        self._last = sample
        return sample

    def _parse(self, text: bytes) -> tuple[tuple[int, ...], list[int]]:
        """All lines at once where they are alike, as they always are; otherwise one by one."""
        lines = text[: text.find(b"\nintr") + 1 or len(text)].split(b"\n", 1)[-1]  # without the sum of all CPUs
        fields = lines.split()
        width = len(lines.split(b"\n", 1)[0].split())
        names = fields[::width] if width > WIDTH else []
        if not names or len(fields) % width or b"-" in lines or not all(map(_is_cpu, names)):
            return self._parse_by_line(text)
        for column in (*range(width - 1, WIDTH, -1), 0):  # guest time is part of user time already; last, the names go
            del fields[column::width]
            width -= 1
        try:
            return self._cpus(names), list(map(int, fields))
        except ValueError:
            return self._parse_by_line(text)

    def _cpus(self, names: list[bytes]) -> tuple[int, ...]:
        if names != self._names[0]:
            self._names = (names, tuple(int(name[3:]) for name in names))
        return self._names[1]

    def _parse_by_line(self, text: bytes) -> tuple[tuple[int, ...], list[int]]:
        """Old kernels count fewer modes; a line that makes no sense is left out and counted."""
        by_cpu: dict[int, list[int]] = {}
        for line in text.split(b"\n"):
            name, *fields = line.split()[: WIDTH + 1] or [b""]
            if not name.startswith(b"cpu") or name == b"cpu":
                continue
            if _is_cpu(name) and len(fields) > _IDLE and all(field.isdigit() and len(field) < 20 for field in fields):
                by_cpu[int(name[3:])] = list(map(int, fields)) + [0] * (WIDTH - len(fields))
            else:
                self._files.problems["malformed"] += 1
        cpus = tuple(sorted(by_cpu))
        return cpus, [value for cpu in cpus for value in by_cpu[cpu]]


def _is_cpu(name: bytes) -> bool:
    return name.startswith(b"cpu") and name[3:].isdigit() and len(name) < 9


def _never_falling(cpus: tuple[int, ...], ticks: list[int], last: CpuSample | None) -> list[int]:
    if last is None:
        return ticks
    if last.cpus == cpus and not any(map(operator.lt, ticks, last.ticks)):
        return ticks
    rows = {cpu: last.ticks[at * WIDTH : (at + 1) * WIDTH] for at, cpu in enumerate(last.cpus)}
    steady: list[int] = []
    for at, cpu in enumerate(cpus):
        row = ticks[at * WIDTH : (at + 1) * WIDTH]
        steady += _steady_row(row, rows.get(cpu, row))
    return steady


def _steady_row(row: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    if row[_IDLE] < before[_IDLE] - _RESET_TICKS:
        return row
    return list(map(max, row, before))

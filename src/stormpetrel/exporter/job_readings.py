"""What one job uses: JobGroup -> figures by metric name.

cgroup v2 gives all of them; v1 gives CPU time and memory, each from the tree of its controller. A figure that the node does not
offer is left out: nothing is ever shown as zero because it could not be read.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import JobGroup
from stormpetrel.exporter.proc_stat import TICKS_PER_SECOND

Figures = dict[str, float]  # seconds and bytes, whole where the kernel gives whole numbers
_NO_LIMIT_V1: Final = 1 << 60  # v1 writes "no limit" as the largest page-aligned number
_PRESSURES: Final = ("cpu", "memory", "io")
_LEVELS: Final = {b"some": "waiting", b"full": "stalled"}
_V2_CPU: Final = {
    b"usage_usec": "cgroup_cpu_total_seconds",
    b"user_usec": "cgroup_cpu_user_seconds",
    b"system_usec": "cgroup_cpu_system_seconds",
}
_V2_MEMORY: Final = {
    b"anon": "cgroup_memory_rss_bytes",
    b"file": "cgroup_memory_cache_bytes",
    b"shmem": "cgroup_memory_shmem_bytes",
}
_V1_CPU: Final = {b"user": "cgroup_cpu_user_seconds", b"system": "cgroup_cpu_system_seconds"}
_V1_MEMORY: Final = {
    b"total_rss": "cgroup_memory_rss_bytes",
    b"total_cache": "cgroup_memory_cache_bytes",
    b"total_shmem": "cgroup_memory_shmem_bytes",
}


class JobReader:
    """Reads the figures of jobs."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, group: JobGroup) -> Figures:
        """What a job has used so far and holds now."""
        figures: Figures = {}
        for tree, folder in group.folders.items():
            if tree == "v2":
                self._cpu(folder, figures)
                self._memory(folder, figures)
                self._pressure(folder, figures)
            elif tree == "cpuacct":
                self._cpu_v1(folder, figures)
            elif tree == "memory":
                self._memory_v1(folder, figures)
        return figures

    def _cpu(self, folder: str, figures: Figures) -> None:
        for name, microseconds in self._table(f"{folder}/cpu.stat", _V2_CPU).items():
            figures[name] = microseconds / 1_000_000

    def _memory(self, folder: str, figures: Figures) -> None:
        figures.update(self._table(f"{folder}/memory.stat", _V2_MEMORY))
        self._put(figures, "cgroup_memory_used_bytes", self._files.read_number(f"{folder}/memory.current"))
        self._put(figures, "cgroup_memory_total_bytes", self._files.read_number(f"{folder}/memory.max"))

    def _pressure(self, folder: str, figures: Figures) -> None:
        for kind in _PRESSURES:
            for line in (self._files.read(f"{folder}/{kind}.pressure") or b"").splitlines():
                level = _LEVELS.get(line[:4])
                microseconds = self._files.number(line.rpartition(b"total=")[2]) if level else None
                if microseconds is not None:
                    figures[f"cgroup_pressure_{kind}_{level}_seconds_total"] = microseconds / 1_000_000

    def _cpu_v1(self, folder: str, figures: Figures) -> None:
        for name, ticks in self._table(f"{folder}/cpuacct.stat", _V1_CPU).items():
            figures.setdefault(name, ticks / TICKS_PER_SECOND)
        nanoseconds = self._files.read_number(f"{folder}/cpuacct.usage")
        if nanoseconds is not None:
            figures.setdefault("cgroup_cpu_total_seconds", nanoseconds / 1_000_000_000)

    def _memory_v1(self, folder: str, figures: Figures) -> None:
        for name, size in self._table(f"{folder}/memory.stat", _V1_MEMORY).items():
            figures.setdefault(name, size)
        self._put(figures, "cgroup_memory_used_bytes", self._files.read_number(f"{folder}/memory.usage_in_bytes"))
        limit = self._files.read_number(f"{folder}/memory.limit_in_bytes")
        self._put(figures, "cgroup_memory_total_bytes", limit if limit is None or limit < _NO_LIMIT_V1 else None)

    def _table(self, path: str, wanted: dict[bytes, str]) -> dict[str, int]:
        """The wanted lines of a file of names and numbers."""
        values: dict[str, int] = {}
        for line in (self._files.read(path) or b"").splitlines():
            key, _, text = line.partition(b" ")
            if key in wanted:
                number = self._files.number(text)
                if number is not None:
                    values[wanted[key]] = number
                if len(values) == len(wanted):
                    break
        return values

    @staticmethod
    def _put(figures: Figures, name: str, value: int | None) -> None:
        if value is not None:
            figures.setdefault(name, value)

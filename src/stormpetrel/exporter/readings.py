"""What the node as a whole uses: Files -> NodeReader.read -> NodeFigure (pressure, memory, disks, network).

The names are those of node_exporter. What the node does not offer has no figure: nothing is shown as zero because it could not be
read. Disks are whole devices, networks those with hardware behind them: a bridge or a partition would count the same bytes twice.

What one job uses: JobGroup -> figures by metric name.

cgroup v2 gives all of them; v1 gives CPU time and memory, each from the tree of its controller. A figure that the node does not
offer is left out: nothing is ever shown as zero because it could not be read.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import JobGroup
from stormpetrel.exporter.proc_stat import TICKS_PER_SECOND

# name -> type, help; in the order in which they are written.
NODE_FIGURES: Final = {
    "node_pressure_cpu_waiting_seconds_total": ("counter", "Seconds in which some thread waited for a CPU."),
    "node_pressure_memory_waiting_seconds_total": ("counter", "Seconds in which some thread waited for memory."),
    "node_pressure_memory_stalled_seconds_total": ("counter", "Seconds in which all threads waited for memory."),
    "node_pressure_io_waiting_seconds_total": ("counter", "Seconds in which some thread waited for input or output."),
    "node_pressure_io_stalled_seconds_total": ("counter", "Seconds in which all threads waited for input or output."),
    "node_memory_MemTotal_bytes": ("gauge", "Memory of the node."),
    "node_memory_MemAvailable_bytes": ("gauge", "Memory that a new job could get without swapping."),
    "node_disk_io_time_seconds_total": ("counter", "Seconds in which a disk was busy."),
    "node_network_receive_bytes_total": ("counter", "Bytes that a network device has received."),
    "node_network_transmit_bytes_total": ("counter", "Bytes that a network device has sent."),
    "node_network_speed_bytes": ("gauge", "Bytes a second that a network device can move each way."),
}
_PRESSURES: Final = ("cpu", "memory", "io")
_LEVELS: Final = {b"some": "waiting", b"full": "stalled"}
_MEMORY: Final = {b"MemTotal:": "node_memory_MemTotal_bytes", b"MemAvailable:": "node_memory_MemAvailable_bytes"}
_NOT_A_DISK: Final = re.compile(r"(z?ram|loop|fd|sr|(h|s|v|xv)d[a-z]+|nvme\d+n\d+p|mmcblk\d+p)\d+")
_DEVICE: Final = re.compile(r"[A-Za-z0-9_.:!@-]{1,32}")
_BUSY_MS: Final = 12  # column of /proc/diskstats: milliseconds with a request under way
_RECEIVED, _SENT = 0, 8  # columns of /proc/net/dev behind the name
_LIMIT_BYTES: Final = 1 << 20  # machines with thousands of devices
_BYTES_PER_MBIT: Final = 125_000
Figures = dict[str, float]  # seconds and bytes, whole where the kernel gives whole numbers
_NO_LIMIT_V1: Final = 1 << 60  # v1 writes "no limit" as the largest page-aligned number
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


class NodeFigure(NamedTuple):
    """One number; `device` is empty where it is of the node as a whole."""

    name: str
    device: str
    value: float


class NodeReader:
    """Reads the figures of the node."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self) -> list[NodeFigure]:
        """What the node has used so far and holds now, in the order of NODE_FIGURES."""
        figures = [*self._pressure(), *self._memory(), *self._disks(), *self._networks()]
        places = {name: place for place, name in enumerate(NODE_FIGURES)}
        return sorted(figures, key=lambda figure: (places[figure.name], figure.device))

    def _pressure(self) -> list[NodeFigure]:
        figures = []
        for kind in _PRESSURES:
            for line in (self._files.read(self._files.at(f"/proc/pressure/{kind}")) or b"").splitlines():
                name = f"node_pressure_{kind}_{_LEVELS.get(line[:4])}_seconds_total"
                microseconds = self._files.number(line.rpartition(b"total=")[2]) if name in NODE_FIGURES else None
                if microseconds is not None:
                    figures.append(NodeFigure(name, "", microseconds / 1_000_000))
        return figures

    def _memory(self) -> list[NodeFigure]:
        figures = []
        for line in (self._files.read(self._files.at("/proc/meminfo")) or b"").splitlines()[:8]:
            key, _, text = line.partition(b" ")
            kilobytes = self._files.number(text.removesuffix(b" kB")) if key in _MEMORY else None
            if kilobytes is not None:
                figures.append(NodeFigure(_MEMORY[key], "", 1024 * kilobytes))
        return figures

    def _disks(self) -> list[NodeFigure]:
        figures = []
        for line in (self._files.read(self._files.at("/proc/diskstats"), _LIMIT_BYTES) or b"").splitlines():
            fields = line.split()
            device = fields[2].decode("ascii", "replace") if len(fields) > _BUSY_MS else ""
            if not _DEVICE.fullmatch(device) or _NOT_A_DISK.fullmatch(device):
                continue
            milliseconds = self._files.number(fields[_BUSY_MS])
            if milliseconds is not None:
                figures.append(NodeFigure("node_disk_io_time_seconds_total", device, milliseconds / 1000))
        return figures

    def _networks(self) -> list[NodeFigure]:
        figures = []
        for line in (self._files.read(self._files.at("/proc/net/dev"), _LIMIT_BYTES) or b"").splitlines()[2:]:
            name, _, rest = line.partition(b":")
            device, fields = name.strip().decode("ascii", "replace"), rest.split()
            if not _DEVICE.fullmatch(device) or len(fields) <= _SENT or not self._has_hardware(device):
                continue
            received, sent = (self._files.number(fields[column]) for column in (_RECEIVED, _SENT))
            speed = self._speed(device)
            values = {
                "node_network_receive_bytes_total": received,
                "node_network_transmit_bytes_total": sent,
                "node_network_speed_bytes": speed,
            }
            figures += [NodeFigure(figure, device, value) for figure, value in values.items() if value is not None]
        return figures

    def _has_hardware(self, device: str) -> bool:
        return os.path.exists(self._files.at(f"/sys/class/net/{device}/device"))  # noqa: PTH110 - a Path for each is slower

    def _speed(self, device: str) -> int | None:
        """Bytes a second; None where the link is down or does not know."""
        text = (self._files.read(self._files.at(f"/sys/class/net/{device}/speed")) or b"").strip()
        return int(text) * _BYTES_PER_MBIT if text.isdigit() and int(text[:9]) > 0 else None


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

"""The folder in which the IO jobs write: on a disk that really flushes, with room enough, and empty again at the end.

a folder or none -> find_scratch -> Scratch, with what was measured of its disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from stormpetrel.errors import UsageError
from stormpetrel.records.units import format_size
from stormpetrel.store.filesystem import filesystem_type, writing

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "zram"})  # a flush does nothing there
BYTES_PER_CPU: Final = 256 * 1024**2  # more than the files of any job on one CPU
_PROBES: Final = 11
_BLOCK: Final = b"\0" * 4096


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder of our own, and what its disk is like."""

    folder: Path
    filesystem: str
    flush_ms: float  # the median of some writes of 4 KiB, each flushed

    def facts(self) -> dict[str, str | float]:
        """What is written down about it."""
        return {"filesystem": self.filesystem, "flush_ms": round(self.flush_ms, 4)}


@contextmanager
def scratch_folder(wanted: Path | None, neighbour: Path, *, must_flush: bool, cpus: int) -> Iterator[Scratch]:
    """A new folder inside the wanted one, or inside the first usable of the usual places; removed at the end."""
    parent = choose_parent(wanted, [Path(tempfile.gettempdir()), Path("/var/tmp"), neighbour], must_flush=must_flush)  # noqa: S108
    free = shutil.disk_usage(parent).free
    if free < BYTES_PER_CPU * cpus:
        raise UsageError(
            f"{parent} has {format_size(free)} free; the jobs on {cpus} CPUs need {format_size(BYTES_PER_CPU * cpus)}.",
            hint="Free some space or name another folder with --scratch.",
        )
    with writing(parent, doing="make a folder"):
        folder = Path(tempfile.mkdtemp(prefix="stormpetrel-campaign-", dir=parent))
    try:
        yield Scratch(folder, filesystem_type(folder), flush_ms(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def choose_parent(wanted: Path | None, usual: list[Path], *, must_flush: bool, mountinfo: str | None = None) -> Path:
    """The folder to write in; one whose file system keeps everything in memory is no place for Bad IO."""
    if wanted is not None and not wanted.is_dir():
        raise UsageError(f"There is no folder {wanted}.", hint="Make it, or name another with --scratch.")
    candidates = [wanted] if wanted is not None else [folder for folder in usual if os.access(folder, os.W_OK)]
    refused = []
    for folder in candidates:
        kind = filesystem_type(folder, mountinfo)
        if kind not in IN_MEMORY or not must_flush:
            return folder.absolute()
        refused.append(f"{folder} ({kind})")
    raise UsageError(
        f"Bad IO needs a disk, and a flush does nothing on {', '.join(refused) or 'any folder that was tried'}.",
        hint="Name a folder on a disk with --scratch, or leave bad_io out of --types.",
    )


def flush_ms(folder: Path) -> float:
    """How long a flushed write of 4 KiB takes here, in milliseconds: some disks only say that they have flushed."""
    path = folder / "flush.probe"
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for number in range(_PROBES):
            os.lseek(descriptor, number * len(_BLOCK), os.SEEK_SET)
            os.write(descriptor, _BLOCK)
            began = time.perf_counter()
            os.fsync(descriptor)
            times.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    return 1000 * median(times)

"""Where the tests write: in memory where there is enough of it, since a commit of SQLite takes 20 ms on a disk and 1 ms there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_ENOUGH_BYTES: Final = 6 * 1024**3


def use_memory() -> None:
    """Let pytest make its temporary folders in memory, unless somebody has named a place, or there is too little of it."""
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES and _available_bytes() >= 2 * _ENOUGH_BYTES:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


def _available_bytes() -> int:
    """Memory that is free or can be freed at once."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024

"""What a recording was made on: processors, kernel, memory, how busy the machine was before.

this machine -> machine_facts -> a small table that travels with the campaign.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any, Final

BUSY_LOAD: Final = 0.5  # of the last minute: above, an idle thread is not idle


def machine_facts() -> dict[str, Any]:
    """The facts, at this moment."""
    return {
        "node": node_name(),
        "cpus": os.cpu_count(),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def node_name() -> str:
    """How this machine calls itself, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip()[:100] for line in lines if line.partition(":")[0].strip() == name), "")

"""Where a node keeps its cgroups: /sys/fs/cgroup -> Hierarchies.

v2: one tree. v1: one tree per controller. hybrid: both side by side, the controllers with v1. Only the customary places are
examined, so that a recorded tree under another root reads like a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from stormpetrel.exporter.files import Files

TOP: Final = "/sys/fs/cgroup"
# Controller -> a file that its tree has, and the names under which it is mounted.
_V1: Final = {
    "cpuset": ("cpuset.cpus", ("cpuset",)),
    "cpuacct": ("cpuacct.usage", ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")),
    "memory": ("memory.stat", ("memory",)),
    "freezer": ("tasks", ("freezer",)),  # counts nothing, but has every job of proctrack/cgroup
}


class Hierarchies(NamedTuple):
    """The trees of a node."""

    kind: str  # v2, hybrid, v1 or none
    trees: dict[str, str]  # "v2" and v1's controllers -> folder

    @property
    def v2(self) -> str:
        """The folder of the v2 tree, or nothing."""
        return self.trees.get("v2", "")


def find_hierarchies(files: Files) -> Hierarchies:
    """Look at what is mounted."""
    top = Path(files.at(TOP))
    if (top / "cgroup.controllers").is_file():
        return Hierarchies("v2", {"v2": str(top)})
    trees: dict[str, str] = {}
    for name in ("unified", "systemd"):
        if (top / name / "cgroup.controllers").is_file():
            trees["v2"] = str(top / name)
            break
    for controller, (sign, names) in _V1.items():
        for name in names:
            if (top / name / sign).is_file():
                trees[controller] = str(top / name)
                break
    kind = "none" if not trees else "v1" if "v2" not in trees else "hybrid" if len(trees) > 1 else "v2"
    return Hierarchies(kind, trees)

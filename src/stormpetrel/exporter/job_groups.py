"""The cgroups of a node and of its jobs: /sys/fs/cgroup -> Hierarchies; with patterns -> Finder -> JobGroup per job.

v2: one tree. v1: one tree per controller. hybrid: both, the controllers with v1. Only the customary places are examined, so
that a recorded tree under another root reads like a node.

Slurm:    /system.slice/slurmstepd.scope/job_123 (v2; from 26.05 on the job's SLUID), /slurm/uid_1000/job_123 (v1); builds for
          several slurmd have NODE_slurmstepd.scope and slurm_NODE; cgroup.conf may choose another slice
HTCondor: /htcondor/condor_var_lib_condor_execute_slot1_1@host, the same below a slice: the cgroup names the slot, not the job
plain:    /stormpetrel/job_ID, and whatever is named with --cgroup
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stormpetrel.exporter.files import Files

MAX_JOBS: Final = 2048
_RESCAN_S: Final = 30.0  # for the folder in which a scheduler keeps its jobs; the jobs in it are listed every time
_WILD: Final = re.compile(r"[*?\[]")
_SLOT: Final = re.compile(r"_(slot[\d_]+(?:@.*)?)$", re.DOTALL)
_UID: Final = re.compile(r"/uid_(\d{1,10})/")
_OR: Final = "\n"  # between two globs; no cgroup has it in its name
_DIGIT: Final = "[0-9A-HJKMNP-TV-Z]"  # Crockford's base 32
_SLUID: Final = re.compile(f"s{_DIGIT}{{13}}")
_SLURM_V2: Final = f"job_*{_OR}s{13 * _DIGIT}"
TOP: Final = "/sys/fs/cgroup"
# Controller -> a file that its tree has, and the names under which it is mounted.
_V1: Final = {
    "cpuset": ("cpuset.cpus", ("cpuset",)),
    "cpuacct": ("cpuacct.usage", ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")),
    "memory": ("memory.stat", ("memory",)),
    "freezer": ("tasks", ("freezer",)),  # counts nothing, but has every job of proctrack/cgroup
}


class Pattern(NamedTuple):
    """Where jobs are looked for: a folder that seldom changes, and what is in it."""

    scheduler: str
    anchor: str
    within: str


SCHEDULERS: Final = (
    Pattern("Slurm", f"*.slice/slurmstepd.scope{_OR}*_slurmstepd.scope", _SLURM_V2),
    Pattern("Slurm", f"*.slice/*.slice/slurmstepd.scope{_OR}*_slurmstepd.scope", _SLURM_V2),
    Pattern("Slurm", f"slurm{_OR}slurm_*", "uid_*/job_*"),
    Pattern("HTCondor", "htcondor", "condor_*"),
    Pattern("HTCondor", "*.slice/htcondor", "condor_*"),
    Pattern("HTCondor", "*.slice/condor.service/htcondor", "condor_*"),
    Pattern("plain", "stormpetrel", "job_*"),
)


class JobGroup(NamedTuple):
    """The cgroup of one job."""

    name: str  # its path in the tree, such as /system.slice/slurmstepd.scope/job_123
    job_id: str
    uid: int | None  # where the path tells it
    scheduler: str
    folders: dict[str, str]  # "v2" and v1's controllers -> folder
    inode: int  # another one if the group was removed and made again under the same name


def plain_pattern(glob: str) -> Pattern:
    """The pattern of `--cgroup GLOB`: below the root of the tree, also written with /sys/fs/cgroup before it.

    >>> plain_pattern("/sys/fs/cgroup/batch.slice/work-*.scope")
    Pattern(scheduler='plain', anchor='batch.slice', within='work-*.scope')
    """
    path = glob[len(TOP) :] if glob.startswith(TOP + "/") else glob
    parts = [part for part in path.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise ValueError(f"'{glob}' names no cgroup. Write it as stormpetrel/job_* or batch.slice/*.scope.")
    fixed = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1)
    return Pattern("plain", "/".join(parts[:fixed]), "/".join(parts[fixed:]))


def job_id_of(name: str) -> str:
    """The job of a cgroup: what follows `job_`; for HTCondor the slot, since its cgroups do not name the job.

    >>> job_id_of("/slurm/uid_1000/job_123"), job_id_of("/htcondor/condor_var_lib_condor_execute_slot1_2@node7")
    ('123', 'slot1_2@node7')
    """
    last = name.rpartition("/")[2]
    if last.startswith("job_") and len(last) > 4:
        return last[4:]
    slot = _SLOT.search(last)
    return slot.group(1) if slot and last.startswith("condor_") else last


def is_sluid(name: str) -> bool:
    """Whether a name is a SLUID as Slurm writes it.

    >>> is_sluid("sEKNKTV3WPV500"), is_sluid("system")
    (True, False)
    """
    return _SLUID.fullmatch(name) is not None


class Finder:
    """Finds the cgroups of the jobs that are there now."""

    def __init__(self, files: Files, hierarchies: Hierarchies, plain: Sequence[Pattern] = ()) -> None:
        self._files, self._trees, self._patterns = files, hierarchies.trees, (*plain, *SCHEDULERS)
        self._anchors: list[tuple[str, str, Pattern]] = []  # tree, path in it, pattern
        self._scanned_at = float("-inf")
        self.sure = bool(plain)  # whether having found no job means that none runs
        self.left_out = 0

    def find(self) -> list[JobGroup]:
        """All job groups, ordered by name; what lies at the same path in several trees is one group."""
        if time.monotonic() - self._scanned_at > _RESCAN_S:
            self._scan()
        groups: dict[str, JobGroup] = {}
        for tree, anchor, pattern in self._anchors:
            for path, inode in self._walk(tree, anchor, pattern.within.split("/")):
                if path not in groups:
                    groups[path] = JobGroup(path, job_id_of(path), _uid_of(path), pattern.scheduler, {}, inode)
                groups[path].folders[tree] = self._trees[tree] + path
        self.sure = self.sure or bool(groups) or bool(self.schedulers())
        self.left_out = max(0, len(groups) - MAX_JOBS)
        return [groups[name] for name in sorted(groups)[:MAX_JOBS]]

    def schedulers(self) -> list[str]:
        """Whose folders are there, whether or not there is a job in them."""
        return sorted({pattern.scheduler for _, _, pattern in self._here()})

    def folders(self, scheduler: str) -> list[tuple[str, str]]:
        """Where a scheduler keeps its jobs: tree, path in it."""
        return [(tree, path) for tree, path, pattern in self._here() if pattern.scheduler == scheduler]

    def _here(self) -> list[tuple[str, str, Pattern]]:
        return [anchor for anchor in self._anchors if os.access(self._trees[anchor[0]] + anchor[1], os.R_OK)]

    def _scan(self) -> None:
        self._scanned_at = time.monotonic()
        self._anchors = []
        seen: set[tuple[str, str, str]] = set()
        for pattern in self._patterns:
            parts = [part for part in pattern.anchor.split("/") if part]
            for tree in self._trees:
                fixed = not _WILD.search(pattern.anchor)
                # A fixed folder is not looked for: it may come at any time, and listing what is not there costs next to nothing.
                paths = ["".join(f"/{part}" for part in parts)] if fixed else [path for path, _ in self._walk(tree, "", parts)]
                for path in paths:
                    if (tree, path, pattern.within) not in seen:
                        seen.add((tree, path, pattern.within))
                        self._anchors.append((tree, path, pattern))

    def _walk(self, tree: str, path: str, parts: Sequence[str]) -> Iterator[tuple[str, int]]:
        """The folders below a path whose names match, part by part."""
        matches = _matcher(parts[0])
        try:
            with os.scandir(self._trees[tree] + path) as entries:
                folders = [(entry.name, entry.inode()) for entry in entries if matches(entry.name) and _is_folder(entry)]
        except OSError as error:
            self._files.note(error)
            return
        for name, inode in folders:
            if len(parts) == 1:
                yield f"{path}/{name}", inode
            else:
                yield from self._walk(tree, f"{path}/{name}", parts[1:])


def _uid_of(name: str) -> int | None:
    match = _UID.search(name)
    return int(match.group(1)) if match else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


@functools.lru_cache(maxsize=64)
def _matcher(glob: str) -> Callable[[str], object]:
    return re.compile("|".join(map(fnmatch.translate, glob.split(_OR)))).match


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

"""Where jobs run: a cgroup with a CPU set for each job, as a scheduler makes it, so that the exporter sees whose thread is whose.

job -> JobPlaces.open -> the cgroups to join (v2; on hybrid and v1 hosts also v1's cpuset), or a line per thread in the file that
the exporter reads. Which of the two is possible is a matter of rights, found out once.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormpetrel.private_files import write_private
from stormpetrel.rehearse.plan import PlannedJob

TOP: Final = Path("/sys/fs/cgroup")
PARENT: Final = "stormpetrel"  # the folder that holds the cgroups of all jobs of a campaign
_POLL_S: Final = 0.02
_EMPTY_LIMIT_S: Final = 5.0
_LEFT_OVER_S: Final = 60.0


class JobPlaces:
    """The places of the jobs of one campaign."""

    def __init__(self, threads_file: Path, *, top: Path = TOP) -> None:
        self.threads_file = threads_file
        self._parents = [parent for parent in (_v2_parent(top), _v1_parent(top / "cpuset")) if parent]
        self._bound: dict[str, PlannedJob] = {}
        self._write_threads()

    @property
    def in_cgroups(self) -> bool:
        """Whether the exporter can see from cgroups whose thread is whose; otherwise the threads file tells it."""
        return bool(self._parents)

    def open(self, job: PlannedJob) -> list[Path]:
        """Make a place for a job; the cgroups to join."""
        self._bound[job.job_id] = job
        self._write_threads()
        folders = [parent / f"job_{job.job_id}" for parent in self._parents]
        for folder in folders:
            folder.mkdir(exist_ok=True)
            _set_cpus(folder, ",".join(map(str, job.cpus)))
        return folders

    def close(self, job: PlannedJob) -> None:
        """Take the place away; what still runs in it is killed."""
        self._bound.pop(job.job_id, None)
        self._write_threads()
        for parent in self._parents:
            _remove(parent / f"job_{job.job_id}")

    def close_all(self) -> None:
        """Leave nothing behind."""
        for job in list(self._bound.values()):
            self.close(job)
        for parent in self._parents:
            with suppress(OSError):  # another one's jobs are in it
                parent.rmdir()

    def _write_threads(self) -> None:
        lines = [f"{cpu} {job.job_id}\n" for job in self._bound.values() for cpu in job.cpus]
        write_private(self.threads_file, "".join(lines))


def _v2_parent(top: Path) -> Path | None:
    """A folder for our groups in the tree of cgroup v2, with CPU sets where the system has passed them on."""
    for root in (top, top / "unified"):
        if not (root / "cgroup.controllers").is_file():
            continue  # v2 has this file at every level, v1 nowhere
        parent = _cgroup_of_campaign(root)
        if parent is None or not os.access(root / "cgroup.procs", os.W_OK):
            return None  # to move a process out of the root takes the right to write there
        with suppress(OSError):
            if "cpuset" in (parent / "cgroup.controllers").read_text().split():
                (parent / "cgroup.subtree_control").write_text("+cpuset")
        return parent
    return None


def _v1_parent(root: Path) -> Path | None:
    """The same in the tree of v1's CPU sets, which start without CPUs and memory of their own."""
    parent = _cgroup_of_campaign(root) if (root / "cpuset.mems").is_file() else None
    if parent is None:
        return None
    try:
        for name in ("cpuset.cpus", "cpuset.mems"):
            (parent / name).write_text((root / name).read_text().strip())
    except OSError:
        return None
    return parent


def _cgroup_of_campaign(root: Path) -> Path | None:
    parent = root / PARENT
    try:
        parent.mkdir(exist_ok=True)
    except OSError:
        return None
    for left in parent.glob("job_*"):  # by a campaign that was killed outright
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_OVER_S:
                left.rmdir()  # not possible while anything runs in it
    return parent if os.access(parent / "cgroup.procs", os.W_OK) else None


def _set_cpus(folder: Path, cpus: str) -> None:
    """Give a group its CPUs; where there are no CPU sets, the affinity of its processes has to do."""
    if (folder / "cpuset.cpus").is_file():
        (folder / "cpuset.cpus").write_text(cpus)
    if (folder / "cpuset.effective_mems").is_file():  # v1: a group without memory takes no process
        (folder / "cpuset.mems").write_text((folder.parent / "cpuset.mems").read_text().strip())


def _remove(folder: Path) -> None:
    with suppress(OSError):
        if (folder / "cgroup.kill").is_file():
            (folder / "cgroup.kill").write_text("1")  # Linux 5.14 and later; a group without processes does not mind
    give_up = time.monotonic() + _EMPTY_LIMIT_S
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                return
            time.sleep(_POLL_S)

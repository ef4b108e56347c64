"""Whose processes are in a job's cgroup, and on which CPUs they may run: JobGroup -> owner, CPUs.

Threads are examined one by one: a program that binds its threads (OpenMP) leaves its first one on a single CPU.

The job behind a cgroup that Slurm named by SLUID: JobGroup -> JobGroup with its job id.

Slurm 26.05 names the cgroup of a job s0123456789ABC and no longer job_123 (CgroupJobIdPaths=yes in cgroup.conf, from 26.05.2 on,
brings the old names back). Cluster, time and a sequence number are in a SLUID; the job id is not. On the node it is in the title
of the step's slurmstepd, "slurmstepd: [123.batch]", which sits in the cgroup step_*/slurm of the job.

A user can give his own processes any title and any SLURM_JOB_ID; he can neither move them into step_*/slurm nor make them root's.
So only a process that sits there, and is root's by all four of its user ids, is believed.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator
from typing import Final

from stormpetrel.exporter.files import Files, parse_cpu_list
from stormpetrel.exporter.job_groups import JobGroup, is_sluid

_MAX_FOLDERS: Final = 2000  # below one job; a step of Slurm's has three or four
_MAX_DEPTH: Final = 8
_MAX_THREADS: Final = 4096
_MAX_USERS: Final = 4096
_LIST_BYTES: Final = 1 << 20
TRY_AGAIN_S: Final = 60.0  # where processes were seen but their owner may not be
_SCHEDULERS_OWN: Final = "slurm"  # slurmstepd sits next to the user's processes of a step
_STATUS_UID: Final = re.compile(rb"^Uid:\s+(\d+)", re.MULTILINE)
_STATUS_CPUS: Final = re.compile(rb"^Cpus_allowed_list:\s*(\S*)", re.MULTILINE)
UNNAMED: Final = (
    "the title of slurmstepd cannot be read, so jobs are shown by their SLUID: set CgroupJobIdPaths=yes in cgroup.conf"
)
_MAX_STEPS: Final = 64  # of one job; each has a slurmstepd that says the same
_TITLE_BYTES: Final = 4096
_TITLE: Final = re.compile(rb"slurmstepd: \[([1-9]\d{0,9})\.[\w+]{1,32}\]")
_UIDS: Final = re.compile(rb"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.MULTILINE)
_ROOT: Final = (b"0",) * 4


class Processes:
    """Looks at the processes of jobs, and remembers what does not change."""

    def __init__(self, files: Files, *, usernames: bool = True) -> None:
        self._files, self._usernames = files, usernames
        self._owners: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[str, int], float] = {}
        self._names: dict[int, str] = {}

    def owner(self, group: JobGroup) -> int | None:
        """The user id whose job this is: as the path says, or the owner of its processes; None while that cannot be seen."""
        if group.uid is not None:
            return group.uid
        key = (group.name, group.inode)
        if key not in self._owners and self._waiting.get(key, 0.0) < time.monotonic():
            threads = self.threads(group)
            owners = [uid for uid in map(self._uid, threads[:64]) if uid is not None]
            if owners:
                self._owners[key] = next((uid for uid in owners if uid), 0)  # the scheduler's own helper may be root
            elif threads:
                self._waiting[key] = time.monotonic() + TRY_AGAIN_S
        return self._owners.get(key)

    def forget_all_but(self, groups: list[JobGroup]) -> None:
        """Let go of what was remembered about jobs that are gone."""
        here = {(group.name, group.inode) for group in groups}
        self._owners = {key: uid for key, uid in self._owners.items() if key in here}
        self._waiting = {key: until for key, until in self._waiting.items() if key in here}

    def username(self, uid: int | None) -> str:
        """The name of a user; empty where it is not known or not requested."""
        if uid is None or not self._usernames:
            return ""
        if uid not in self._names:
            if len(self._names) >= _MAX_USERS:
                self._names.clear()
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except (KeyError, OverflowError):
                self._names[uid] = ""
        return self._names[uid]

    def threads(self, group: JobGroup) -> list[int]:
        """The ids of a job's threads, from the first tree that has any."""
        for folder in group.folders.values():
            threads: list[int] = []
            for below in _folders(folder):
                threads += self._listed(below)
                if len(threads) >= _MAX_THREADS:
                    break
            if threads:
                return threads[:_MAX_THREADS]
        return []

    def cpus(self, group: JobGroup, online: frozenset[int]) -> frozenset[int] | None:
        """The CPUs on which any thread of a job may run; none if it has no thread; None where that cannot be known."""
        allowed: frozenset[int] = frozenset()
        threads = self.threads(group)
        seen = 0
        for thread in threads:
            own = self._allowed(thread)
            if own is not None and online <= own and self._is_stepd(group, thread):
                own = frozenset()  # it only waits for the others
            if own is not None:
                seen += 1
                allowed |= own & online
                if allowed == online:  # it cannot become more
                    break
        return None if threads and not seen else allowed

    def _listed(self, folder: str) -> list[int]:
        for name in ("cgroup.threads", "tasks", "cgroup.procs"):
            text = self._files.read(f"{folder}/{name}", _LIST_BYTES)
            if text is not None:
                return [int(number) for number in text.split() if number.isdigit() and number != b"0"]
        return []

    def _uid(self, thread: int) -> int | None:
        match = _STATUS_UID.search(self._files.read(self._files.at(f"/proc/{thread}/status")) or b"")
        return int(match.group(1)) if match else None

    def _is_stepd(self, group: JobGroup, thread: int) -> bool:
        """Whether a thread is slurmstepd's, which cgroup v1 has among those of the job; a user's own is not root's."""
        if group.scheduler != "Slurm" or self._uid(thread) != 0:
            return False
        return (self._files.read(self._files.at(f"/proc/{thread}/cmdline"), _LIST_BYTES) or b"").startswith(b"slurmstepd: [")

    def _allowed(self, thread: int) -> frozenset[int] | None:
        if not self._files.root:  # asking the kernel is cheaper than a file, and works where /proc hides other users' processes
            try:
                return frozenset(os.sched_getaffinity(thread))
            except (OSError, OverflowError):
                return None
        match = _STATUS_CPUS.search(self._files.read(self._files.at(f"/proc/{thread}/status")) or b"")
        return parse_cpu_list(match.group(1)) if match else None


def _folders(top: str) -> Iterator[str]:
    """A job's folder and those below it, breadth first, without the scheduler's own."""
    level, count = [top], 0
    for _ in range(_MAX_DEPTH):
        below: list[str] = []
        for folder in level:
            yield folder
            count += 1
            if count >= _MAX_FOLDERS:
                return
            below += _subfolders(folder)
        level = below


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name != _SCHEDULERS_OWN]
    except OSError:
        return []


class SlurmJobs:
    """Finds out job ids, once per job."""

    def __init__(self, files: Files, processes: Processes) -> None:
        self._files, self._processes = files, processes
        self._ids: dict[tuple[str, int], str] = {}
        self._waiting: dict[tuple[str, int], float] = {}

    def named(self, groups: list[JobGroup]) -> list[JobGroup]:
        """The groups with their job ids; one whose job cannot be known keeps its SLUID, one with nothing in it is left out."""
        if not any(is_sluid(group.job_id) for group in groups):
            return groups
        here = {(group.name, group.inode) for group in groups}
        self._ids = {key: job_id for key, job_id in self._ids.items() if key in here}
        self._waiting = {key: until for key, until in self._waiting.items() if key in here}
        named = (self._named(group) if is_sluid(group.job_id) else group for group in groups)
        return [group for group in named if group is not None]

    def _named(self, group: JobGroup) -> JobGroup | None:
        key = (group.name, group.inode)
        if key not in self._ids and self._waiting.get(key, 0.0) < time.monotonic():
            stepds = list(self._stepds(group))
            titles = {self._title(leaf, process) for leaf, process in stepds} - {""}
            if len(titles) == 1:
                self._ids[key] = titles.pop()
            elif stepds or self._processes.threads(group):
                self._waiting[key] = time.monotonic() + TRY_AGAIN_S
            else:
                return None  # slurmstepd makes the cgroup first, and moves into it then
        return group._replace(job_id=self._ids.get(key, group.job_id))

    def _stepds(self, group: JobGroup) -> Iterator[tuple[str, bytes]]:
        """The cgroups of a job's slurmstepd, and the processes in them."""
        for folder in group.folders.values():
            for step in _steps(folder):
                leaf = f"{folder}/{step}/slurm/cgroup.procs"
                for process in (self._files.read(leaf) or b"").split():
                    yield leaf, process

    def _title(self, leaf: str, process: bytes) -> str:
        """The job in the title of a slurmstepd; empty where it is none, or none of root's."""
        folder = self._files.at(f"/proc/{process.decode('ascii', 'replace')}") if process.isdigit() and process != b"0" else ""
        owners = _UIDS.search(self._files.read(f"{folder}/status") or b"") if folder else None
        if owners is None or owners.groups() != _ROOT:
            return ""
        title = _TITLE.fullmatch((self._files.read(f"{folder}/cmdline", _TITLE_BYTES) or b"").rstrip(b" \0"))
        still_there = process in (self._files.read(leaf) or b"").split()  # its number may have another process by now
        return title.group(1).decode() if title and still_there else ""


def _steps(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            steps = [entry.name for entry in entries if entry.name.startswith("step_") and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return steps[:_MAX_STEPS]

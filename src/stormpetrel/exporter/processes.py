"""Whose processes are in a job's cgroup, and on which CPUs they may run: JobGroup -> owner, CPUs.

Threads are examined one by one: a program that binds its threads (OpenMP) leaves its first one on a single CPU.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator
from typing import Final

from stormpetrel.exporter.cpu_lists import parse_cpu_list
from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import JobGroup

_MAX_FOLDERS: Final = 2000  # below one job; a step of Slurm's has three or four
_MAX_DEPTH: Final = 8
_MAX_THREADS: Final = 4096
_MAX_USERS: Final = 4096
_LIST_BYTES: Final = 1 << 20
TRY_AGAIN_S: Final = 60.0  # where processes were seen but their owner may not be
_SCHEDULERS_OWN: Final = "slurm"  # slurmstepd sits next to the user's processes of a step
_STATUS_UID: Final = re.compile(rb"^Uid:\s+(\d+)", re.MULTILINE)
_STATUS_CPUS: Final = re.compile(rb"^Cpus_allowed_list:\s*(\S*)", re.MULTILINE)


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

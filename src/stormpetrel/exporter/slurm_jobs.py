"""The job behind a cgroup that Slurm named by SLUID: JobGroup -> JobGroup with its job id.

Slurm 26.05 names the cgroup of a job s0123456789ABC and no longer job_123 (CgroupJobIdPaths=yes in cgroup.conf, from 26.05.2 on,
brings the old names back). Cluster, time and a sequence number are in a SLUID; the job id is not. On the node it is in the title
of the step's slurmstepd, "slurmstepd: [123.batch]", which sits in the cgroup step_*/slurm of the job.

A user can give his own processes any title and any SLURM_JOB_ID; he can neither move them into step_*/slurm nor make them root's.
So only a process that sits there, and is root's by all four of its user ids, is believed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Final

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import JobGroup, is_sluid
from stormpetrel.exporter.processes import TRY_AGAIN_S, Processes

UNNAMED: Final = (
    "the title of slurmstepd cannot be read, so jobs are shown by their SLUID: set CgroupJobIdPaths=yes in cgroup.conf"
)
_MAX_STEPS: Final = 64  # of one job; each has a slurmstepd that says the same
_TITLE_BYTES: Final = 4096
_TITLE: Final = re.compile(rb"slurmstepd: \[([1-9]\d{0,9})\.[\w+]{1,32}\]")
_UIDS: Final = re.compile(rb"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.MULTILINE)
_ROOT: Final = (b"0",) * 4


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

"""Which job runs on which thread: CPUs per job -> Bindings.

A hardware thread is distinguished only where one job alone may use it. A job counts as bound to CPUs if its cgroup has a CPU
set of its own, or if that or the affinity of all its threads leaves out some CPUs of the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

from stormpetrel.exporter.files import MAX_CPU, Files, parse_cpu_list
from stormpetrel.exporter.job_groups import JobGroup
from stormpetrel.exporter.processes import Processes

# These are values of a label: they never name a job.
UNBOUND: Final = "a job is not bound to CPUs: it may run on any of them"
UNSEEN: Final = "the CPUs of a job cannot be seen: its cgroup has no CPU set and its processes are hidden"
SHARED: Final = "two jobs share a CPU"
NO_CGROUPS: Final = "there are no cgroups under /sys/fs/cgroup"
NO_JOBS_SEEN: Final = "no job cgroup was seen yet: neither Slurm's nor HTCondor's; name yours with --cgroup"
TOO_MANY: Final = "there are more job cgroups than are looked at"
_THREADS_BYTES: Final = 1 << 20


class JobCpus(NamedTuple):
    """The CPUs of one job."""

    cpus: frozenset[int]
    how: str  # cpuset, affinity, or nothing where the job is not bound
    known: bool = True


class Bindings(NamedTuple):
    """Which job has which CPU, where that is certain."""

    jobs: dict[int, str]
    distinguishable: bool
    why: str = ""  # if not


class CpuSets:
    """Finds out the CPUs of jobs."""

    def __init__(self, files: Files, processes: Processes) -> None:
        self._files, self._processes = files, processes

    def read(self, group: JobGroup, online: frozenset[int]) -> JobCpus:
        """The CPUs of a job: its CPU set's, or those of its threads."""
        cpus, own = self._cpuset(group)
        if cpus is not None and (own or cpus & online != online):
            return JobCpus(cpus & online, "cpuset")
        allowed = self._processes.cpus(group, online)
        if allowed is None:
            return JobCpus(cpus or online, "", known=False)
        return JobCpus(allowed, "affinity" if allowed != online else "")

    def _cpuset(self, group: JobGroup) -> tuple[frozenset[int] | None, bool]:
        """The CPU set of a group, and whether it was set for this group and not inherited."""
        folder = group.folders.get("v2")
        if folder:
            cpus = self._list(f"{folder}/cpuset.cpus.effective")
            if cpus is not None:
                return cpus, bool(self._list(f"{folder}/cpuset.cpus"))
        folder = group.folders.get("cpuset")
        if folder:  # v1: whoever makes a group in this tree does it for the CPU set
            return self._list(f"{folder}/cpuset.effective_cpus") or self._list(f"{folder}/cpuset.cpus"), True
        return None, False

    def _list(self, path: str) -> frozenset[int] | None:
        text = self._files.read(path)
        if text is None:
            return None
        cpus = parse_cpu_list(text)
        if cpus is None:
            self._files.problems["malformed"] += 1
        return cpus


def bind(jobs: Iterable[tuple[str, JobCpus]]) -> Bindings:
    """Join jobs and CPUs: (job, its CPUs) for all jobs of the node."""
    taken: dict[int, str] = {}
    shared: set[int] = set()
    for job_id, threads in jobs:
        if not threads.known:
            return Bindings({}, distinguishable=False, why=UNSEEN)
        if not threads.how:
            return Bindings({}, distinguishable=False, why=UNBOUND)
        for cpu in threads.cpus:
            if taken.setdefault(cpu, job_id) != job_id:
                shared.add(cpu)
    for cpu in shared:
        del taken[cpu]
    return Bindings(taken, distinguishable=not shared, why=SHARED if shared else "")


class ThreadsFile:
    """A file that says which job is on which CPU, one "cpu jobid" per line, for nodes on which cgroups cannot say it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> Bindings:
        """What the file says now; it is believed only if it is a plain file of our own that nobody else may write."""
        try:
            number = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return _doubted("it is not there, is a link, or may not be read")
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return _doubted("it is not ours alone to write")
            text = os.read(number, _THREADS_BYTES + 1)
        except OSError:
            return _doubted("it may not be read")
        finally:
            os.close(number)
        return _parse_threads(text)


def _parse_threads(text: bytes) -> Bindings:
    if len(text) > _THREADS_BYTES:
        return _doubted("it is too large")
    taken: dict[int, str] = {}
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 2 or not (fields[0].isascii() and fields[0].isdigit()) or int(fields[0][:8]) >= MAX_CPU:
            return _doubted("a line is not a CPU and a job")
        if taken.setdefault(int(fields[0]), fields[1]) != fields[1]:
            return Bindings({}, distinguishable=False, why=SHARED)
    return Bindings(taken, distinguishable=True)


def _doubted(why: str) -> Bindings:
    return Bindings({}, distinguishable=False, why=f"the file of --threads-file is not believed: {why}")

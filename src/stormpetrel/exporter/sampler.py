"""One sample of the node: Files -> Sampler -> Sample (CPU counters, figures of the node, jobs, bindings, what is missing)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from stormpetrel.exporter import bindings as binding
from stormpetrel.exporter.bindings import Bindings, CpuSets, JobCpus, ThreadsFile
from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import Finder, Hierarchies, JobGroup, find_hierarchies, is_sluid, plain_pattern
from stormpetrel.exporter.proc_stat import CpuReader, CpuSample
from stormpetrel.exporter.processes import UNNAMED, Processes, SlurmJobs
from stormpetrel.exporter.readings import Figures, JobReader, NodeFigure, NodeReader

# What a job's cgroup should offer -> a figure that shows that it does.
OFFERS: Final = {
    "cpu": "cgroup_cpu_total_seconds",
    "memory": "cgroup_memory_used_bytes",
    "cpu pressure": "cgroup_pressure_cpu_waiting_seconds_total",
    "memory pressure": "cgroup_pressure_memory_waiting_seconds_total",
    "io pressure": "cgroup_pressure_io_waiting_seconds_total",
}


class Node(NamedTuple):
    """Which node is examined, and how."""

    root: str = "/"
    cgroups: Sequence[str] = ()
    threads_file: str = ""
    usernames: bool = True


class Job(NamedTuple):
    """One job at one moment."""

    group: JobGroup
    uid: int | None
    username: str
    cpus: JobCpus
    figures: Figures


class Jobs(NamedTuple):
    """All jobs of the node at one moment."""

    jobs: list[Job]
    bindings: Bindings
    missing: list[tuple[str, str]]  # what, why


class Sample(NamedTuple):
    """The node at one moment."""

    cpus: CpuSample
    node: list[NodeFigure]
    jobs: Jobs
    seconds: float  # how long it took to read


class Sampler:
    """Samples the node; may be called from several threads."""

    def __init__(self, node: Node) -> None:
        self.files = Files(node.root)
        self.hierarchies: Hierarchies = find_hierarchies(self.files)
        self.finder = Finder(self.files, self.hierarchies, [plain_pattern(glob) for glob in node.cgroups])
        self._cpus = CpuReader(self.files)
        self._node = NodeReader(self.files)
        self._processes = Processes(self.files, usernames=node.usernames)
        self._slurm_jobs = SlurmJobs(self.files, self._processes)
        self._sets = CpuSets(self.files, self._processes)
        self._reader = JobReader(self.files)
        self._threads_file = ThreadsFile(node.threads_file) if node.threads_file else None
        self._fixed = _missing_here(self.hierarchies, self.files)
        self._lock = threading.Lock()

    def sample(self) -> Sample:
        """Read everything: the CPU counters first, at one moment, then the jobs."""
        with self._lock:
            began = time.perf_counter()
            cpus = self._cpus.read()
            node, jobs = self._node.read(), self._read_jobs(cpus)
            return Sample(cpus, node, jobs, time.perf_counter() - began)

    def _read_jobs(self, cpus: CpuSample) -> Jobs:
        online = frozenset(cpus.cpus)
        groups = self._slurm_jobs.named(self.finder.find())
        self._processes.forget_all_but(groups)
        jobs = [self._read_job(group, online) for group in groups]
        bindings = self._bindings(jobs)
        missing = [*self._fixed, *_not_offered(jobs, self._fixed)]
        if any(is_sluid(group.job_id) for group in groups):
            missing.append(("job ids", UNNAMED))
        if not bindings.distinguishable:
            missing.append(("threads told apart", bindings.why))
        return Jobs(jobs, bindings, missing)

    def _read_job(self, group: JobGroup, online: frozenset[int]) -> Job:
        uid = self._processes.owner(group)
        return Job(group, uid, self._processes.username(uid), self._sets.read(group, online), self._reader.read(group))

    def _bindings(self, jobs: list[Job]) -> Bindings:
        if self._threads_file is not None:
            return self._threads_file.read()
        if self.hierarchies.kind == "none":
            return Bindings({}, distinguishable=False, why=binding.NO_CGROUPS)
        if self.finder.left_out:
            return Bindings({}, distinguishable=False, why=binding.TOO_MANY)
        if not self.finder.sure:
            return Bindings({}, distinguishable=False, why=binding.NO_JOBS_SEEN)
        return binding.bind((job.group.job_id, job.cpus) for job in jobs)


def _missing_here(hierarchies: Hierarchies, files: Files) -> list[tuple[str, str]]:
    """What this node cannot offer for any job."""
    kind, trees = hierarchies
    if kind == "none":
        return [("jobs", binding.NO_CGROUPS)]
    missing = []
    if kind == "v1":
        missing.append(("pressure", "cgroup v1 does not count pressure"))
        missing += [
            (what, f"cgroup v1 without the {controller} controller")
            for what, controller in (("cpu", "cpuacct"), ("memory", "memory"), ("cpu sets", "cpuset"))
            if controller not in trees
        ]
    elif files.read(files.at("/proc/pressure/cpu")) is None:
        missing.append(("pressure", "the kernel does not count pressure: boot it with psi=1"))
    if kind == "hybrid":
        missing.append(("cgroup v2 controllers", "hybrid host: memory and CPU sets are counted by cgroup v1, pressure by v2"))
    return missing


def _not_offered(jobs: list[Job], fixed: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What should be there and no job has."""
    if not jobs:
        return []
    known = {what for what, _ in fixed}
    return [
        (what, "no job is in a cgroup that counts it")
        for what, figure in OFFERS.items()
        if what not in known and what.rpartition(" ")[2] not in known and not any(figure in job.figures for job in jobs)
    ]

"""The cgroups of this machine: made for the test, and removed after it."""

import os
import subprocess
import sys
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from stormpetrel.exporter.bindings import bind
from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import find_hierarchies
from stormpetrel.exporter.sampler import Node, Sampler
from tests.exporter.made import figures_of, text_of
from tests.parts import is_root, wait_until

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: sum(range(10_000))"
TREES = find_hierarchies(Files()).trees


@contextmanager
def group_in(tree, name):
    """A cgroup and the one above it."""
    folder = Path(TREES[tree]) / name
    made = []
    try:
        for each in (folder.parent, folder):
            each.mkdir()
            made.append(each)
            if tree == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (each / file).write_text((each.parent / file).read_text().strip())
        yield folder
    finally:
        for each in reversed(made):
            wait_until(lambda each=each: _removed(each), f"{each} is empty", limit_s=10)


def _removed(folder):
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


@contextmanager
def busy(cpu, *folders):
    """A process that keeps one CPU busy, in some cgroups."""
    with subprocess.Popen([sys.executable, "-c", BUSY, str(cpu)]) as process:
        try:
            for folder in folders:
                (folder / "cgroup.procs").write_text(str(process.pid))
            wait_until(lambda: os.sched_getaffinity(process.pid) == {cpu}, "the process has bound itself", limit_s=10)
            yield process
        finally:
            process.kill()


@pytest.fixture
def name():
    if not is_root():
        pytest.skip("needs root, to make cgroups")
    return f"petrel-test-{uuid.uuid4().hex[:8]}/job_{uuid.uuid4().hex[:8]}"


def job_of(sampler, name):
    """Our own job: others may run on this machine."""
    (job,) = [job for job in sampler.sample().jobs.jobs if job.group.name == f"/{name}"]
    return job


@pytest.mark.root
@pytest.mark.skipif("v2" not in TREES, reason="there is no cgroup v2 here")
def test_a_real_group_of_v2_is_read_and_bound_by_affinity(name):
    cpu = max(os.sched_getaffinity(0))
    sampler = Sampler(Node(cgroups=[f"{name.partition('/')[0]}/job_*"]))
    with group_in("v2", name) as folder:
        assert job_of(sampler, name).cpus.cpus == frozenset()
        with busy(cpu, folder):
            wait_until(
                lambda: job_of(sampler, name).figures["cgroup_cpu_total_seconds"] > 0.1, "the job uses its CPU", limit_s=20
            )
            job = job_of(sampler, name)
            assert (job.uid, job.username) == (0, "root")
            assert (job.cpus.cpus, job.cpus.how) == (frozenset({cpu}), "affinity")
            assert bind([(job.group.job_id, job.cpus)]).jobs == {cpu: name.partition("job_")[2]}
            assert "cgroup_pressure_cpu_waiting_seconds_total" in job.figures
            found = figures_of(text_of(sampler))
            assert found["cgroup_cpu_info", f"/{name}", str(cpu)] == 1
    assert all(job.group.name != f"/{name}" for job in sampler.sample().jobs.jobs)


@pytest.mark.root
@pytest.mark.skipif("cpuset" not in TREES, reason="there is no tree of v1's CPU sets here")
def test_real_groups_of_v1_are_read_and_bound_by_their_cpu_set(name):
    cpu = min(os.sched_getaffinity(0))
    sampler = Sampler(Node(cgroups=[f"{name.partition('/')[0]}/job_*"]))
    with ExitStack() as stack:
        folders = [stack.enter_context(group_in(tree, name)) for tree in ("cpuset", "cpuacct", "memory") if tree in TREES]
        (folders[0] / "cpuset.cpus").write_text(str(cpu))
        stack.enter_context(busy(cpu, *folders))
        job = job_of(sampler, name)
        assert (job.cpus.cpus, job.cpus.how, job.uid) == (frozenset({cpu}), "cpuset", 0)
        assert job.figures["cgroup_cpu_total_seconds"] >= 0 and job.figures["cgroup_memory_used_bytes"] >= 0
        assert "cgroup_memory_total_bytes" not in job.figures  # no limit was set

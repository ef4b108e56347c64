"""What the exporter says about jobs, beside what a real Slurm says of the same jobs at the same time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stormpetrel.exporter.check import as_json, check
from stormpetrel.exporter.sampler import Job, Node, Sampler
from tests.parts import is_root, wait_until
from tests.parts.slurm import RealSlurm
from tests.parts.slurm_cgroups import TREES, cgroup_slurm, cpus_by_scontrol

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(not {"cpuset", "cpuacct", "memory", "freezer"} <= TREES.keys(), reason="there is no cgroup v1 here"),
]
CPUS = os.cpu_count() or 1
_SHARED_MB = 20


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    if not is_root():
        pytest.skip("needs root, to make cgroups")
    with cgroup_slurm() as cluster:
        yield cluster


@pytest.fixture
def empty(slurm: RealSlurm) -> Iterator[RealSlurm]:
    """The cluster, whose jobs are gone after the test."""
    yield slurm
    slurm.command("scancel", "--user=root")
    wait_until(lambda: not slurm.command("squeue", "-h") and not seen(slurm), "all jobs are gone", limit_s=60)


def seen(slurm: RealSlurm) -> dict[str, Job]:
    """The jobs of our own cluster that the exporter sees now: others may run on this machine."""
    jobs = Sampler(Node()).sample().jobs.jobs
    return {job.group.job_id: job for job in jobs if slurm.nodes[0] in job.group.name}


def wait_for_jobs(slurm: RealSlurm, count: int) -> dict[str, Job]:
    """The jobs, once as many run as shall, and each is in all cgroups: slurmstepd makes them one after the other."""
    needed = {"cpuset", "cpuacct", "memory"}
    wait_until(
        lambda: [job.group.folders.keys() >= needed and job.cpus.cpus > set() for job in seen(slurm).values()] == [True] * count,
        f"{count} jobs are seen",
        limit_s=90,
    )
    return seen(slurm)


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("jobs", "count"),
    [
        ([("-n1", "--wrap=sleep 300"), ("-n1", "--wrap=sleep 300")], 2),
        ([("-n1", "--array=3,7", "--wrap=sleep 300")], 2),
        ([(f"-n{CPUS}", "--wrap=sleep 300")], 1),
    ],
    ids=["a CPU each", "an array", "the whole node"],
)
def test_the_cpus_of_jobs_are_those_that_scontrol_names(empty: RealSlurm, jobs: list[tuple[str, ...]], count: int) -> None:
    for words in jobs:
        empty.submit(*words)
    found = wait_for_jobs(empty, count)
    named = cpus_by_scontrol(empty.command("scontrol", "show", "job", "-d", "--all"))
    assert {job_id: job.cpus.cpus for job_id, job in found.items()} == {job_id: named[job_id] for job_id in found}


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_several_steps_are_one_job_with_the_cpus_of_all(empty: RealSlurm) -> None:
    job_id = str(empty.submit("-n2", "--wrap=srun -n1 --exact sleep 300 & srun -n1 --exact sleep 300 & wait"))
    folder = Path(wait_for_jobs(empty, 1)[job_id].group.folders["cpuset"])
    wait_until(lambda: all((folder / step).is_dir() for step in ("step_0", "step_1")), "both steps run", limit_s=60)
    named = cpus_by_scontrol(empty.command("scontrol", "show", "job", "-d", job_id))
    assert {found: job.cpus.cpus for found, job in seen(empty).items()} == named


@pytest.fixture(scope="module")
def busy(slurm: RealSlurm) -> Iterator[str]:
    """The id of the only job there is: it has a file in memory and uses its CPU."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="petrel-") as shared:
        fill = f"head -c {_SHARED_MB}M /dev/zero > {shared.name}"
        job_id = str(slurm.submit("-n1", f"--wrap={fill}; while true; do :; done"))
        wait_for_jobs(slurm, 1)
        yield job_id


def test_any_user_may_read_the_title_of_slurmstepd_and_it_names_the_job(slurm: RealSlurm, busy: str) -> None:
    folder = Path(seen(slurm)[busy].group.folders["freezer"])
    (stepd,) = (folder / "cgroup.procs").read_text().split()  # its tasks are in the folders of the steps
    words = ["setpriv", "--reuid=nobody", "--clear-groups", "cat", f"/proc/{stepd}/cmdline", f"/proc/{stepd}/status"]
    read = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout
    assert read.startswith(f"slurmstepd: [{busy}.batch]") and "\nUid:\t0\t0\t0\t0\n" in read


def test_a_job_has_its_owner_its_time_and_its_memory(slurm: RealSlurm, busy: str) -> None:
    wait_until(lambda: seen(slurm)[busy].figures["cgroup_cpu_total_seconds"] > 0.2, "it has used its CPU", limit_s=60)
    job = seen(slurm)[busy]
    assert job.username == "root" and job.figures["cgroup_memory_total_bytes"] == 100 << 20
    assert 0 < job.figures["cgroup_memory_used_bytes"] <= 100 << 20


def test_files_in_memory_are_shared_memory_of_the_job(slurm: RealSlurm, busy: str) -> None:
    enough = _SHARED_MB << 20
    wait_until(lambda: seen(slurm)[busy].figures["cgroup_memory_shmem_bytes"] >= enough, "it is counted", limit_s=60)
    assert seen(slurm)[busy].figures["cgroup_memory_rss_bytes"] < enough


def test_the_check_names_the_layout_and_has_nothing_to_set(slurm: RealSlurm, busy: str) -> None:
    sampler = Sampler(Node())
    said = as_json(check(sampler, sampler.sample()))
    assert f"built for several slurmd, 1 here: {slurm.nodes[0]}; 1 named by job id" in str(said["Slurm's cgroups"]["words"])
    assert not [what for what in said if what.startswith("set in")]

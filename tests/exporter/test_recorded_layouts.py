"""The cgroups that a real Slurm 22.05 made, as they were recorded: tests/recordings/README.md says how."""

import pytest

from stormpetrel.exporter.check import as_json, check
from stormpetrel.exporter.sampler import Node, Sampler
from tests.parts.slurm_cgroups import RECORDINGS, cpus_by_scontrol, unpack

CASES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
BOUND = [case for case in CASES if case != "v1-proctrack-alone"]
SLUIDS = {"job_1": "sEKNKTV3WPV500", "job_2": "s5K1KKYAYG5D00"}  # names as Slurm's documentation has them


def looked_at(root):
    sampler = Sampler(Node(root=str(root)))
    return sampler, sampler.sample()


def told(root):
    return {what: line["words"] for what, line in as_json(check(*looked_at(root))).items()}


def jobs_of(root):
    return {job.group.job_id: job for job in looked_at(root)[1].jobs.jobs}


def test_four_layouts_are_recorded():
    assert CASES == ["v1", "v1-proctrack-alone", "v1-two-slurmd", "v2"]


@pytest.mark.parametrize("case", CASES)
def test_the_jobs_are_those_that_scontrol_named(tmp_path, case):
    said = unpack(case, tmp_path)
    assert jobs_of(tmp_path).keys() == cpus_by_scontrol(said["scontrol"]).keys() == {"1", "2"}


@pytest.mark.parametrize("case", BOUND)
def test_their_cpus_are_those_that_scontrol_named(tmp_path, case):
    said = unpack(case, tmp_path)
    assert {job_id: job.cpus.cpus for job_id, job in jobs_of(tmp_path).items()} == cpus_by_scontrol(said["scontrol"])


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("v1", "cgroup v1 at /slurm_n001; built for several slurmd, 1 here: n001; 2 named by job id"),
        ("v1-proctrack-alone", "cgroup v1 at /slurm_n001; built for several slurmd, 1 here: n001; 2 named by job id"),
        (
            "v1-two-slurmd",
            "cgroup v1 at /slurm_n001, /slurm_n002; built for several slurmd, 2 here: n001, n002; 2 named by job id",
        ),
        (
            "v2",
            "cgroup v2 at /system.slice/n001_slurmstepd.scope; built for several slurmd, 1 here: n001; 2 named by job id",
        ),
    ],
)
def test_the_layout_is_told(tmp_path, case, words):
    unpack(case, tmp_path)
    assert told(tmp_path)["Slurm's cgroups"] == words


@pytest.mark.parametrize("case", ["v1", "v1-two-slurmd"])
def test_a_slurm_that_counts_and_constrains_has_nothing_to_set(tmp_path, case):
    unpack(case, tmp_path)
    assert not [what for what in told(tmp_path) if what.startswith("set in")]


def test_proctrack_alone_is_told_what_to_set(tmp_path):
    unpack("v1-proctrack-alone", tmp_path)
    said = told(tmp_path)
    assert "JobAcctGatherType=jobacct_gather/cgroup (CPU time and memory of jobs)" in said["set in slurm.conf"]
    assert "ConstrainCores=yes" in said["set in cgroup.conf"]


@pytest.mark.parametrize(("case", "how"), [("v1", "cpuset"), ("v2", "affinity")])
def test_how_the_cpus_are_known(tmp_path, case, how):
    unpack(case, tmp_path)
    assert {job.cpus.how for job in jobs_of(tmp_path).values()} == {how}


def test_two_slurmd_that_share_a_cpu_are_not_told_apart(tmp_path):
    unpack("v1-two-slurmd", tmp_path)
    bindings = looked_at(tmp_path)[1].jobs.bindings
    assert not bindings.distinguishable and bindings.why == "two jobs share a CPU"


def test_v2_counts_cpu_time_without_accounting(tmp_path):
    unpack("v2", tmp_path)
    assert all("cgroup_cpu_total_seconds" in job.figures for job in jobs_of(tmp_path).values())


def test_v1_shows_shared_memory_apart_from_the_rest_of_the_cache(tmp_path):
    unpack("v1", tmp_path)
    for job in jobs_of(tmp_path).values():
        assert 0 <= job.figures["cgroup_memory_shmem_bytes"] <= job.figures["cgroup_memory_cache_bytes"]


def test_the_recorded_titles_lead_from_sluids_to_the_same_jobs(tmp_path):
    said = unpack("v2", tmp_path)
    scope = tmp_path / "sys/fs/cgroup/unified/system.slice/n001_slurmstepd.scope"
    for name, sluid in SLUIDS.items():
        (scope / name).rename(scope / sluid)
    assert {job_id: job.cpus.cpus for job_id, job in jobs_of(tmp_path).items()} == cpus_by_scontrol(said["scontrol"])
    assert told(tmp_path)["Slurm's cgroups"].endswith("2 named by SLUID, their job ids from the title of slurmstepd")

"""What `--check` says about Slurm. These layouts are from its documentation; recorded ones are in test_recorded_layouts.py."""

import shutil

import pytest

from stormpetrel.exporter.check import as_json, check
from tests.exporter.made import SLURM, FakeNode

SLUID = "sEKNKTV3WPV500"
V1 = "slurm/uid_1000/job_5"


def told(node):
    sampler = node.sampler()
    return {what: line["words"] for what, line in as_json(check(sampler, sampler.sample())).items()}


def freezer(node, path):
    """A job in v1's freezer alone, slurmstepd beside its process: as proctrack/cgroup makes it."""
    stepd, own = node.process(900, uid=0, title="slurmstepd: [5.batch]"), node.process(901, cpus="1")
    node.put(node.top / "freezer", {"tasks": ""})
    node.put(node.top / "freezer" / path, {"tasks": f"{stepd}\n"})
    node.put(node.top / "freezer" / path / "step_batch", {"tasks": f"{own}\n"})


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        ("v2", f"{SLURM}/job_1", f"cgroup v2 at /{SLURM}; one slurmd; 1 named by job id"),
        (
            "v2",
            "system.slice/n7_slurmstepd.scope/job_1",
            "cgroup v2 at /system.slice/n7_slurmstepd.scope; built for several slurmd, 1 here: n7; 1 named by job id",
        ),
        ("v1", V1, "cgroup v1 at /slurm; one slurmd; 1 named by job id"),
        ("hybrid", "slurm_n7/uid_1/job_1", "cgroup v1 at /slurm_n7; built for several slurmd, 1 here: n7; 1 named by job id"),
    ],
)
def test_the_layout_is_told(tmp_path, kind, path, words):
    node = FakeNode(tmp_path, kind=kind)
    node.job(path, cpus="0") if kind == "v2" else node.job_v1(path, cpus="0")
    assert told(node)["Slurm's cgroups"] == words


def test_several_slurmd_are_named(tmp_path):
    node = FakeNode(tmp_path)
    for name in ("a", "b"):
        (node.v2 / f"system.slice/{name}_slurmstepd.scope").mkdir(parents=True)
    assert "built for several slurmd, 2 here: a, b" in told(node)["Slurm's cgroups"]


def test_the_way_to_the_job_ids_is_told(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/{SLUID}", cpus="0", leaf="step_0/user/task_0", threads=[node.process(5)])
    node.stepd(f"{SLURM}/{SLUID}", "slurmstepd: [7.0]", step="0")
    said = told(node)
    assert said["Slurm's cgroups"].endswith("1 named by SLUID, their job ids from the title of slurmstepd")
    assert "set in cgroup.conf" not in said


def test_sluids_without_a_job_id_ask_for_the_old_names(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/{SLUID}", cpus="0", threads=[node.process(5)])
    said = told(node)
    assert said["Slurm's cgroups"].endswith("1 named by SLUID, their job ids unknown")
    assert said["set in cgroup.conf"] == "CgroupJobIdPaths=yes (job ids; Slurm 26.05.2 or newer)"


def test_nothing_is_to_be_set_where_everything_is_there(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1(V1, cpus="0")
    assert not {"set in slurm.conf", "set in cgroup.conf"} & told(node).keys()


@pytest.mark.parametrize("running", [True, False])
def test_v1_without_accounting_asks_for_it(tmp_path, running):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1(V1, cpus="0")
    shutil.rmtree(node.top / "cpu,cpuacct/slurm")
    if not running:
        for tree in ("memory", "cpuset"):
            shutil.rmtree(node.top / tree / V1)
    assert told(node)["set in slurm.conf"] == "JobAcctGatherType=jobacct_gather/cgroup (CPU time of jobs)"


def test_a_job_of_proctrack_alone_is_seen_and_everything_else_is_to_be_set(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    freezer(node, V1)
    node.process(901, cpus="0-3")
    said = told(node)
    assert said["jobs"] == "1: 5 (Slurm)"
    assert said["set in slurm.conf"] == (
        "JobAcctGatherType=jobacct_gather/cgroup (CPU time and memory of jobs); "
        "TaskPlugin=task/cgroup,task/affinity (which job has which CPU)"
    )
    assert said["set in cgroup.conf"] == "ConstrainCores=yes (which job has which CPU)"


def test_slurmstepd_does_not_make_a_bound_job_unbound(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    freezer(node, V1)
    assert node.sampler().sample().jobs.bindings.jobs == {1: "5"}


def test_a_users_own_slurmstepd_may_run_anywhere_and_that_counts(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    freezer(node, V1)
    node.process(900, uid=1000, title="slurmstepd: [5.batch]")
    assert not node.sampler().sample().jobs.bindings.distinguishable


def test_slurmd_without_cgroups_asks_for_all_of_them(tmp_path):
    node = FakeNode(tmp_path)
    node.write("proc/77/comm", "slurmd\n")
    said = told(node)
    assert said["Slurm's cgroups"] == "slurmd runs, and has no cgroups for its jobs"
    assert said["set in slurm.conf"].startswith("ProctrackType=proctrack/cgroup; JobAcctGatherType=jobacct_gather/cgroup")


def test_a_node_without_slurm_says_nothing_about_it(tmp_path):
    assert not [what for what in told(FakeNode(tmp_path)) if "lurm" in what]

"""Cgroups named by SLUID. No Slurm 26.05 runs here: the names are those of its cgroup.conf(5) and of its page on cgroup v2."""

import pytest

from stormpetrel.exporter import processes
from stormpetrel.exporter.job_groups import is_sluid
from tests.exporter.made import SLURM, FakeNode, figures_of, text_of

SLUID = "sEKNKTV3WPV500"
JOB = f"{SLURM}/{SLUID}"
TITLE = "slurmstepd: [3385.batch] \0\0\0"  # padded as the real one of 22.05 is


@pytest.fixture
def node(tmp_path):
    node = FakeNode(tmp_path)
    node.job(JOB, cpus="1-2", leaf="step_batch/user/task_0", threads=[node.process(901, title="python\0fit.py\0")])
    return node


def job_ids(node):
    return [job.group.job_id for job in node.sampler().sample().jobs.jobs]


@pytest.mark.parametrize("scope", [SLURM, "system.slice/n7_slurmstepd.scope", "batch.slice/batch-s.slice/slurmstepd.scope"])
def test_a_cgroup_named_by_sluid_has_the_job_id_that_its_slurmstepd_says(tmp_path, scope):
    node = FakeNode(tmp_path)
    node.job(f"{scope}/{SLUID}", cpus="1-2", leaf="step_batch/user/task_0", threads=[node.process(901)])
    node.stepd(f"{scope}/{SLUID}", TITLE)
    found = figures_of(text_of(node.sampler(usernames=False)))
    assert found["cgroup_info", f"/{scope}/{SLUID}", "3385", "1000", ""] == 1
    assert {key[1:] for key in found if key[0] == "stormpetrel_thread_job_info"} == {("1", "3385"), ("2", "3385")}


@pytest.mark.parametrize("step", ["batch", "extern", "interactive", "0", "17"])
def test_any_step_says_the_job(node, step):
    node.stepd(JOB, f"slurmstepd: [3385.{step}]", step=step)
    assert job_ids(node) == ["3385"]


def test_the_steps_of_a_job_agree(node):
    node.stepd(JOB, "slurmstepd: [3385.extern]", 800, step="extern")
    node.stepd(JOB, "slurmstepd: [3385.0]", 801, step="0")
    assert job_ids(node) == ["3385"]


def test_old_and_new_names_live_side_by_side(node):
    node.stepd(JOB, TITLE)
    node.job(f"{SLURM}/job_9", cpus="0")
    assert sorted(job_ids(node)) == ["3385", "9"]


def test_a_user_who_calls_his_process_slurmstepd_is_not_believed(node):
    node.process(901, title="slurmstepd: [666.batch]")
    node.write("proc/901/environ", "SLURM_JOB_ID=666\0")
    node.stepd(JOB, TITLE)
    assert job_ids(node) == ["3385"]


@pytest.mark.parametrize(
    "uids", ["1000\t1000\t1000\t1000", "1000\t0\t0\t0", "0\t0\t1000\t0", "nobody"], ids=["his", "setuid", "saved", "nonsense"]
)
def test_a_title_of_somebody_elses_process_is_not_believed(node, uids):
    node.stepd(JOB, TITLE)
    node.write("proc/900/status", f"Name:\tslurmstepd\nUid:\t{uids}\nCpus_allowed_list:\t0-3\n")
    assert job_ids(node) == [SLUID]


@pytest.mark.parametrize(
    "title",
    [
        "slurmstepd: [3385.batch] [17.batch]",
        "slurmstepd: [0.batch]",
        "slurmstepd: [38500000000000.batch]",
        "slurmstepd: [s.batch]",
        "slurmstepd: [3385.]",
        "slurmstepd infinity",
        "x slurmstepd: [3385.batch]",
        'slurmstepd: [3385.batch"}\n]',
        "",
        "slurmstepd: [3385.batch]" + " " * 9000,
    ],
)
def test_a_title_that_is_no_step_says_nothing(node, title):
    node.stepd(JOB, title)
    assert job_ids(node) == [SLUID]


def test_two_titles_that_disagree_say_nothing(node):
    node.stepd(JOB, "slurmstepd: [3385.extern]", 800, step="extern")
    node.stepd(JOB, "slurmstepd: [17.0]", 801, step="0")
    assert job_ids(node) == [SLUID]


def test_a_job_whose_id_stays_unknown_is_shown_by_its_sluid_and_that_is_said(node):
    (missing,) = [why for what, why in node.sampler().sample().jobs.missing if what == "job ids"]
    assert job_ids(node) == [SLUID] and "CgroupJobIdPaths=yes" in missing


def test_processes_of_another_pid_namespace_say_nothing(node):
    node.put(node.v2 / JOB / "step_batch/slurm", {"cgroup.procs": "0\n"})
    assert job_ids(node) == [SLUID]


def test_a_cgroup_with_nothing_in_it_yet_is_no_job(tmp_path):
    node = FakeNode(tmp_path)
    node.job(JOB, cpus="1")
    sampler = node.sampler()
    assert sampler.sample().jobs.jobs == []
    node.stepd(JOB, TITLE)
    assert [job.group.job_id for job in sampler.sample().jobs.jobs] == ["3385"]


def test_an_id_is_asked_for_once(node):
    node.stepd(JOB, TITLE)
    sampler = node.sampler()
    sampler.sample()
    node.process(900, uid=0, title="slurmstepd: [17.batch]")
    assert [job.group.job_id for job in sampler.sample().jobs.jobs] == ["3385"]


def test_hidden_titles_are_asked_for_again_after_a_while(node, monkeypatch):
    sampler = node.sampler()
    sampler.sample()
    node.stepd(JOB, TITLE)
    assert [job.group.job_id for job in sampler.sample().jobs.jobs] == [SLUID]
    now = processes.time.monotonic
    monkeypatch.setattr(processes.time, "monotonic", lambda: now() + 61)
    assert [job.group.job_id for job in sampler.sample().jobs.jobs] == ["3385"]


def test_a_scope_elsewhere_can_be_named(tmp_path):
    node = FakeNode(tmp_path)
    scope = "kubepods.slice/pod7/system.slice/slurmstepd.scope"
    node.job(f"{scope}/{SLUID}", cpus="1", leaf="step_batch/user/task_0", threads=[node.process(901)])
    node.stepd(f"{scope}/{SLUID}", TITLE)
    sampler = node.sampler(cgroups=[f"{scope}/s*"])
    assert [job.group.job_id for job in sampler.sample().jobs.jobs] == ["3385"]


@pytest.mark.parametrize(
    "name", ["system", "slurmd", "sEKNKTV3WPV50", "sEKNKTV3WPV5000", "sEKNKTV3WPV5OO", "SEKNKTV3WPV500", "seknktv3wpv500"]
)
def test_other_names_are_no_sluids(name):
    assert not is_sluid(name)

import os

import pytest

from stormpetrel.exporter.bindings import SHARED, UNBOUND, UNSEEN, JobCpus, ThreadsFile, bind
from tests.exporter.made import SLURM, FakeNode
from tests.parts import is_root


def cpuset(*cpus):
    return JobCpus(frozenset(cpus), "cpuset")


def test_jobs_with_cpus_of_their_own_are_told_apart():
    bound = bind([("1", cpuset(0, 1)), ("2", cpuset(3))])
    assert bound.jobs == {0: "1", 1: "1", 3: "2"} and bound.distinguishable and not bound.why


def test_a_cpu_that_two_jobs_share_is_nobodys_and_the_rest_is_kept():
    bound = bind([("1", cpuset(0, 1)), ("2", cpuset(1, 2)), ("3", cpuset(1))])
    assert bound.jobs == {0: "1", 2: "2"} and not bound.distinguishable and bound.why == SHARED


def test_two_groups_of_one_job_do_not_share():
    assert bind([("1", cpuset(0, 1)), ("1", cpuset(1))]).distinguishable


@pytest.mark.parametrize(
    ("cpus", "why"), [(JobCpus(frozenset({0}), ""), UNBOUND), (JobCpus(frozenset(), "", known=False), UNSEEN)]
)
def test_one_job_that_may_be_anywhere_makes_every_thread_uncertain(cpus, why):
    bound = bind([("1", cpuset(0, 1)), ("2", cpus)])
    assert bound.jobs == {} and not bound.distinguishable and bound.why == why


# --- from cgroups -------------------------------------------------------------------------------------------------------------


def bindings(node, **options):
    return node.sampler(**options).sample().jobs.bindings


def test_cpu_sets_tell_threads_apart(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0-1")
    node.job(f"{SLURM}/job_2", cpus="3")
    assert bindings(node).jobs == {0: "1", 1: "1", 3: "2"}


def test_a_job_that_was_given_the_whole_node_has_the_whole_node(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0-3", own=True)
    assert bindings(node).jobs == dict.fromkeys(range(4), "1")


def test_an_inherited_cpu_set_of_the_whole_node_binds_nothing(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0-3", own=False, threads=[node.process(5, cpus="0-3")])
    bound = bindings(node)
    assert not bound.distinguishable and bound.why == UNBOUND and bound.jobs == {}


def test_affinity_tells_threads_apart_where_there_are_no_cpu_sets(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_1", threads=[node.process(5, cpus="0")])
    node.job("stormpetrel/job_2", threads=[node.process(6, cpus="2"), node.process(7, cpus="3")])
    bound = bindings(node)
    assert bound.distinguishable and bound.jobs == {0: "1", 2: "2", 3: "2"}


def test_the_cpu_sets_of_v1_tell_threads_apart(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1("slurm/uid_1/job_1", cpus="0,2")
    node.job_v1("slurm/uid_1/job_2", cpus="1")
    assert bindings(node).jobs == {0: "1", 2: "1", 1: "2"}


def test_hybrid_takes_the_cpu_set_from_v1(tmp_path):
    node = FakeNode(tmp_path, kind="hybrid")
    node.job("stormpetrel/job_1")
    node.job_v1("stormpetrel/job_1", cpus="2")
    assert bindings(node).jobs == {2: "1"}


def test_a_job_whose_processes_are_hidden_makes_threads_uncertain(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_1", threads=[5])
    assert bindings(node).why == UNSEEN


def test_an_empty_group_disturbs_nobody(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_1")
    node.job("stormpetrel/job_2", threads=[node.process(5, cpus="1")])
    bound = bindings(node)
    assert bound.distinguishable and bound.jobs == {1: "2"}


def test_a_node_without_jobs_is_idle_only_if_jobs_would_have_been_seen(tmp_path):
    node = FakeNode(tmp_path)
    assert not bindings(node).distinguishable
    assert bindings(node, cgroups=("batch/*",)).distinguishable
    (node.v2 / SLURM).mkdir(parents=True)
    assert bindings(node).distinguishable


def test_a_cpu_set_that_makes_no_sense_is_counted_and_affinity_asked(tmp_path):
    node = FakeNode(tmp_path)
    node.job("stormpetrel/job_1", cpus="zero", threads=[node.process(5, cpus="1")])
    sampler = node.sampler()
    assert sampler.sample().jobs.bindings.jobs == {1: "1"}
    assert sampler.files.problems["malformed"] >= 1


# --- from a file --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads(tmp_path):
    path = tmp_path / "threads"
    path.write_text("# who is where\n0 a\n1 a\n\n3 b\n")
    path.chmod(0o600)
    return path


def test_a_file_of_our_own_is_believed_in_place_of_cgroups(tmp_path, threads):
    node = FakeNode(tmp_path / "node")
    node.job(f"{SLURM}/job_1", cpus="0-3", own=False, threads=[node.process(5)])
    assert bindings(node, threads_file=str(threads)).jobs == {0: "a", 1: "a", 3: "b"}
    threads.write_text("")
    empty = bindings(node, threads_file=str(threads))
    assert empty.distinguishable and empty.jobs == {}


@pytest.mark.parametrize("text", ["0\n", "0 a b\n", "x a\n", "-1 a\n", "99999999 a\n", "²  a\n", "0 a\n" * 300_000])
def test_a_file_that_makes_no_sense_is_not_believed(threads, text):
    threads.write_text(text)
    bound = ThreadsFile(str(threads)).read()
    assert not bound.distinguishable and bound.jobs == {} and "not believed" in bound.why


def test_a_cpu_with_two_jobs_is_told(threads):
    threads.write_text("0 a\n0 b\n")
    assert ThreadsFile(str(threads)).read().why == SHARED


def test_a_file_that_others_may_write_is_not_believed(threads):
    threads.chmod(0o620)
    assert not ThreadsFile(str(threads)).read().distinguishable


def test_a_link_a_folder_or_nothing_is_not_believed(tmp_path, threads):
    (tmp_path / "link").symlink_to(threads)
    for path in (tmp_path / "link", tmp_path, tmp_path / "nothing"):
        assert not ThreadsFile(str(path)).read().distinguishable


def test_a_file_of_another_user_is_not_believed(threads, monkeypatch):
    if is_root():
        os.chown(threads, 1234, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert "not ours" in ThreadsFile(str(threads)).read().why

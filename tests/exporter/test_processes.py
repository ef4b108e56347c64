import os
import pwd

import pytest

from stormpetrel.exporter import processes as module
from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import Finder, JobGroup, find_hierarchies
from stormpetrel.exporter.processes import Processes
from tests.exporter.made import SLURM, FakeNode

ONLINE = frozenset(range(4))


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


def looked_at(node, **options):
    files = Files(str(node.root))
    (group,) = Finder(files, find_hierarchies(files)).find()
    return Processes(files, **options), group


def test_the_owner_is_the_user_of_the_processes_and_not_the_scheduler(node):
    node.process(10, uid=0)
    node.process(11, uid=1234)
    node.job(f"{SLURM}/job_1", leaf="step_0/user/task_0", threads=[10, 11])
    node.put(node.v2 / SLURM / "job_1/step_0/slurm", {"cgroup.threads": f"{node.process(9, uid=0)}\n"})
    processes, group = looked_at(node)
    assert processes.threads(group) == [10, 11]
    assert processes.owner(group) == 1234


def test_the_owner_in_the_path_needs_no_process(node):
    node.job("slurm/uid_77/job_1")
    processes, group = looked_at(node)
    assert processes.owner(group) == 77


def test_an_owner_is_looked_for_until_there_is_a_process_and_then_remembered(node):
    folder = node.job("stormpetrel/job_1")
    processes, group = looked_at(node)
    assert processes.owner(group) is None
    (folder / "cgroup.threads").write_text(f"{node.process(5, uid=42)}\n")
    assert processes.owner(group) == 42
    node.process(5, uid=43)
    assert processes.owner(group) == 42
    processes.forget_all_but([])
    assert processes.owner(group) == 43


def test_hidden_processes_are_not_asked_for_at_every_sample(node):
    node.job("stormpetrel/job_1", threads=[5])
    processes, group = looked_at(node)
    assert processes.owner(group) is None
    node.process(5, uid=42)
    assert processes.owner(group) is None


def test_the_cpus_of_a_job_are_those_of_all_its_threads(node):
    node.job("stormpetrel/job_1", threads=[node.process(5, cpus="0"), node.process(6, cpus="2-3")])
    processes, group = looked_at(node)
    assert processes.cpus(group, ONLINE) == {0, 2, 3}


def test_cpus_that_are_offline_do_not_count(node):
    node.job("stormpetrel/job_1", threads=[node.process(5, cpus="3-200")])
    processes, group = looked_at(node)
    assert processes.cpus(group, ONLINE) == {3}


def test_a_job_without_threads_has_no_cpus_and_one_with_hidden_threads_unknown_ones(node):
    folder = node.job("stormpetrel/job_1")
    processes, group = looked_at(node)
    assert processes.cpus(group, ONLINE) == frozenset()
    (folder / "cgroup.threads").write_text("77\n")
    assert processes.cpus(group, ONLINE) is None


def test_a_thread_that_ended_meanwhile_does_not_matter(node):
    node.job("stormpetrel/job_1", threads=[4, node.process(5, cpus="1")])
    processes, group = looked_at(node)
    assert processes.cpus(group, ONLINE) == {1}


def test_threads_of_another_pid_namespace_are_left_out(node):
    node.job("stormpetrel/job_1", threads=[0, node.process(5)])
    processes, group = looked_at(node)
    assert processes.threads(group) == [5]


def test_a_tree_without_end_is_not_walked_to_its_end(node, monkeypatch):
    monkeypatch.setattr(module, "_MAX_THREADS", 3)
    node.job("stormpetrel/job_1", threads=range(1, 9))
    node.put(node.v2 / "stormpetrel/job_1" / "/".join("d" * 20), {"cgroup.threads": "99\n"})
    processes, group = looked_at(node)
    assert processes.threads(group) == [1, 2, 3]


def test_names_of_users_are_known_unless_they_are_not_wanted(node):
    node.job("stormpetrel/job_1")
    processes, _ = looked_at(node)
    assert processes.username(os.getuid()) == pwd.getpwuid(os.getuid()).pw_name
    assert processes.username(4_000_000_001) == processes.username(None) == processes.username(1 << 70) == ""
    assert looked_at(node, usernames=False)[0].username(os.getuid()) == ""


def test_the_affinity_of_real_threads_is_asked_from_the_kernel(tmp_path):
    (tmp_path / "cgroup.threads").write_text(f"{os.getpid()}\n")
    group = JobGroup("/x", "x", None, "plain", {"v2": str(tmp_path)}, 1)
    processes = Processes(Files())
    online = frozenset(range(1024))
    assert processes.cpus(group, online) == os.sched_getaffinity(0)
    assert processes.owner(group) == os.getuid()

"""Where jobs run."""

import pytest

from stormpetrel.rehearse.placing import JobPlaces
from stormpetrel.rehearse.plan import JobKind, PlannedJob

JOB = PlannedJob("train-1.3", JobKind.GOOD_IO, (0, 1), 0)
OTHER = PlannedJob("train-1.4", JobKind.NP, (5,), 0)


@pytest.fixture
def v2(tmp_path):
    """A tree that looks like cgroup v2, as far as plain folders can."""
    top = tmp_path / "cgroup"
    for folder in (top, top / "stormpetrel"):
        folder.mkdir()
        for name in ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control"):
            (folder / name).write_text("cpuset cpu" if name == "cgroup.controllers" else "")
    return top


def test_without_cgroups_the_threads_file_says_whose_thread_is_whose(tmp_path):
    places = JobPlaces(tmp_path / "threads", top=tmp_path / "nothing")
    assert not places.in_cgroups
    assert places.open(JOB) == [] and places.open(OTHER) == []
    assert (tmp_path / "threads").read_text() == "0 train-1.3\n1 train-1.3\n5 train-1.4\n"
    places.close(JOB)
    assert (tmp_path / "threads").read_text() == "5 train-1.4\n"
    places.close_all()
    assert (tmp_path / "threads").read_text() == ""


def test_the_threads_file_is_ours_alone_to_write(tmp_path):
    JobPlaces(tmp_path / "threads", top=tmp_path / "nothing")
    assert (tmp_path / "threads").stat().st_mode & 0o077 == 0


def test_in_cgroup_v2_each_job_has_a_group_of_its_own(tmp_path, v2):
    places = JobPlaces(tmp_path / "threads", top=v2)
    assert places.in_cgroups
    [folder] = places.open(JOB)
    assert folder == v2 / "stormpetrel" / "job_train-1.3" and folder.is_dir()
    assert (v2 / "stormpetrel" / "cgroup.subtree_control").read_text() == "+cpuset"
    places.close(JOB)
    assert not folder.exists()


def test_the_cpu_sets_of_a_hybrid_host_are_used_as_well(tmp_path):
    for folder in (tmp_path / "cpuset", tmp_path / "cpuset" / "stormpetrel"):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
        (folder / "cpuset.mems").write_text("0\n" if folder.name == "cpuset" else "")
        (folder / "cpuset.cpus").write_text("0-7\n" if folder.name == "cpuset" else "")
    [folder] = JobPlaces(tmp_path / "threads", top=tmp_path).open(JOB)
    assert folder == tmp_path / "cpuset" / "stormpetrel" / "job_train-1.3"
    assert (tmp_path / "cpuset" / "stormpetrel" / "cpuset.mems").read_text() == "0"
    assert (tmp_path / "cpuset" / "stormpetrel" / "cpuset.cpus").read_text() == "0-7"


def test_what_a_campaign_that_was_killed_left_is_removed(tmp_path, v2, monkeypatch):
    monkeypatch.setattr("stormpetrel.rehearse.placing._LEFT_OVER_S", -1.0)
    (v2 / "stormpetrel" / "job_old.1").mkdir()
    JobPlaces(tmp_path / "threads", top=v2)
    assert not (v2 / "stormpetrel" / "job_old.1").exists()

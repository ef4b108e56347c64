import pytest

from stormpetrel.exporter import job_groups
from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import Finder, find_hierarchies, job_id_of, plain_pattern
from tests.exporter.made import CONDOR, SLURM, FakeNode


def finder(node, *globs):
    files = Files(str(node.root))
    return Finder(files, find_hierarchies(files), [plain_pattern(glob) for glob in globs])


@pytest.mark.parametrize(
    ("path", "job_id", "scheduler"),
    [
        (f"{SLURM}/job_123", "123", "Slurm"),
        ("system.slice/node7_slurmstepd.scope/job_123", "123", "Slurm"),
        ("batch.slice/batch-slurm.slice/slurmstepd.scope/job_9", "9", "Slurm"),
        ("slurm/uid_1000/job_123", "123", "Slurm"),
        ("slurm_node7/uid_1000/job_123", "123", "Slurm"),
        (CONDOR, "slot1_1@node7.example.org", "HTCondor"),
        ("system.slice/htcondor/condor_var_lib_condor_execute_slot1", "slot1", "HTCondor"),
        ("stormpetrel/job_a.b-1", "a.b-1", "plain"),
    ],
)
def test_the_cgroup_of_a_job_is_known(tmp_path, path, job_id, scheduler):
    node = FakeNode(tmp_path)
    node.job(path)
    (group,) = finder(node).find()
    assert (group.name, group.job_id, group.scheduler) == (f"/{path}", job_id, scheduler)
    assert group.uid == (1000 if "uid_" in path else None)


@pytest.mark.parametrize(
    "path", [f"{SLURM}/system", "user.slice/user-1000.slice", "job_1", "stormpetrel/other", f"{SLURM}/step_1/job_2"]
)
def test_other_cgroups_are_no_jobs(tmp_path, path):
    node = FakeNode(tmp_path)
    node.job(path)
    assert finder(node).find() == []


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("batch.slice/*.scope", ["/batch.slice/a.scope", "/batch.slice/b.scope"]),
        ("/sys/fs/cgroup/batch.slice/a.scope", ["/batch.slice/a.scope"]),
        ("*/*/deep", ["/batch.slice/b.scope/deep"]),
        ("nowhere/*", []),
    ],
)
def test_cgroups_can_be_named_by_a_pattern(tmp_path, glob, found):
    node = FakeNode(tmp_path)
    node.job("batch.slice/a.scope")
    node.job("batch.slice/b.scope/deep")
    assert [group.name for group in finder(node, glob).find()] == found


@pytest.mark.parametrize("glob", ["", "/", "../*", "a/../b", "/sys/fs/cgroup/"])
def test_a_pattern_that_names_no_cgroup_is_refused(glob):
    with pytest.raises(ValueError, match="names no cgroup"):
        plain_pattern(glob)


def test_jobs_come_and_go(tmp_path):
    node = FakeNode(tmp_path)
    (node.v2 / SLURM).mkdir(parents=True)
    found = finder(node)
    assert found.find() == []
    node.job(f"{SLURM}/job_1")
    node.job("stormpetrel/job_2")  # its folder is new as well
    assert [group.job_id for group in found.find()] == ["2", "1"]
    (node.v2 / "stormpetrel/job_2").rename(node.v2 / "stormpetrel/gone")
    assert [group.job_id for group in found.find()] == ["1"]


def test_a_scheduler_that_starts_later_is_found_after_a_while(tmp_path, monkeypatch):
    node = FakeNode(tmp_path)
    found = finder(node)
    assert found.find() == [] and not found.sure
    node.job(f"{SLURM}/job_1")
    monkeypatch.setattr(job_groups, "_RESCAN_S", -1.0)
    assert [group.job_id for group in found.find()] == ["1"] and found.sure


def test_the_trees_of_v1_are_one_job(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1("slurm/uid_7/job_5", cpus="1")
    (group,) = finder(node).find()
    assert set(group.folders) == {"cpuset", "cpuacct", "memory"} and group.uid == 7


def test_links_are_not_followed_into_other_folders(tmp_path):
    node = FakeNode(tmp_path)
    node.job("elsewhere/job_1")
    (node.v2 / "stormpetrel").mkdir()
    (node.v2 / "stormpetrel/job_1").symlink_to(node.v2 / "elsewhere/job_1")
    assert finder(node).find() == []


def test_a_group_made_again_under_its_name_is_another_one(tmp_path):
    node = FakeNode(tmp_path)
    folder = node.job("stormpetrel/job_1")
    found = finder(node)
    (first,) = found.find()
    folder.rename(node.v2 / "kept")
    node.job("stormpetrel/job_1")
    (second,) = found.find()
    assert first.name == second.name and first.inode != second.inode


def test_more_jobs_than_are_looked_at_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(job_groups, "MAX_JOBS", 2)
    node = FakeNode(tmp_path)
    for number in range(5):
        node.job(f"{SLURM}/job_{number}")
    found = finder(node)
    assert len(found.find()) == 2 and found.left_out == 3


@pytest.mark.parametrize(
    ("name", "job_id"), [("/a/job_", "job_"), ("/torque/17.batch", "17.batch"), ("/x/slot1_1@h", "slot1_1@h")]
)
def test_a_name_without_a_job_is_its_own_id(name, job_id):
    assert job_id_of(name) == job_id

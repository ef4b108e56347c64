import pytest

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import find_hierarchies
from tests.exporter.made import FakeNode


@pytest.mark.parametrize(
    ("kind", "trees"),
    [("v2", {"v2"}), ("hybrid", {"v2", "cpuset", "cpuacct", "memory"}), ("v1", {"cpuset", "cpuacct", "memory"}), ("none", set())],
)
def test_each_kind_of_node_is_known(tmp_path, kind, trees):
    found = find_hierarchies(Files(str(FakeNode(tmp_path, kind=kind).root)))
    assert found.kind == kind and set(found.trees) == trees


def test_controllers_that_are_mounted_together_are_found(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    (node.top / "cpuacct").unlink()
    assert find_hierarchies(Files(str(tmp_path))).trees["cpuacct"].endswith("cpu,cpuacct")


def test_this_machine_has_cgroups():
    assert find_hierarchies(Files()).kind in ("v2", "hybrid", "v1")

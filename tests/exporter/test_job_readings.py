import pytest

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import Finder, find_hierarchies
from stormpetrel.exporter.readings import JobReader
from tests.exporter.made import SLURM, FakeNode

ALL_OF_V2 = {
    "cgroup_cpu_total_seconds": 3.5,
    "cgroup_cpu_user_seconds": 3.0,
    "cgroup_cpu_system_seconds": 0.5,
    "cgroup_memory_used_bytes": 4096000,
    "cgroup_memory_total_bytes": 8192000,
    "cgroup_memory_rss_bytes": 1000,
    "cgroup_memory_cache_bytes": 2000,
    "cgroup_memory_shmem_bytes": 1500,
    "cgroup_pressure_cpu_waiting_seconds_total": 2.0,
    "cgroup_pressure_cpu_stalled_seconds_total": 0.0,
    "cgroup_pressure_memory_waiting_seconds_total": 3e-05,
    "cgroup_pressure_memory_stalled_seconds_total": 2e-05,
    "cgroup_pressure_io_waiting_seconds_total": 1.5,
    "cgroup_pressure_io_stalled_seconds_total": 0.5,
}


def figures(node):
    files = Files(str(node.root))
    (group,) = Finder(files, find_hierarchies(files)).find()
    return JobReader(files).read(group), files


def test_v2_gives_everything(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1")
    assert figures(node)[0] == ALL_OF_V2


def test_v1_gives_cpu_and_memory_and_no_limit_is_no_figure(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    node.job_v1("slurm/uid_1/job_1", cpus="0")
    assert figures(node)[0] == {
        "cgroup_cpu_total_seconds": 7.5,
        "cgroup_cpu_user_seconds": 6.0,
        "cgroup_cpu_system_seconds": 1.5,
        "cgroup_memory_used_bytes": 5000,
        "cgroup_memory_rss_bytes": 30,
        "cgroup_memory_cache_bytes": 40,
        "cgroup_memory_shmem_bytes": 20,
    }


def test_hybrid_takes_each_figure_from_the_tree_that_has_it(tmp_path):
    node = FakeNode(tmp_path, kind="hybrid")
    folder = node.job("stormpetrel/job_1")
    for name in ("memory.stat", "memory.max"):
        (folder / name).unlink()
    node.job_v1("stormpetrel/job_1")
    found, _ = figures(node)
    assert found["cgroup_cpu_total_seconds"] == 3.5  # v2 counts microseconds, v1 ticks
    assert found["cgroup_memory_used_bytes"] == 5000
    assert found["cgroup_pressure_io_stalled_seconds_total"] == 0.5


def test_a_job_without_a_limit_has_no_figure_for_it(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1")
    node.put(node.v2 / SLURM / "job_1", {"memory.max": "max\n"})
    found, files = figures(node)
    assert "cgroup_memory_total_bytes" not in found and not files.problems["malformed"]


@pytest.mark.parametrize("name", ["cpu.stat", "memory.stat", "memory.current", "io.pressure"])
@pytest.mark.parametrize("content", ["", "nonsense\n", "usage_usec x\nanon -1\nsome total=\n", "\0" * 100])
def test_damage_leaves_out_what_it_touches_and_nothing_else(tmp_path, name, content):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1")
    node.put(node.v2 / SLURM / "job_1", {name: content})
    found, _ = figures(node)
    assert found.items() < ALL_OF_V2.items()
    assert len(found) >= len(ALL_OF_V2) - 3


def test_a_folder_in_place_of_a_file_is_survived(tmp_path):
    node = FakeNode(tmp_path)
    folder = node.job(f"{SLURM}/job_1")
    (folder / "cpu.stat").unlink()
    (folder / "cpu.stat").mkdir()
    found, files = figures(node)
    assert "cgroup_cpu_total_seconds" not in found and files.problems["other"] == 1

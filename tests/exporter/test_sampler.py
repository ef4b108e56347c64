import shutil
import threading

import pytest

from tests.exporter.made import SLURM, FakeNode, text_of


def missing(node, **options):
    return dict(node.sampler(**options).sample().jobs.missing)


def test_a_node_that_has_everything_misses_nothing(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0")
    assert missing(node) == {}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("none", {"jobs", "threads told apart"}), ("v1", {"pressure"}), ("hybrid", {"cgroup v2 controllers"})],
)
def test_lesser_nodes_say_what_they_miss(tmp_path, kind, expected):
    node = FakeNode(tmp_path, kind=kind)
    assert set(missing(node, cgroups=("batch/*",))) == expected


def test_v1_without_a_controller_says_which(tmp_path):
    node = FakeNode(tmp_path, kind="v1")
    shutil.rmtree(node.top / "memory")
    assert missing(node)["memory"] == "cgroup v1 without the memory controller"


def test_a_kernel_without_pressure_is_told(tmp_path):
    node = FakeNode(tmp_path, psi=False)
    node.job(f"{SLURM}/job_1", cpus="0")
    for name in ("cpu", "memory", "io"):
        (node.v2 / SLURM / f"job_1/{name}.pressure").unlink()
    assert list(missing(node)) == ["pressure"]


def test_a_controller_that_is_off_for_the_jobs_is_told(tmp_path):
    node = FakeNode(tmp_path)
    folder = node.job(f"{SLURM}/job_1", cpus="0")
    (folder / "memory.current").unlink()
    assert "memory" in missing(node)


def test_a_tree_that_vanishes_under_the_reader_is_survived(tmp_path):
    """Job cgroups are made and removed as fast as possible while samples are taken."""
    node = FakeNode(tmp_path)
    (node.v2 / SLURM).mkdir(parents=True)
    sampler = node.sampler()
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            for number in range(8):
                node.job(f"{SLURM}/job_{number}", cpus="0", leaf="step_0/user", threads=[5])
            for number in range(8):
                shutil.rmtree(node.v2 / SLURM / f"job_{number}")

    other = threading.Thread(target=churn)
    other.start()
    try:
        seen = {len(sampler.sample().jobs.jobs) for _ in range(150)}
        text_of(sampler)
    finally:
        stop.set()
        other.join()
    assert seen <= set(range(9))

import pytest

from stormpetrel.exporter import clock as module
from stormpetrel.exporter.clock import SamplingClock
from stormpetrel.exporter.windows import Ring, read_window
from tests.exporter.made import SLURM, FakeNode
from tests.parts import wait_until


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


@pytest.fixture
def ring():
    return Ring(10, 60)


@pytest.fixture
def clock(node, ring):
    clock = SamplingClock(node.sampler(cgroups=("batch/*",)), ring)
    clock.start()
    yield clock
    clock.stop()


def rows(ring):
    window = ring.window(1e6)
    return read_window(window) if window else {"times_s": [], "jobs": []}


def test_samples_come_by_themselves(clock, ring):
    wait_until(lambda: len(rows(ring)["times_s"]) >= 3, "three rows were taken", limit_s=10)
    assert clock.problem() == ""


def test_jobs_that_come_are_seen_within_seconds(clock, ring, node):
    node.job(f"{SLURM}/job_1", cpus="0")
    node.job("batch/two", cpus="1")
    wait_until(lambda: rows(ring)["jobs"][-1:] == [{1: "two"}], "the job is in the rows", limit_s=10)


def test_a_node_that_cannot_be_read_is_told_and_comes_back(clock, ring, node, monkeypatch):
    text = (node.root / "proc/stat").read_text()
    wait_until(lambda: rows(ring)["times_s"], "the first row was taken", limit_s=10)
    node.write("proc/stat", "")
    before = len(rows(ring)["times_s"])
    monkeypatch.setattr(clock, "_beat", clock._beat - 60)
    assert "no sample for 6" in clock.problem()
    node.write("proc/stat", text)
    wait_until(lambda: len(rows(ring)["times_s"]) > before + 1 and clock.problem() == "", "samples come again", limit_s=10)


def test_a_clock_that_was_stopped_takes_no_more(node, ring):
    clock = SamplingClock(node.sampler(), ring)
    clock.start()
    wait_until(lambda: len(rows(ring)["times_s"]) >= 1, "a row was taken", limit_s=10)
    clock.stop()
    assert not clock._thread.is_alive()


def test_jobs_are_looked_up_less_often_than_counters(node, ring, monkeypatch):
    monkeypatch.setattr(module, "_JOBS_EVERY_S", 1e6)
    sampler = node.sampler(cgroups=("batch/*",))
    clock = SamplingClock(sampler, ring)
    node.job("batch/two", cpus="1")
    clock.start()
    wait_until(lambda: len(rows(ring)["times_s"]) >= 3, "three rows were taken", limit_s=10)
    clock.stop()
    assert rows(ring)["jobs"][-1] == {}

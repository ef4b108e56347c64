"""Same seed, same cluster; from one node to ten thousand; in pieces of any size."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.quality import check
from stormpetrel.simulate.cluster import ClusterSpec, Fault, ended_jobs, simulate
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.population import make_population
from tests.simulate.made import SMALL


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    return pl.concat(simulate(SMALL))


def test_the_same_seed_makes_the_same_cluster_whatever_the_size_of_its_pieces(jobs):
    parts = list(simulate(SMALL, chunk=97))
    assert {part.height for part in parts[:-1]} == {97}
    assert pl.concat(parts).equals(jobs)


def test_another_seed_makes_another_cluster(jobs):
    other = pl.concat(simulate(replace(SMALL, seed=8)))
    assert not other.equals(jobs)
    assert set(other["user"]) != set(jobs["user"])


def test_frames_are_job_frames_that_pass_every_quality_rule(jobs):
    assert jobs.schema == JOB_SCHEMA
    last = jobs["end_time"].max()
    good, refused, warnings = check(jobs.with_columns(line=pl.lit(1)), now=last)
    assert (good.height, refused.height, warnings.counts) == (jobs.height, 0, {})
    assert jobs.select("job_id", "array_task").is_unique().all()


def test_nobody_submits_after_the_last_day_except_again(jobs):
    late = jobs.filter(pl.col("submit_time") > SMALL.start + timedelta(days=SMALL.days))
    assert late.height < jobs.height * 0.05


@pytest.mark.parametrize("nodes", [1, 3, 10_000])
def test_a_cluster_of_any_size_works(nodes):
    frame = pl.concat(simulate(ClusterSpec(nodes=nodes, jobs=1000, days=None)))
    assert frame.height == 1000
    assert frame["nodes"].max() <= max(1, nodes // 2)
    assert (frame["state"] == "COMPLETED").mean() > 0.5


def test_a_node_with_little_memory_and_one_core_works():
    frame = pl.concat(simulate(ClusterSpec(nodes=2, cores_per_node=1, mem_per_node_gib=1, jobs=500, days=None)))
    assert frame["cpus"].max() <= 2 and frame["req_mem_bytes"].max() <= 2 << 30


def test_the_load_is_roughly_what_was_asked_for():
    spec = ClusterSpec(nodes=20, days=60, load=0.5)
    frame = pl.concat(simulate(spec))
    used = (frame["elapsed_s"] * frame["cpus"]).sum() / (spec.nodes * spec.cores_per_node * spec.days * 86_400)
    assert 0.2 < used < 0.8


def test_memory_does_not_grow_with_the_number_of_jobs():
    def peak(jobs: int) -> int:
        pieces = simulate(replace(SMALL, jobs=jobs, days=None), chunk=250)
        next(pieces)  # the people and their habits are made
        tracemalloc.start()
        for _ in pieces:
            pass
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert (peak(3_000) - peak(1_000)) / 2_000 < 300, "bytes per job: ids are remembered, which are some 80; a row has 2,000"


def test_too_much_load_does_not_fill_the_memory():
    frame = pl.concat(simulate(replace(SMALL, load=20.0, days=3)))
    assert 0 < frame.height < 100_000


def test_node_lists_read_back_as_the_nodes_that_ran_the_job(jobs):
    maker = FrameMaker(SMALL, make_population(SMALL, SMALL.seed))
    assert maker.node_list([4, 0, 1, 2]) == "n[001-003,005]"
    assert maker.node_list([3]) == "n004" and maker.node_list([]) is None
    ran = jobs.filter(pl.col("start_time").is_not_null())
    assert [len(expand_nodes(text)) for text in ran["node_list"]] == ran["nodes"].to_list()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": 10_001}, "10,000"),
        ({"jobs": None, "days": None}, "never end"),
        ({"faults": (Fault(99, 0, 1),)}, "node 99"),
        ({"load": 0.0}, "load"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_in_one_sentence(wrong, says):
    with pytest.raises(UsageError, match=says):
        replace(SMALL, **wrong)


def test_a_change_of_first_submissions_changes_what_becomes_of_them():
    spec = ClusterSpec(nodes=4, days=5, seed=3)
    before = [job for job in ended_jobs(spec) if job.submission.attempt == 0]
    after = list(ended_jobs(spec, change=lambda job: job._replace(mem_mib=spec.mem_per_node_mib)))
    assert any(job.outcome.state == "OUT_OF_MEMORY" for job in before)
    assert not any(job.outcome.state == "OUT_OF_MEMORY" for job in after)

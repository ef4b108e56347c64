"""A workload becomes a site: jobs with waits and nodes, read through its sacct, and more of them as the clock runs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.workload.recorded_site import FEED, cores_of_a_node, places, record_workload_site
from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.times import fixed_clock
from stormpetrel.simulate.feed import Feed, set_clock
from stormpetrel.simulate.replay import Machine, replay
from stormpetrel.simulate.submitting import submit_job
from stormpetrel.sources.scripts.job_script import read_job_script
from stormpetrel.sources.slurm.live import live_sources
from tests.builders import make_site, table_of
from tests.synth.writers.sample_workload import START, made_workload, pieces

JOBS = made_workload(1_500)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic") / "site"
    told: list[int] = []
    site = record_workload_site(folder, pieces(JOBS, 400), machine=Machine(90, 4), progress=told.append)
    assert told == [1_500]
    return folder, site


def truth(folder: Path) -> pl.DataFrame:
    return Feed(folder / FEED).truth().filter(~pl.col("submitted")).collect().sort("job_id_raw")


def test_no_node_ever_gives_more_cores_than_it_has(recorded):
    folder, site = recorded
    assert site.machine.cores == site.nodes * 32 == 96, "filled up to whole nodes"
    ran = truth(folder).filter(pl.col("start_time").is_not_null(), pl.col("elapsed_s") > 0)
    changes: list[tuple[float, int, str, float]] = []
    for start, end, cpus, where in ran.select("start_time", "end_time", "cpus", "node_list").iter_rows():
        nodes = expand_nodes(where)
        if len(nodes) == 1:
            changes += [(end.timestamp(), 0, nodes[0], -cpus), (start.timestamp(), 1, nodes[0], cpus)]
    busy: Counter[str] = Counter()
    for _, _, node, cores in sorted(changes):
        busy[node] += cores
        assert busy[node] <= 32
    assert len(changes) > 2_000


def test_jobs_wait_as_the_scheduler_says_and_run_as_they_did(recorded):
    folder, _ = recorded
    jobs = truth(folder)
    assert jobs.height == 1_500 and jobs["user"].to_list() == JOBS["user"].to_list()
    assert jobs["elapsed_s"].to_list() == JOBS["runtime_s"].round().to_list()
    assert ((jobs["start_time"] - jobs["submit_time"]).dt.total_seconds() > 60).sum() > 50, "some wait"
    assert jobs["state"].to_list() == JOBS["state"].to_list()
    assert set(jobs.filter(pl.col("state") == "FAILED")["exit_code"]) == {1}
    assert jobs["node_list"].drop_nulls().str.contains(r"^n(\d{3}|\[[\d,-]+\])$").all()


def test_the_site_is_read_live_and_more_jobs_come_as_the_clock_runs(recorded, tmp_path):
    folder, recorded_site = recorded
    feed = folder / FEED
    slurm = SlurmSection(sacct=str(feed / "sacct"), since=f"{Feed(feed).first:%Y-%m-%d}", pause_s=0.0, chunk_days=31)
    jobs = truth(folder)
    with make_site(tmp_path / "site") as site:
        for now in (recorded_site.now, recorded_site.now + timedelta(hours=20)):
            set_clock(feed, fixed_clock(now))
            for source in live_sources(slurm, SiteSection(), site.jobs.cursor, now=now):
                assert ingest_jobs(site, source).as_dict()["quarantined"] == {}
            seen = table_of(site)
            assert seen.height == jobs.filter(pl.col("submit_time") <= now).height < 1_500
            ended = seen.filter(~pl.col("state").is_in(["RUNNING", "PENDING"]))
            assert ended.height == jobs.filter(pl.col("end_time") <= now).height
    assert recorded_site.now - START == pytest.approx((JOBS["submit_time"][-1] - START) * 0.75, abs=timedelta(hours=1))


def test_people_can_submit_to_it(recorded, tmp_path):
    folder, site = recorded
    set_clock(folder / FEED, fixed_clock(site.now))
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --ntasks=2\n#SBATCH --mem=1G\n#SBATCH --time=60\ntrue\n")
    job_id = submit_job(folder / FEED, read_job_script(script), user=JOBS["user"][0])
    job = Feed(folder / FEED).truth().filter(pl.col("job_id") == job_id).collect()
    assert job.height == 1 and job["submitted"][0] and job["node_list"][0].startswith("n")


def test_a_job_that_fits_on_no_node_is_spread():
    jobs = pl.DataFrame({"submit_time": [START] * 4, "cores": [3, 3, 2, 8], "runtime_s": [100.0, 100.0, 100.0, 5.0]})
    jobs = replay(jobs.with_columns(pl.col("submit_time").cast(pl.Datetime("us", "UTC"))), Machine(8))
    assert places(jobs, 2, 4) == [[0], [1], [0, 1], [0, 1]]
    assert jobs["wait_s"].to_list() == [0, 0, 0, 100]


def test_the_size_of_a_node_is_what_jobs_on_whole_nodes_tell():
    told = pl.DataFrame({"submit_time": [START] * 3, "cores": [64, 128, 1], "nodes": [1, 2, 1]})
    assert cores_of_a_node(told, Machine(1000)) == 64
    silent = told.select("submit_time", "cores")
    assert cores_of_a_node(silent, Machine(1000)) == 32
    assert cores_of_a_node(silent, Machine(8)) == 8
    assert cores_of_a_node(silent, Machine(10_000_000)) == 1000, "at most ten thousand nodes"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        record_workload_site(tmp_path, [JOBS])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_goes_wrong_leaves_nothing_behind(tmp_path):
    def frames():
        yield JOBS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_workload_site(tmp_path / "site", frames())
    with pytest.raises(NotEnoughJobsError, match="no job"):
        record_workload_site(tmp_path / "site", iter(()))

    def stop(_jobs: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_workload_site(tmp_path / "site", [JOBS], progress=stop)
    assert not (tmp_path / "site").exists()


def test_a_workload_of_times_alone_is_a_site_too(tmp_path):
    site = record_workload_site(tmp_path / "site", [JOBS.select("submit_time", "user")])
    jobs = truth(tmp_path / "site")
    assert site.jobs == jobs.height == 1_500
    assert set(jobs["state"]) == {"UNKNOWN"} and np.all(jobs["elapsed_s"].to_numpy() == 0)

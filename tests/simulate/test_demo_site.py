from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.demo_site import demo_now, demo_spec
from stormpetrel.simulate.feed import as_of

SUNDAY_NIGHT = datetime(2026, 11, 15, 23, 50, tzinfo=UTC)
MONDAY_MORNING = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def first_screen() -> pl.DataFrame:
    """The jobs of the demo as accounting shows them when it begins, started on a Sunday night."""
    now = demo_now(SUNDAY_NIGHT)
    jobs = pl.concat(simulate(demo_spec(now), chunk=5_000))
    return as_of(jobs.filter(pl.col("end_time") > now - timedelta(hours=1)), now)


def test_the_demo_begins_on_a_tuesday_afternoon_of_the_past_week():
    for hour in range(14 * 24):
        wall = datetime(2026, 11, 1, 0, 59, tzinfo=UTC) + timedelta(hours=hour)
        begins = demo_now(wall)
        assert begins.strftime("%A %H:%M") == "Tuesday 16:30"
        assert timedelta(0) < wall - begins <= timedelta(days=8)


def test_the_same_cluster_comes_out_whenever_it_is_started():
    one, other = demo_now(SUNDAY_NIGHT), demo_now(MONDAY_MORNING)
    jobs = [next(simulate(demo_spec(now), chunk=1_000)) for now in (one, other)]
    shifted = jobs[1].with_columns(pl.col("submit_time", "start_time", "end_time") + (one - other))
    told = ["job_id", "user", "state", "submit_time", "start_time", "end_time", "req_cpus"]
    assert jobs[0].select(told).equals(shifted.select(told))


def test_jobs_wait_and_run_on_the_first_screen(first_screen):
    counts = dict(first_screen["state"].value_counts().iter_rows())
    assert counts["PENDING"] >= 2
    assert counts["RUNNING"] >= 20


def test_jobs_have_failed_within_the_last_hour(first_screen):
    ended = first_screen.filter(pl.col("end_time").is_not_null())
    failed = ended.filter(pl.col("state").is_in(["FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"]))
    assert 4 <= failed.height < ended.height

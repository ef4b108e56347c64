"""The outlook of one job: what is served is what was evaluated, and held jobs get a reason instead of an estimate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.advice.outlook import JobOutlook
from stormpetrel.jobs.needs.forecast import LEVELS
from stormpetrel.jobs.needs.training import NeedsTraining, use_log
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.wait.training import WaitTraining, queue_log
from stormpetrel.records.jobs import job_frame

T0 = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30
N = 260


def log() -> pl.DataFrame:
    """Jobs of three users; waits grow along the log, so that levels have something to follow."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, object]] = []
    for k in range(N):
        submit = T0 + timedelta(seconds=600 * k + float(rng.uniform(1, 500)))
        large = k % 3 == 0
        start = submit + timedelta(seconds=(1800.0 if large else 20.0) * (1 + 3 * k / N) * rng.uniform(0.5, 1.5))
        run_s = float(rng.uniform(300, 900)) * (4 if large else 1)
        rows.append(
            {
                "cluster": "c", "job_id": k + 1, "submit_time": submit, "restart": 0, "user": f"u{k % 3}", "start_time": start,
                "job_name": f"app{k % 2}", "end_time": start + timedelta(seconds=run_s), "state": "COMPLETED", "elapsed_s": run_s,
                "time_limit_s": 7200.0, "req_cpus": 32 if large else 1, "cpus": 32 if large else 1, "req_mem_bytes": 64 * GIB,
                "max_rss_bytes": int((2 + 6 * (k % 2)) * GIB * rng.uniform(0.8, 1.0)),
            }
        )  # fmt: skip
    return job_frame(rows)


def request(jobs: pl.DataFrame, row: int) -> pl.DataFrame:
    """A job as it was when it was submitted: nothing of its run is known."""
    later = ("start_time", "end_time", "elapsed_s", "cpus", "max_rss_bytes")
    return jobs[row].with_columns(*(pl.lit(None, dtype=jobs.schema[name]).alias(name) for name in later), state=pl.lit("PENDING"))


def outlook_at(jobs: pl.DataFrame, row: int, needs: dict, wait) -> JobOutlook:
    """The outlook of a site that knows what was known when a job was submitted, and nothing of what came then."""
    now = jobs["submit_time"][row]
    return JobOutlook(needs, wait, known_by(jobs.head(row), now), now=now)


def test_served_waits_are_those_of_the_evaluation():
    jobs = log()
    training = WaitTraining(queue_log(jobs))
    cuts = [jobs["submit_time"][at].timestamp() for at in (120, 180, 220)]
    for cut, until in pairwise(cuts):
        training.fit_at(cut)
        training.advance(until)
    model = training.fit_at(cuts[-1])
    rows, quantiles_s = training.advance(np.inf)
    assert model.levels_ != (0.5, 0.9)  # there is a correction
    for row in (220, 231, 259):
        wait = outlook_at(jobs, row, {}, model).wait(request(jobs, row))
        assert wait is not None
        np.testing.assert_allclose([wait.p50_s, wait.p90_s], quantiles_s[rows == row][0], rtol=1e-5)


@pytest.mark.parametrize("resource", ["memory", "time"])
def test_served_needs_are_those_of_the_evaluation(resource):
    jobs = log()
    training = NeedsTraining(use_log(jobs, resource))
    cuts = [jobs["submit_time"].dt.epoch("us")[at] for at in (150, 200)]
    training.fit_at(cuts[0], tuned=False)
    training.advance(cuts[1], judged=False)
    model = training.fit_at(cuts[1], tuned=True)
    rows, allocation, forecast = training.advance(np.inf, judged=True)
    for row in (200, 230, 259):
        need = outlook_at(jobs, row, {resource: model}, None).needs(request(jobs, row))[resource]
        at = int(np.flatnonzero(rows == row)[0])
        np.testing.assert_allclose([need.p50, need.p90, need.p99], forecast.quantiles(LEVELS)[at], rtol=1e-4)
        assert need.granted == pytest.approx(allocation.granted[at], rel=1e-4)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Dependency", "waits for another job"),
        ("JobHeldUser", "held"),
        ("Reservation", "reservation"),
        ("BeginTime", "not begin before"),
    ],
)
def test_a_job_that_has_no_turn_gets_a_reason_and_no_estimate(reason, words):
    jobs = log()
    model = WaitTraining(queue_log(jobs)).fit_at(jobs["submit_time"][200].timestamp())
    job = request(jobs, 259).with_columns(pl.Series("extra", [[{"key": "reason", "value": reason}]], dtype=jobs.schema["extra"]))
    wait = outlook_at(jobs, 259, {}, model).wait(job)
    assert wait is not None and wait.p50_s is None and words in (wait.reason or "")

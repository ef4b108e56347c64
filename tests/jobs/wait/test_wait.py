"""Waits: the queue with honest time, the forecast, and its evaluation beside the last 20 of the same shape."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.wait.evaluation import evaluate_waits, judge
from stormpetrel.jobs.wait.model import WaitModel
from stormpetrel.jobs.wait.queue_kernel import N_READINGS, READINGS, blended_quantile, follow_levels
from stormpetrel.jobs.wait.training import queue_log
from stormpetrel.records.jobs import job_frame

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def queue(n: int, *, wait_s: float | None = None) -> pl.DataFrame:
    """n jobs ten minutes apart; large ones wait an hour, small ones ten seconds."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, object]] = []
    for k in range(n):
        submit = T0 + timedelta(minutes=10 * k)
        wait = wait_s if wait_s is not None else (3600.0 if k % 3 == 0 else 10.0) * rng.uniform(0.8, 1.2)
        start = submit + timedelta(seconds=wait)
        rows.append(
            {
                "cluster": "c", "job_id": k + 1, "submit_time": submit, "restart": 0, "user": f"u{k % 4}", "start_time": start,
                "end_time": start + timedelta(seconds=900), "state": "COMPLETED", "elapsed_s": 900.0, "time_limit_s": 3600.0,
                "req_cpus": 64 if k % 3 == 0 else 1, "cpus": 64 if k % 3 == 0 else 1,
            }
        )  # fmt: skip
    return job_frame(rows)


def test_a_wait_is_known_from_the_start_of_its_job_on():
    log = queue_log(queue(8))
    last = log.readings[:, READINGS.index("last")]  # of the site
    assert np.isnan(last[0])
    # The first job waits for an hour: until then only the two small ones after it have told theirs.
    assert np.expm1(last[5]) < 60.0


def test_jobs_that_wait_are_counted_until_they_start():
    log = queue_log(queue(8))
    waiting = np.expm1(log.readings[:, READINGS.index("waiting")])
    assert waiting[0] == 0.0 and round(waiting[3]) == 1  # the first, large one


def test_large_and_small_jobs_are_told_apart():
    result = evaluate_waits(queue(400))
    assert 0.8 < result.model.coverage_90 <= 1.0 and result.model.pinball_50 < 400.0


def test_a_log_without_waits_is_refused_in_a_sentence():
    with pytest.raises(NotEnoughJobsError, match="No job of this log waited"):
        evaluate_waits(queue(200, wait_s=0.0))


def test_recent_waits_have_their_share():
    steps, below = np.log1p([10.0, 1000.0]), np.array([0.5, 1.0], np.float32)
    both = np.expm1(blended_quantile(steps, below, 0.5, 0.5, np.log1p(100.0)))
    assert both == pytest.approx(np.sqrt(11.0 * 101.0) - 1.0)


def test_pinball_loss_and_coverage_are_as_defined():
    figures = judge(np.array([[10.0, 20.0]]), np.array([15.0]))
    assert (figures.pinball_50, figures.pinball_90) == (pytest.approx(2.5), pytest.approx(0.5))
    assert (figures.coverage_50, figures.coverage_90) == (0.0, 1.0)


def test_the_level_rises_where_quantiles_were_too_low():
    n = 200
    submit, waits = np.arange(n) * 100.0, np.full(n, 50.0)
    below = np.tile(np.array([0.6, 1.0], np.float32), (n, 1))
    out, recent = np.empty(n), np.zeros(n)
    level = follow_levels(
        submit, waits, np.full(n, np.inf), np.log1p(np.array([1.0, 1000.0])), below, recent, 1.0, 0.5, 0.02, 0.5, np.inf, out
    )
    assert level > 0.5


def test_a_saved_model_forecasts_the_same(tmp_path):
    log = queue_log(queue(120))
    model = WaitModel().fit(log.features, log.table.wait_s, np.zeros(120, bool))
    model.save(tmp_path / "w")
    again = WaitModel.load(tmp_path / "w")
    np.testing.assert_array_equal(again.forecast(log.features).below, model.forecast(log.features).below)
    assert len(READINGS) == N_READINGS

"""Running quality: which predictions are settled, and the figures that a hand could compute."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.learn.metrics import judge, reliability_slope
from stormpetrel.lifecycle.running_quality import (
    QUALITY_SCHEMA,
    SETTLED_SCHEMA,
    quality,
    running_quality_of,
    settle,
    settled,
)
from stormpetrel.records.jobs import KEY, never_started
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from tests.builders import T0, make_site
from tests.jobs.logs import cancelled_array, jobs_of_ada, made_jobs, make_log
from tests.lifecycle.sites import DAYS, day, put_jobs

FAILURES = ("FAILED", "TIMEOUT")


def predictions_for(jobs, *, moment="submit", version=1, risk=0.3, flagged=False, as_of=None, late=False):
    """One prediction for each job, made at its submission unless `as_of` says when."""
    made = jobs.select(
        *KEY,
        moment=pl.lit(moment),
        moment_time=pl.col("submit_time"),
        as_of=pl.col("submit_time") if as_of is None else pl.lit(as_of),
        predicted_at=pl.col("submit_time") + timedelta(seconds=2),
        late=pl.lit(late),
        model_version=pl.lit(version),
        risk=pl.lit(risk) if isinstance(risk, float) else pl.Series(risk),
        flagged=pl.lit(flagged) if isinstance(flagged, bool) else pl.Series(flagged),
    )
    rest = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in PREDICTION_SCHEMA.items() if name not in made.columns]
    return made.with_columns(rest).select([pl.col(name).cast(dtype) for name, dtype in PREDICTION_SCHEMA.items()])


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def settled_rows(jobs, predictions, **more):
    return settle(predictions, jobs, failure_states=FAILURES, **more)


def test_only_predictions_of_ended_jobs_that_were_made_before_the_end_are_settled():
    jobs = made_jobs(
        {"submit": 0, "start": 10, "end": 100, "state": "FAILED"},
        {"submit": 0, "start": 10, "state": "RUNNING"},
        {"submit": 0, "start": 10, "end": 100, "state": "PREEMPTED"},  # neither failed nor completed
        {"submit": 0, "start": 10, "end": 50, "state": "COMPLETED"},
    )
    told = predictions_for(jobs, as_of=at(50))
    found = settled_rows(jobs, told)
    assert found.schema == SETTLED_SCHEMA
    assert found["failed"].to_list() == [True] and found["end_time"].to_list() == [at(100)]
    assert settled_rows(jobs, told, dropped_states=("FAILED",)).height == 0


def test_a_cancelled_array_of_waiting_tasks_settles_nothing():
    ran, waited = jobs_of_ada(), cancelled_array()
    both = pl.concat([ran, waited])
    told = quality(settled_rows(both, predictions_for(both)))
    assert told.equals(quality(settled_rows(ran, predictions_for(ran))))
    assert told["n"].to_list() == [100, 100] and told["failed_share"].to_list() == pytest.approx([0.17, 0.17])


def test_the_users_last_ended_job_is_one_that_ran():
    failed = {"submit": 0, "start": 10, "end": 100, "state": "FAILED"}
    later = {"submit": 300, "start": 310, "end": 400, "state": "COMPLETED"}
    jobs = pl.concat([made_jobs(failed, later), cancelled_array(2, submit=150, waited=50)])
    assert settled_rows(jobs, predictions_for(jobs)).sort("moment_time")["last_failed"].to_list() == [False, True]


def test_jobs_are_told_apart_by_their_whole_key():
    jobs = made_jobs(
        {"job_id": 7, "submit": 0, "start": 10, "end": 100, "state": "FAILED", "array_task": 1},
        {"job_id": 7, "submit": 0, "start": 10, "end": 100, "state": "COMPLETED", "array_task": 2},
        {"job_id": 7, "submit": 0, "start": 10, "end": 100, "state": "COMPLETED"},
        {"job_id": 7, "submit": 0, "start": 10, "end": 100, "state": "COMPLETED", "restart": 1},
    )
    assert settled_rows(jobs, predictions_for(jobs))["failed"].sum() == 1
    assert settled_rows(jobs, predictions_for(jobs)).height == 4


def test_the_last_outcome_of_a_user_is_the_one_that_was_known():
    jobs = made_jobs(
        {"submit": 0, "start": 1, "end": 50, "state": "FAILED"},
        {"submit": 0, "start": 1, "end": 60, "state": "COMPLETED", "user": "bob"},
        {"submit": 50, "start": 51, "end": 70, "state": "COMPLETED"},  # at this very moment nobody knows of the failure
        {"submit": 55, "start": 56, "end": 80, "state": "COMPLETED"},
        {"submit": 75, "start": 76, "end": 90, "state": "COMPLETED"},
        {"submit": 75, "start": 76, "end": 90, "state": "COMPLETED", "user": None},
    )
    told = predictions_for(jobs)
    found = settled_rows(jobs, told).sort("moment_time", "end_time")
    assert found["last_failed"].to_list() == [False, False, False, True, False, False]


@pytest.fixture(scope="module")
def many():
    jobs = make_log(400, 2, days=10, cancelled=0.0).with_columns(state=pl.col("state").replace("OUT_OF_MEMORY", "FAILED"))
    rng = np.random.default_rng(0)
    truth = jobs["state"].is_in(FAILURES).to_numpy()
    risk = np.clip(0.2 + 0.4 * truth + rng.normal(0, 0.15, 400), 0.01, 0.99)
    first = predictions_for(jobs.head(150), risk=risk[:150], flagged=risk[:150] > 0.5)
    second = predictions_for(jobs.tail(250), risk=risk[150:], flagged=risk[150:] > 0.4, version=2, late=True)
    return jobs, truth, risk, pl.concat([first, second])


def test_figures_are_those_of_the_metrics_by_version_and_over_all(many):
    jobs, truth, risk, told = many
    found = quality(settled_rows(jobs, told))
    assert found.schema == QUALITY_SCHEMA
    assert found.select("moment", "model_version", "n").rows() == [("submit", None, 400), ("submit", 1, 150), ("submit", 2, 250)]
    everything, first, second = found.to_dicts()
    expected = judge(truth, risk.astype(np.float32).astype(float), threshold=0.5, n_train=0)
    for name in ("pr_auc", "roc_auc", "brier", "ece", "failed_share"):
        assert everything[name] == pytest.approx(getattr(expected, name))
    assert everything["slope"] == pytest.approx(reliability_slope(truth, risk), rel=1e-4)
    assert everything["slope"] * risk.mean() + everything["intercept"] == pytest.approx(truth.mean())
    assert everything["failed"] == truth.sum() and everything["base_pr_auc"] == everything["failed_share"]
    assert (first["late_share"], second["late_share"]) == (0.0, 1.0)


def test_precision_and_recall_are_those_of_the_flags_as_they_were_shown(many):
    jobs, truth, risk, told = many
    flagged = np.append(risk[:150] > 0.5, risk[150:] > 0.4)
    row = quality(settled_rows(jobs, told)).row(0, named=True)
    assert row["precision"] == pytest.approx(truth[flagged].mean())
    assert row["recall"] == pytest.approx(flagged[truth].mean())
    assert row["flagged_share"] == pytest.approx(flagged.mean())


def test_the_user_s_last_outcome_is_judged_as_a_rule_of_its_own(many):
    jobs, _, _, told = many
    rows = settled_rows(jobs, told)
    row = quality(rows).row(0, named=True)
    said, truth = rows["last_failed"].to_numpy(), rows["failed"].to_numpy()
    assert said.any() and row["last_precision"] == pytest.approx(truth[said].mean())
    assert row["last_recall"] == pytest.approx(said[truth].mean()) and 0 < row["last_pr_auc"] < row["pr_auc"]


def test_without_a_failure_nothing_is_said_about_finding_them():
    jobs = made_jobs({"submit": 0, "start": 1, "end": 50}, {"submit": 0, "start": 1, "end": 60})
    row = quality(settled_rows(jobs, predictions_for(jobs))).row(0, named=True)
    assert (row["n"], row["failed_share"], row["brier"]) == (2, 0.0, pytest.approx(0.09))
    assert all(row[name] is None for name in ("pr_auc", "roc_auc", "recall", "precision", "slope", "intercept", "base_pr_auc"))


def test_none_settled_is_an_empty_table(tmp_path):
    nothing = pl.DataFrame(schema=SETTLED_SCHEMA)
    assert quality(nothing).schema == QUALITY_SCHEMA and quality(nothing).height == 0
    with make_site(tmp_path / "site") as site:
        assert settled(site, since=T0).equals(nothing)
        assert running_quality_of(site, since=T0).height == 0


def test_a_site_settles_only_what_came_since(tmp_path):
    jobs = make_log(300, 4, days=DAYS, unfinished=0.05)
    with make_site(tmp_path / "site", jobs={"failure_states": list(FAILURES)}) as site:
        put_jobs(site, jobs)
        site.predictions.append(predictions_for(jobs, risk=0.3), horizon=day(DAYS))
        found = settled(site, since=day(20))
        counted = jobs.filter(
            pl.col("state") != "RUNNING",
            pl.col("submit_time") >= day(20),
            pl.col("submit_time") < pl.col("end_time"),
            ~never_started(),
        )
        assert found.height == counted.height and found["moment_time"].min() >= day(20)
        assert found["failed"].sum() == counted["state"].is_in(FAILURES).sum()
        row = running_quality_of(site, since=day(20)).row(0, named=True)
        assert (row["n"], row["first"]) == (found.height, found["moment_time"].min())


def test_a_job_that_waited_for_weeks_is_settled_by_when_it_started(tmp_path):
    jobs = made_jobs({"submit": 0, "start": 25 * 86400, "end": 25 * 86400 + 500, "state": "FAILED"})
    told = predictions_for(jobs, moment="start").with_columns(
        moment_time=pl.lit(day(25)).cast(PREDICTION_SCHEMA["moment_time"]), as_of=pl.lit(day(25)).cast(PREDICTION_SCHEMA["as_of"])
    )
    with make_site(tmp_path / "site") as site:
        put_jobs(site, jobs)
        site.predictions.append(told, horizon=day(26))
        assert settled(site, since=day(20))["failed"].to_list() == [True]

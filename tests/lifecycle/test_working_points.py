"""Where flags begin on a watched site: moved by what has settled, by cost or by flags a day."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.config import settings_from
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.job_models import load_predictor
from stormpetrel.lifecycle.working_points import read_working_points, renew_working_points
from stormpetrel.records.jobs import KEY
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import open_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import DAYS, day, few_trees, steady_log, trained_site

NOW = day(DAYS)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def site(tmp_path):
    with few_trees(), open_site(trained_site(tmp_path / "site", steady_log(), until=10)) as made:
        yield made


def predict(site, *, risk: float = 0.8, spread: float = 0.1) -> pl.DataFrame:
    """Every job after the training was given a high risk at submission, those that failed a little more."""
    jobs = site.jobs.read_jobs(since=day(10)).collect()
    bad = (jobs["state"] == "FAILED").to_numpy()
    risks = np.clip(risk + 0.1 * bad + spread * np.random.default_rng(0).standard_normal(jobs.height), 0.01, 0.99)
    rows = jobs.select(KEY).with_columns(
        moment=pl.lit("submit"),
        moment_time=jobs["submit_time"],
        as_of=jobs["submit_time"],
        predicted_at=jobs["submit_time"],
        late=pl.lit(False),
        model_version=pl.lit(1, dtype=pl.Int32),
        risk=pl.Series(risks, dtype=pl.Float32),
        threshold=pl.lit(0.5),
        flagged=pl.Series(risks >= 0.5),
        known=pl.lit(True),
    )
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in PREDICTION_SCHEMA.items() if name not in rows.columns]
    predictions = rows.with_columns(missing).select([pl.col(name).cast(dtype) for name, dtype in PREDICTION_SCHEMA.items()])
    site.predictions.append(predictions, horizon=NOW)
    return predictions


def with_settings(site, **jobs):
    site.settings = settings_from({"jobs": jobs})


def test_risks_that_were_all_too_high_are_corrected(site):
    predict(site)
    (point,) = renew_working_points(site, now=NOW)
    assert point.ece > 0.3 and point.ece_corrected < 0.5 * point.ece
    assert point.corrected < point.threshold


def test_a_predictor_flags_from_the_working_point_on(site):
    predict(site)
    (point,) = renew_working_points(site, now=NOW)
    assert load_predictor(site, now=NOW).threshold_at(Moment.SUBMIT) == point.threshold


def test_the_cost_of_a_missed_failure_sets_the_corrected_risk(site):
    with_settings(site, missed_cost=4.0)
    predict(site)
    (point,) = renew_working_points(site, now=NOW)
    assert point.corrected == pytest.approx(0.2, abs=0.01)


def test_a_limit_of_flags_a_day_raises_the_threshold_and_counts_down(site):
    with_settings(site, flags_per_day=2.0)
    predictions = predict(site)
    (point,) = renew_working_points(site, now=NOW)
    week = predictions.filter(pl.col("moment_time") > NOW - timedelta(days=7))
    assert (week["risk"] >= point.by_budget).sum() <= 2 * 7
    predictor = load_predictor(site, now=NOW)
    predictor.flags_left = {Moment.SUBMIT: 1}
    assert predictor.flags_of(Moment.SUBMIT, np.array([0.995, 0.999])).tolist() == [False, True]
    assert predictor.flags_of(Moment.SUBMIT, np.array([0.999])).tolist() == [False]


def test_what_ends_later_changes_nothing(site):
    predict(site)
    then = day(30)
    (one,) = renew_working_points(site, now=then)
    jobs = site.jobs.read_jobs().collect().filter(pl.col("end_time") > then)
    assert jobs.height
    site.jobs.table.overwrite(
        site.jobs.table.scan()
        .with_columns(state=pl.when(pl.col("end_time") > then).then(pl.lit("FAILED")).otherwise("state"))
        .collect()
    )
    (two,) = renew_working_points(site, now=then)
    assert one == two


def test_few_settled_predictions_leave_the_models_own_threshold(site):
    own = load_predictor(site, now=NOW).threshold_at(Moment.SUBMIT)
    assert renew_working_points(site, now=NOW) == []
    assert load_predictor(site, now=NOW).threshold_at(Moment.SUBMIT) == own


def test_points_of_a_model_that_is_no_longer_in_use_do_not_hold(site, monkeypatch):
    predict(site)
    renew_working_points(site, now=NOW)
    monkeypatch.setattr(site.models, "in_use", dict)
    assert read_working_points(site) == {}


def test_a_site_may_keep_the_models_own_threshold(site):
    with_settings(site, recalibrate=False)
    predict(site)
    assert renew_working_points(site, now=NOW) == []

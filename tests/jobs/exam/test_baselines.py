"""What a careful person would do without the model."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.exam.baselines import BASELINES, last_outcome, user_rate, xgboost_untuned
from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.moments import MOMENTS, Moment
from tests.jobs.logs import made_jobs, make_log, one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


def features_of(jobs) -> FeatureMatrix:
    return features_at(jobs, History(stand_in={}), [Moment.SUBMIT])[Moment.SUBMIT]


NOBODY = np.empty(0, dtype=bool)


def test_the_last_outcome_is_that_of_the_last_job_that_had_ended():
    jobs = made_jobs(
        {"submit": 0, "start": 0, "end": 100, "state": "FAILED"},
        {"submit": 10, "start": 10, "end": 900, "state": "COMPLETED"},
        {"submit": 200},
        {"submit": 1000},
        {"submit": 1000, "user": "stranger"},
    )
    features = features_of(jobs)
    assert last_outcome(features, NOBODY, features).tolist() == [0, 0, 1, 0, 0]


def test_the_user_rate_is_the_share_of_failures_among_the_jobs_that_had_ended():
    ended = [{"submit": 0, "start": 0, "end": 9, "state": "FAILED" if k < 30 else "COMPLETED"} for k in range(40)]
    features = features_of(made_jobs(*ended, {"submit": 60}))
    assert user_rate(features, NOBODY, features)[-1] == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_baseline_gives_one_probability_per_job(name, moment):
    jobs = make_log(200)
    features = features_at(jobs, History(), [moment])[moment]
    failed = (jobs["state"] == "FAILED").to_numpy()
    said = BASELINES[name](features.rows(np.arange(150)), failed[:150], features.rows(np.arange(150, 200)))
    assert said.shape == (50,) and said.dtype == np.float64
    assert ((said >= 0) & (said <= 1)).all()


@pytest.mark.parametrize("name", BASELINES)
def test_no_test_job_is_no_forecast(name):
    features = features_of(make_log(60))
    failed = np.arange(60) % 3 == 0
    assert BASELINES[name](features, failed, features.rows(np.empty(0, dtype=np.int64))).shape == (0,)


def test_trees_need_both_outcomes():
    features = features_of(make_log(20))
    for failed in (np.zeros(20, dtype=bool), np.ones(20, dtype=bool)):
        with pytest.raises(NotEnoughJobsError):
            xgboost_untuned(features, failed, features)

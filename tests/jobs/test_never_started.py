"""A user of whose jobs 17 % fail, and an array of 3,000 waiting tasks that was cancelled: nobody may take that for success."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.advice.advice import advise
from stormpetrel.jobs.advice.kinds import find_kind, longest_limits
from stormpetrel.jobs.exam.baselines import last_outcome, user_rate
from stormpetrel.jobs.exam.seed_protocol import _judged
from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings, label_jobs
from stormpetrel.jobs.trends import failure_trend
from stormpetrel.jobs.waste import OVER_BEFORE_START, check_ledger, ledger, reconcile
from stormpetrel.records.states import DEFAULT_FAILURE_STATES
from tests.jobs.logs import cancelled_array, jobs_of_ada, made_jobs

TASKS = 3000
OF_SUBMISSIONS = ("since_submit", "burst")  # readings that an array changes whatever becomes of it
NOBODY = np.empty(0, dtype=bool)


def later_job() -> pl.DataFrame:
    return made_jobs({"job_id": 950_000, "submit": 102 * 3600.0, "state": "PENDING"})


@pytest.fixture(scope="module")
def calm() -> pl.DataFrame:
    return pl.concat([jobs_of_ada(), later_job()])


@pytest.fixture(scope="module")
def with_array() -> pl.DataFrame:
    return pl.concat([jobs_of_ada(), cancelled_array(TASKS), later_job()])


def features_of(jobs) -> FeatureMatrix:
    return features_at(jobs, History(stand_in={}), [Moment.SUBMIT])[Moment.SUBMIT]


def test_the_history_of_a_later_job_knows_of_the_submissions_only(calm, with_array):
    before, after = (features_of(jobs) for jobs in (calm, with_array))
    same = [n for n, name in enumerate(before.names) if not name.endswith(OF_SUBMISSIONS) and "previous" not in name]
    np.testing.assert_array_equal(before.values[-1, same], after.values[-1, same])
    assert after.values[-1, after.names.index("user.pending")] == 0


def test_told_event_by_event_the_history_says_the_same(with_array):
    swept = features_of(with_array)
    live = History(stand_in={})
    ended = with_array.head(-1)
    live.take_in(ended, "submit")
    live.take_in(ended, "start")
    live.take_in(ended.sort("end_time", maintain_order=True), "end")
    last = with_array.tail(1)
    now = last["submit_time"].dt.epoch("us").to_numpy() / 1e6
    read = live.read(last, Moment.SUBMIT, now).at[Moment.SUBMIT][0]
    for name in ("user.failed_rate_ever", "user.cancelled_share", "user.failure_streak", "user.pending", "user.quick_share"):
        assert read[live.names.index(name)] == pytest.approx(swept.values[-1, swept.names.index(name)])


def test_the_user_keeps_her_failure_rate(with_array):
    features = features_of(with_array)
    assert user_rate(features, NOBODY, features)[-1] == pytest.approx(0.17, abs=0.005)


def test_the_last_outcome_is_that_of_the_last_job_that_ran():
    failed = made_jobs({"submit": 0, "start": 10, "end": 20, "elapsed_s": 10.0, "state": "FAILED"})
    jobs = pl.concat([failed, cancelled_array(3, submit=100.0, waited=50.0), later_job()])
    features = features_of(jobs)
    assert last_outcome(features, NOBODY, features)[-1] == 1


def test_trends_keep_the_rate(calm, with_array):
    trends = [failure_trend(jobs, by="user", every="1mo") for jobs in (calm, with_array)]
    assert trends[0].equals(trends[1])
    assert trends[1]["jobs"].sum() == 100 and trends[1]["failed"].sum() == 17


def test_waste_says_that_they_never_started(calm, with_array):
    assert ledger(with_array, by=["user"]).equals(ledger(calm, by=["user"]))
    reconciled = reconcile(with_array)
    check_ledger(reconciled)
    assert reconciled.uncounted[OVER_BEFORE_START] == TASKS
    assert reconciled.total.jobs == 100


def test_no_model_learns_from_them(with_array):
    labelled = label_jobs(with_array, TrainingSettings(failure_states=("FAILED", "CANCELLED")), [Moment.SUBMIT])
    assert labelled.usable.sum() == 100 and labelled.failed[labelled.usable].mean() == pytest.approx(0.17)
    assert (labelled.outcome == "CANCELLED").sum() == 0


def test_the_published_protocol_leaves_them_out(with_array):
    assert _judged(with_array, DEFAULT_FAILURE_STATES, (), 0.0).height == 100


def test_advice_still_sees_the_jobs_that_ran(with_array):
    request, now = later_job(), later_job()["submit_time"].item()
    assert find_kind(request, with_array.head(-1), now=now).jobs.height == 50
    assert advise(request, with_array.head(-1), now=now) == advise(request, jobs_of_ada(), now=now)


def test_a_limit_that_never_started_is_none_that_a_partition_gives(with_array):
    absurd = cancelled_array(1).with_columns(time_limit_s=pl.lit(1e9))
    now = later_job()["submit_time"].item()
    assert longest_limits(pl.concat([jobs_of_ada(), absurd]), now=now) == {"batch": 3600.0}

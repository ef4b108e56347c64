"""Feature matrices: what a model sees at a moment, and nothing more."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.errors import LeakError
from stormpetrel.jobs.features import FeatureMatrix, features_at, features_now, group_of
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.moments import MOMENTS, Moment
from tests.builders import T0
from tests.jobs.logs import ALLOCATION, ENDING, clock, known_at, made_jobs, make_log, small_logs


def matrices(jobs, **options):
    return features_at(jobs, History(stand_in={}), MOMENTS, **options)


def column(features: FeatureMatrix, name: str) -> list[float]:
    return features.values[:, features.names.index(name)].tolist()


@settings(max_examples=40, deadline=None)
@given(small_logs(), st.integers(1, 20))
def test_features_of_a_moment_need_nothing_that_happens_after_it(jobs, minutes):
    now = T0 + timedelta(minutes=minutes)
    times = clock(jobs)
    kept = np.flatnonzero((times["submit"] < now).to_numpy())
    whole, cut = matrices(jobs), matrices(known_at(jobs, now))
    started = (times["start"] < now).fill_null(False).to_numpy()[kept]
    lived = (times["start"] + timedelta(minutes=2) < now).fill_null(False).to_numpy()[kept]
    for moment, seen in ((Moment.SUBMIT, np.ones(len(kept), dtype=bool)), (Moment.START, started), (Moment.TWO_MINUTES, lived)):
        np.testing.assert_array_equal(whole[moment].values[kept][seen], cut[moment].values[seen])


def test_features_at_submission_do_not_see_the_allocation_or_the_end_of_the_job_itself():
    jobs = make_log(200, 1)
    hidden = jobs.with_columns(pl.lit(None, dtype=jobs.schema[name]).alias(name) for name in (*ALLOCATION, *ENDING))
    submit = [matrices(frame.tail(1))[Moment.SUBMIT].values for frame in (jobs, hidden)]
    np.testing.assert_array_equal(*submit)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("planted", ["elapsed_s", "state", "max_rss_bytes", "end_time"])
def test_a_planted_leak_is_refused_with_its_column_and_its_moment(planted, moment):
    with pytest.raises(LeakError, match=rf"'{planted}'.*'{moment}'") as caught:
        features_at(make_log(20), History(), [moment], extra=[pl.col(planted)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("planted", ["node_list", "cpus"])
def test_the_allocation_planted_at_submission_is_refused(planted):
    with pytest.raises(LeakError, match=rf"'{planted}'.*start.*'submit'"):
        features_at(make_log(20), History(), [Moment.SUBMIT], extra=[pl.col(planted)])


def test_a_leak_planted_by_a_selector_is_refused():
    with pytest.raises(LeakError):
        features_at(make_log(20), History(), [Moment.SUBMIT], extra=[pl.col("elapsed_s", "max_rss_bytes")])


def test_an_extra_feature_over_all_rows_is_refused():
    with pytest.raises(LeakError):
        features_at(make_log(20), History(), [Moment.SUBMIT], extra=[pl.len().over("user").alias("jobs_of_user")])


def test_a_refused_feature_leaves_the_history_as_it_was():
    jobs, history = make_log(20), History(stand_in={})
    with pytest.raises(LeakError):
        features_at(jobs, history, [Moment.SUBMIT], extra=[pl.col("elapsed_s")])
    again = features_at(jobs, history, [Moment.SUBMIT])[Moment.SUBMIT]
    np.testing.assert_array_equal(again.values, matrices(jobs)[Moment.SUBMIT].values)


def test_an_extra_feature_that_is_known_comes_in():
    jobs = make_log(20)
    extra = pl.col("job_name").str.len_chars().cast(pl.Float64).alias("request.name_length")
    found = features_at(jobs, History(), [Moment.SUBMIT], extra=[extra])[Moment.SUBMIT]
    assert column(found, "request.name_length") == jobs["job_name"].str.len_chars().to_list()


def test_telemetry_is_a_feature_at_two_minutes_only():
    found = matrices(make_log(50).with_columns(telemetry_iowait=pl.lit(0.25)))
    assert [("telemetry.iowait" in found[moment].names) for moment in MOMENTS] == [False, False, True]
    assert set(column(found[Moment.TWO_MINUTES], "telemetry.iowait")) == {0.25}


def test_the_allocation_stands_in_at_submission_only_where_no_job_has_a_request():
    jobs = make_log(50).with_columns(req_cpus=pl.lit(None, dtype=pl.Int64), cpus=pl.lit(8, dtype=pl.Int64))
    found = features_at(jobs, History(), [Moment.SUBMIT])[Moment.SUBMIT]
    assert set(column(found, "request.cpus")) == {np.float32(np.log1p(8.0))}
    one_says = jobs.with_columns(req_cpus=pl.when(pl.int_range(pl.len()) == 3).then(2).cast(pl.Int64))
    found = features_at(one_says, History(), [Moment.SUBMIT])[Moment.SUBMIT]
    assert np.isnan(column(found, "request.cpus")).sum() == 49


def test_each_moment_adds_to_the_one_before():
    found = matrices(make_log(30))
    names = [set(found[moment].names) for moment in MOMENTS]
    assert names[0] < names[1] == names[2]
    assert {group_of(name) for name in names[1] - names[0]} == {"start", "nodes"}
    for moment in MOMENTS:
        assert len(set(found[moment].names)) == len(found[moment].names) == found[moment].values.shape[1]
        assert found[moment].values.dtype == np.float32


def test_hours_are_those_of_the_site():
    jobs = made_jobs({"submit": 0})  # 08:00 UTC on a Monday
    assert column(matrices(jobs)[Moment.SUBMIT], "calendar.hour") == [8]
    assert column(matrices(jobs, time_zone="Asia/Tokyo")[Moment.SUBMIT], "calendar.hour") == [17]
    assert column(matrices(jobs)[Moment.SUBMIT], "calendar.day_of_week") == [1]


def test_features_now_are_those_of_the_sweep_at_submission():
    jobs = make_log(120, 2)
    history = History(stand_in={})
    history.sweep(known_at(jobs, jobs["submit_time"][119]))
    when = np.array([jobs["submit_time"][119].timestamp()])
    now = features_now(jobs.tail(1), history, Moment.SUBMIT, when)
    whole = matrices(jobs)[Moment.SUBMIT]
    assert now.names == whole.names
    np.testing.assert_array_equal(now.values[0], whole.values[119])


def test_features_now_are_those_of_the_sweep_at_the_start():
    jobs = made_jobs({"submit": 0, "req_cpus": 1}, {"submit": 10, "start": 20, "end": 900, "req_cpus": 64})
    history = History(stand_in={})
    history.take_in(jobs, "submit")
    now = features_now(jobs.tail(1), history, Moment.START, np.array([T0.timestamp() + 20]))
    np.testing.assert_array_equal(now.values[0], matrices(jobs)[Moment.START].values[1])


def test_the_first_reading_of_a_new_history_is_like_the_second():
    job, history = made_jobs({"submit": 0, "req_cpus": None, "cpus": 8}), History()
    first, second = (features_now(job, history, Moment.SUBMIT, np.array([0.0])).values for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_no_feature_is_infinite():
    jobs = made_jobs({"submit": 0, "start": 1, "end": 999, "req_cpus": 0, "cpus": 4, "req_mem_bytes": 1 << 30})
    for matrix in matrices(jobs).values():
        assert not np.isinf(matrix.values).any()


def test_rows_are_the_same_features_of_some_jobs():
    found = matrices(make_log(10))[Moment.SUBMIT]
    some = found.rows(np.array([2, 5]))
    assert some.names == found.names and some.moment is found.moment
    np.testing.assert_array_equal(some.values, found.values[[2, 5]])


def test_no_jobs_are_an_empty_matrix():
    for moment, matrix in matrices(make_log(10).head(0)).items():
        assert matrix.values.shape == (0, len(matrix.names)) and matrix.moment is moment

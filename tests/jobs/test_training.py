"""Training: labels, rows that count, and a threshold that is chosen out of time."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs import training
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.profiles import fit_request_profiles
from stormpetrel.jobs.training import TrainingSettings, fit_at, fit_risk_at, label_jobs, out_of_time, out_of_time_risks, train
from stormpetrel.learn.splits import INNER_CUTS
from tests.jobs.logs import known_at, make_log, one_thread

QUICK = TrainingSettings(rounds=5)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def log():
    return make_log(500, 1, unfinished=0.03)


@pytest.fixture(scope="module")
def labelled(log):
    return label_jobs(log, QUICK)


def test_jobs_are_sorted_and_each_has_its_label(log, labelled):
    shuffled = label_jobs(log.sample(fraction=1.0, shuffle=True, seed=3), QUICK)
    assert shuffled.jobs["job_id"].equals(labelled.jobs["job_id"])
    for moment in MOMENTS:
        np.testing.assert_array_equal(shuffled.features[moment].values, labelled.features[moment].values)
    assert labelled.failed.tolist() == labelled.jobs["state"].is_in(["FAILED", "TIMEOUT", "OUT_OF_MEMORY"]).to_list()


def test_only_ended_jobs_in_a_state_that_counts_are_usable(log):
    labelled = label_jobs(log, TrainingSettings(dropped_states=("CANCELLED",)))
    assert labelled.usable.tolist() == labelled.jobs["state"].is_in(["RUNNING", "CANCELLED"]).not_().to_list()


def test_a_moment_is_reached_by_jobs_that_lived_to_see_it(labelled):
    jobs = labelled.jobs
    run_s = (jobs["end_time"] - jobs["start_time"]).dt.total_seconds()
    assert (labelled.reached(Moment.SUBMIT) == labelled.usable).all()
    assert labelled.reached(Moment.START).tolist() == (labelled.usable & jobs["start_time"].is_not_null().to_numpy()).tolist()
    assert labelled.reached(Moment.TWO_MINUTES).tolist() == (labelled.usable & (run_s > 120).fill_null(False).to_numpy()).tolist()


def test_short_jobs_are_left_out_where_that_is_asked_for(log):
    labelled = label_jobs(log, TrainingSettings(min_run_s=120))
    assert (labelled.jobs["elapsed_s"].to_numpy()[labelled.usable] >= 120).all()


def test_a_log_without_requests_says_what_stands_in_for_them(log):
    assert label_jobs(log, QUICK).notes == ()
    without = log.with_columns(req_cpus=pl.lit(None, dtype=pl.Int64))
    (note,) = label_jobs(without, QUICK).notes
    assert "no requested cpus" in note


def test_features_before_a_cut_are_those_of_the_log_as_it_was_then():
    jobs = make_log(500, 1, days=0.2, unfinished=0.03)  # dense: many jobs run across the cut
    now = jobs["submit_time"][350]
    profiles = fit_request_profiles(jobs.head(300))
    then = known_at(jobs, now)
    whole = label_jobs(jobs, QUICK, [Moment.SUBMIT], profiles=profiles)
    cut = label_jobs(then, QUICK, [Moment.SUBMIT], profiles=profiles)
    np.testing.assert_array_equal(whole.features[Moment.SUBMIT].values[: then.height], cut.features[Moment.SUBMIT].values)


def test_out_of_time_forecasts_come_from_what_had_ended_before(labelled):
    asked = []

    def forecast(known, test):
        asked.append((known, test))
        return np.zeros(int(test.sum()))

    rows = labelled.reached(Moment.SUBMIT)
    truth, said = out_of_time(labelled, rows, forecast)
    assert len(asked) == len(INNER_CUTS) and truth.size == said.size == sum(int(test.sum()) for _, test in asked)
    for known, test in asked:
        assert labelled.end[known].max() < labelled.submit[test].min()
        assert not (known & test).any() and not ((known | test) & ~rows).any()


def test_the_threshold_is_chosen_from_the_rows_it_is_given_only(labelled, monkeypatch):
    rows = labelled.reached(Moment.SUBMIT) & (np.arange(500) < 350)
    seen = []

    def spy(labelled, moment, chosen, settings):
        seen.append(chosen)
        return fit_risk_at(labelled, moment, chosen, settings)

    monkeypatch.setattr(training, "fit_risk_at", spy)
    truth, _ = out_of_time_risks(labelled, Moment.SUBMIT, rows, QUICK)
    assert len(seen) == 2 and not any((chosen & ~rows).any() for chosen in seen)
    assert 0 < truth.size < rows.sum()


def test_a_slice_with_one_class_is_skipped(labelled):
    def forecast(known, test):
        raise NotEnoughJobsError("too few")

    truth, said = out_of_time(labelled, labelled.usable, forecast)
    assert truth.size == said.size == 0
    few = labelled.usable & (np.arange(500) < 30)
    assert out_of_time_risks(labelled, Moment.SUBMIT, few, QUICK)[0].size < few.sum()


def test_a_model_that_is_asked_for_the_risk_only_says_the_same_risk(labelled):
    rows, features = labelled.reached(Moment.SUBMIT), labelled.features[Moment.SUBMIT]
    whole, risk_only = (fit(labelled, Moment.SUBMIT, rows, QUICK) for fit in (fit_at, fit_risk_at))
    assert risk_only.risk(features).tolist() == whole.risk(features).tolist()
    assert whole.outcomes_ and not risk_only.outcomes_


def test_very_many_rows_are_cut_to_the_most_recent(labelled):
    model = fit_at(labelled, Moment.SUBMIT, labelled.usable, TrainingSettings(rounds=2, most_rows=100))
    assert model.n_train_ == 100


def test_a_model_for_each_moment_says_what_it_was_made_from(log):
    models, labelled = train(log, QUICK, [Moment.SUBMIT, Moment.TWO_MINUTES], metadata={"table_version": 7})
    assert set(models) == {Moment.SUBMIT, Moment.TWO_MINUTES}
    for moment, model in models.items():
        assert model.n_train_ == labelled.reached(moment).sum()
        assert model.metadata["table_version"] == 7 and model.metadata["stand_in"] == {}
        assert 0.0 < model.threshold < 1.0


@pytest.mark.parametrize("frame", ["none", "ten of one class", "nothing ended"])
def test_too_little_to_learn_from_is_one_clear_sentence(log, frame):
    jobs = {
        "none": log.head(0),
        "ten of one class": log.head(10).with_columns(state=pl.lit("COMPLETED")),
        "nothing ended": log.with_columns(state=pl.lit("RUNNING")),
    }[frame]
    with pytest.raises(NotEnoughJobsError, match="ended jobs, 0 of them failed") as caught:
        train(jobs, QUICK)
    assert "\n" not in str(caught.value)


def test_a_job_that_asked_for_no_cpu_does_not_stop_the_training(log):
    odd = log.with_columns(req_cpus=pl.when(pl.col("job_id") == 1005).then(0).otherwise("req_cpus"))
    train(odd, QUICK, [Moment.START])

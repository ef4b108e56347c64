"""Evaluation: honest time, figures that other programs can read, and errors in one sentence."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import NotEnoughJobsError, StormpetrelError
from stormpetrel.jobs.exam import evaluation
from stormpetrel.jobs.exam.evaluation import MODEL, evaluate, refit_weekly
from stormpetrel.jobs.model import FEWEST_OF_AN_OUTCOME
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.training import TrainingSettings, out_of_time
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.learn.working_point import Costs
from stormpetrel.records.jobs import never_started
from tests.jobs.logs import make_log, one_thread

QUICK = TrainingSettings(rounds=5)
# What DESIGN says under "What --json prints".
TOP = {"split", "at", "table1", "seconds"}
MOMENT = {"model", "baselines", "outcomes"}
FIGURES = {
    *("roc_auc", "pr_auc", "f1", "precision", "recall", "brier", "ece"),
    *("threshold", "n_train", "n_test", "failed_share"),
}
BASELINES = {"last_outcome", "user_rate", "xgboost"}
# What is printed beyond that.
MORE = {"notes", "optimistic"}
MORE_OF_A_MOMENT = {"calibration", "spread", "same_jobs"}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def log():
    return make_log(600, 1, failures=("FAILED", "TIMEOUT"))


@pytest.fixture(scope="module")
def whole(log):
    return evaluate(log, QUICK)


def evaluate_rolling(log):
    """Five cuts at submission, without the baseline that takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(evaluation.BASELINES, "xgboost")
        return evaluate(log, QUICK, moments=[Moment.SUBMIT], protocol="rolling")


@pytest.fixture(scope="module")
def rolling(log):
    return evaluate_rolling(log)


@pytest.fixture(scope="module")
def printed(whole):
    return json.loads(json.dumps(whole.as_json(), allow_nan=False))


def test_the_json_has_the_keys_of_the_design_and_no_others_than_these(printed):
    assert set(printed) == TOP | MORE
    assert set(printed["at"]) == {"submit", "start", "2min"}
    for figures in printed["at"].values():
        assert set(figures) == MOMENT | MORE_OF_A_MOMENT
        assert set(figures["model"]) == FIGURES
        assert set(figures["baselines"]) == BASELINES
        assert all(set(one) == FIGURES for one in (*figures["baselines"].values(), *figures["outcomes"].values()))
    assert {"FAILED"} <= set(printed["at"]["submit"]["outcomes"]) <= {"FAILED", "TIMEOUT"}


def test_recalibration_stands_beside_the_model_of_each_moment_where_it_was_asked_for(log):
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(evaluation.BASELINES, "xgboost")
        at = evaluate(log, QUICK, moments=[Moment.SUBMIT, Moment.START], recalibrate=Costs(flags_per_day=3.0)).as_json()["at"]
    for moment in at.values():
        assert {"f1", "ece", "flags_per_day"} <= set(moment["recalibrated"])
        assert moment["recalibrated"]["flags_per_day"]["promised"] == pytest.approx(3.0)


def test_recalibration_leaves_the_figures_of_the_model_as_they_were(log, printed):
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(evaluation.BASELINES, "xgboost")
        again = evaluate(log, QUICK, moments=[Moment.SUBMIT], recalibrate=Costs()).as_json()
    assert again["at"]["submit"]["model"] == printed["at"]["submit"]["model"]


def test_figures_are_those_of_the_pooled_forecasts(whole, printed):
    for moment in MOMENTS:
        result = whole.at[moment]
        figures = printed["at"][str(moment)]["model"]
        assert figures["roc_auc"] == pytest.approx(roc_auc(result.truth, result.probability()))
        flagged = result.probability() >= result.models[0].threshold
        assert figures["precision"] == pytest.approx(result.truth[flagged].mean() if flagged.any() else 0.0)
        assert figures["recall"] == pytest.approx(flagged[result.truth].mean())
        assert figures["n_test"] == result.truth.size and figures["failed_share"] == pytest.approx(result.truth.mean())


def test_earlier_moments_are_judged_on_the_same_jobs_beside_the_later_ones(whole, printed):
    assert set(printed["at"]["2min"]["same_jobs"]) == {"submit", "start"}
    assert printed["at"]["submit"]["same_jobs"] == {}
    for figures in printed["at"]["2min"]["same_jobs"].values():
        assert figures["n_test"] == printed["at"]["2min"]["model"]["n_test"] < printed["at"]["submit"]["model"]["n_test"]
    assert set(whole.at[Moment.TWO_MINUTES].rows) <= set(whole.at[Moment.START].rows)


def test_two_minutes_are_judged_among_jobs_that_still_ran(whole):
    jobs = whole.labelled.jobs[whole.at[Moment.TWO_MINUTES].rows]
    assert ((jobs["end_time"] - jobs["start_time"]).dt.total_seconds() > 120).all()


def test_outcomes_are_judged_where_the_test_part_has_enough_of_them(whole):
    for name, truth in whole.at[Moment.SUBMIT].outcome_truth.items():
        states = whole.labelled.jobs["state"][whole.at[Moment.SUBMIT].rows]
        assert truth.sum() == (states == name).sum() >= FEWEST_OF_AN_OUTCOME


def test_no_training_row_ends_at_or_after_its_cut(rolling):
    assert len(rolling.splits) == 5
    for split in rolling.splits:
        assert rolling.labelled.end[split.train].max() < split.cut <= rolling.labelled.submit[split.test].min()
    rows = rolling.at[Moment.SUBMIT].rows
    assert len(set(rows)) == len(rows) == sum(int(split.test.sum()) for split in rolling.splits)


def test_thresholds_are_never_computed_from_test_rows(log, monkeypatch):
    asked = []

    def spy(labelled, rows, fit):
        asked.append(rows)
        return out_of_time(labelled, rows, fit)

    of_the_model = evaluation._model_thresholds

    def spy_on_the_model(labelled, moment, train, settings):
        asked.append(train)
        return of_the_model(labelled, moment, train, settings)

    monkeypatch.setattr(evaluation, "out_of_time", spy)
    monkeypatch.setattr(evaluation, "_model_thresholds", spy_on_the_model)
    found = evaluate(log, QUICK, moments=[Moment.SUBMIT])
    (split,) = found.splits
    assert len(asked) == 1 + len(BASELINES)
    assert not any((rows & ~split.train).any() for rows in asked)


def flipped(log, rows):
    """The log with the opposite outcome in some rows; what never started has none."""
    rows = rows & ~never_started()
    other = pl.when(pl.col("state") == "COMPLETED").then(pl.lit("FAILED")).otherwise(pl.lit("COMPLETED"))
    return log.with_columns(state=pl.when(rows).then(other).otherwise("state"))


def test_labels_after_the_last_cut_change_nothing_before_it(log, rolling):
    last = rolling.splits[-1].cut
    changed = flipped(log, pl.col("submit_time").dt.epoch("us") >= last * 1e6)
    again = evaluate_rolling(changed)
    one, other = rolling.at[Moment.SUBMIT], again.at[Moment.SUBMIT]
    for name in one.forecasts:
        assert one.forecasts[name].thresholds == other.forecasts[name].thresholds
        for ours, theirs in zip(one.forecasts[name].probability[:-1], other.forecasts[name].probability[:-1], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    first_after = one.forecasts[MODEL].probability[-1][0], other.forecasts[MODEL].probability[-1][0]
    assert first_after[0] == first_after[1]
    assert not np.array_equal(one.truth, other.truth)


def test_a_log_of_chance_is_not_foretold(log):
    rng = np.random.default_rng(0)
    chance = log.with_columns(state=pl.Series(np.where(rng.random(log.height) < 0.4, "FAILED", "COMPLETED")))
    chance = chance.with_columns(user=pl.lit("ada"), job_name=pl.lit("fit"), elapsed_s=pl.lit(600.0))
    for figures in evaluate(chance, QUICK, moments=[Moment.SUBMIT, Moment.START]).as_json()["at"].values():
        assert figures["model"]["roc_auc"] < 0.65


def test_since_leaves_earlier_jobs_out_altogether(log):
    since = log["submit_time"][300]
    found = evaluate(log, QUICK, moments=[Moment.SUBMIT], since=since.timestamp())
    assert found.labelled.jobs["submit_time"].min() == since
    assert found.as_json()["split"]["jobs"] == 300


def test_weekly_refits_forecast_every_job_after_the_first_cut_once(whole):
    table = refit_weekly(whole.labelled, Moment.SUBMIT, QUICK)
    first = np.quantile(whole.labelled.submit[whole.labelled.usable], 0.6)
    assert table.height == (whole.labelled.submit[whole.labelled.usable] >= first).sum()
    assert table["week"].is_sorted() and table.filter(week=0)["once"].equals(table.filter(week=0)["weekly"].alias("once"))


@pytest.mark.parametrize("protocol", ["time", "rolling"])
@pytest.mark.parametrize("n", [0, 1, 10])
def test_a_handful_of_jobs_of_one_class_is_one_clear_sentence(log, n, protocol):
    jobs = log.head(n).with_columns(state=pl.lit("COMPLETED"))
    with pytest.raises(NotEnoughJobsError, match=f"{n} ended jobs, 0 of them failed") as caught:
        evaluate(jobs, QUICK, protocol=protocol)
    assert "\n" not in str(caught.value) and caught.value.hint


def test_a_moment_that_no_test_job_reaches_has_null_figures(log):
    late = pl.col("submit_time") > log["submit_time"][400]
    short = log.with_columns(end_time=pl.when(late).then(pl.col("start_time") + pl.duration(seconds=5)).otherwise("end_time"))
    printed = evaluate(short, QUICK, moments=[Moment.TWO_MINUTES]).as_json()
    assert json.loads(json.dumps(printed, allow_nan=False))["at"]["2min"]["model"]["roc_auc"] is None


@pytest.mark.parametrize("protocol", ["seed", "tiem"])
def test_a_protocol_that_is_not_known_here_is_named(log, protocol):
    with pytest.raises(StormpetrelError, match=protocol):
        evaluate(log.head(50), QUICK, protocol=protocol)


def test_profiles_are_made_before_the_first_cut(log, monkeypatch):
    ended = pl.int_range(pl.len()) < 300  # a log that is mostly about jobs that have not ended yet
    jobs = log.with_columns(state=pl.when(ended).then("state").otherwise(pl.lit("PENDING")))
    latest = []
    fit = evaluation.label_jobs.__globals__["fit_request_profiles"]

    def spy(early, **options):
        latest.append(early["submit_time"].max().timestamp())
        return fit(early, **options)

    monkeypatch.setitem(evaluation.label_jobs.__globals__, "fit_request_profiles", spy)
    found = evaluate(jobs, QUICK, moments=[Moment.SUBMIT])
    assert latest[0] < found.splits[0].cut


def test_a_log_of_short_jobs_is_judged_at_the_moments_that_they_reach_and_says_which_not(log):
    short = log.with_columns(end_time=pl.min_horizontal("end_time", pl.col("start_time") + pl.duration(seconds=60)))
    found = evaluate(short, QUICK)
    assert list(found.at) == [Moment.SUBMIT, Moment.START]
    assert any("No job of this log is known to have reached the moment '2min'" in note for note in found.notes)


def test_moments_in_processes_give_what_one_process_gives(log, whole):
    steps = []
    apart = evaluate(log, QUICK, moments=[Moment.SUBMIT, Moment.START], progress=steps.append, engine=Engine(2)).as_json()
    alone = whole.as_json()
    assert apart["at"] == {moment: alone["at"][moment] for moment in ("submit", "start")}
    assert {"submit: cut 1 of 1", "start: cut 1 of 1"} <= {step.partition(" · ")[0] for step in steps}  # behind it: CPU time


@pytest.mark.slow
def test_weeks_in_processes_give_what_one_process_gives(whole):
    alone, apart = (refit_weekly(whole.labelled, Moment.SUBMIT, QUICK, engine=Engine(workers)) for workers in (1, 2))
    assert apart.equals(alone)


def test_an_error_names_the_moment_and_the_cut(log, monkeypatch):
    def out_of_memory(*_):
        raise StormpetrelError("No memory is left.")

    monkeypatch.setattr(evaluation, "_model_thresholds", out_of_memory)
    with pytest.raises(StormpetrelError, match=r"^submit: cut 1 of 1: No memory is left\.$"):
        evaluate(log, QUICK, moments=[Moment.SUBMIT, Moment.START])

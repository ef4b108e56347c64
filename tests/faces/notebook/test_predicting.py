from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.faces.notebook import load_jobs, predict, prepare_jobs
from stormpetrel.faces.notebook.loading import job_text
from stormpetrel.faces.notebook.predicting import COLUMNS, judge_jobs
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.records.jobs import KEY
from stormpetrel.simulate.writing import write_sacct
from tests.faces.notebook.hostile import assert_is_text, made_hostile


@pytest.fixture(scope="module")
def details(model, jobs):
    return predict(model, jobs, details=True)


def test_the_table_has_exactly_the_five_columns(model, jobs, details):
    table = predict(model, jobs)
    assert table.columns == ["Job ID", "User ID", "Start Time", "Risk (%)", "Flagged"]
    assert table.equals(details.select(COLUMNS))
    assert table.height == len(jobs)
    assert set(table["Flagged"]) == {True, False}


def test_confidence_is_the_probability_of_the_predicted_class(details):
    for row in details.iter_rows(named=True):
        fails = row["Risk"] >= row["Threshold"]
        assert row["Prediction"] == ("Fail" if fails else "Complete")
        assert row["Confidence"] == pytest.approx(100 * (row["Risk"] if fails else 1 - row["Risk"]), abs=0.006)


def test_jobs_come_in_the_order_of_submission(details):
    assert details["Submit Time"].is_sorted()


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_is_said_is_what_the_live_stream_says(model, jobs, streamed, moment):
    live = streamed.filter(pl.col("moment") == str(moment)).select(*KEY, live="risk")
    ours = judge_jobs(model, jobs, moments=[moment])
    both = ours.join(live, on=list(KEY), how="inner", nulls_equal=True)
    assert both.height == ours.height > 100
    assert both.select((pl.col("risk") - pl.col("live")).abs().max()).item() < 1e-6


def test_what_happens_later_changes_nothing_that_was_said_before(model, jobs):
    then = jobs.frame["submit_time"][jobs.frame.height // 2]
    at_that_time = replace(jobs, frame=known_by(jobs.frame, then), as_of=then)
    for moment in MOMENTS:
        before = judge_jobs(model, at_that_time, moments=[moment]).select(*KEY, before="risk")
        after = judge_jobs(model, jobs, moments=[moment]).select(*KEY, after="risk")
        both = before.join(after, on=list(KEY), how="inner", nulls_equal=True)
        assert both.height == before.height > 50
        assert both["before"].equals(both["after"], check_names=False)


def test_a_job_is_judged_at_the_latest_moment_that_it_has_reached(jobs, details):
    by_id = {row["Job ID"]: row for row in details.iter_rows(named=True)}
    for job in jobs.frame.filter(pl.col("array_task").is_null()).iter_rows(named=True):
        moment = by_id[str(job["job_id"])]["Moment"]
        if job["start_time"] is None:
            assert moment == "submit"
        elif (job["end_time"] or jobs.as_of) - job["start_time"] > timedelta(minutes=2):
            assert moment == "2min"
        else:
            assert moment == "start"


def test_two_minutes_that_are_not_over_yet_are_not_judged(model, jobs):
    running = jobs.frame.filter(pl.col("state") == "RUNNING")
    begun = running["start_time"].max()
    soon = replace(jobs, as_of=begun + timedelta(seconds=30))
    latest = judge_jobs(model, soon, moments=MOMENTS).filter(pl.col("start_time") == begun)
    assert latest["moment"].to_list() == ["start"] * latest.height
    assert latest.height > 0


def test_one_moment_may_be_asked_for(model, jobs):
    table = predict(model, jobs, at="submit", details=True)
    assert set(table["Moment"]) == {"submit"}
    assert table.height == len(jobs)


def test_a_moment_that_is_none_is_refused(model, jobs):
    with pytest.raises(UsageError, match="Known: submit, start, 2min"):
        predict(model, jobs, at="end")


def test_a_moment_without_a_model_says_how_to_train_it(model, jobs):
    predictor = model.predictor
    kept = dict(predictor.models)
    predictor.models = {Moment.SUBMIT: kept[Moment.SUBMIT]}
    try:
        with pytest.raises(ModelError, match="no model for '2min'"):
            predict(model, jobs, at="2min")
        assert set(predict(model, jobs, details=True)["Moment"]) == {"submit"}
    finally:
        predictor.models = kept


def test_jobs_that_preparation_dropped_are_not_judged_but_count_as_past(model, jobs, details):
    prepared = prepare_jobs(jobs, min_run_s=120)
    table = predict(model, prepared, details=True)
    assert table.height == len(prepared) < len(jobs)
    both = table.join(details, on=["Job ID", "Submit Time"], suffix="_all")
    assert both.height == table.height
    assert both["Risk"].equals(both["Risk_all"], check_names=False)


def test_some_rows_of_a_frame_are_judged_with_everybodys_past(model, jobs, details):
    user = jobs.frame["user"].mode()[0]
    table = predict(model, jobs.frame.filter(pl.col("user") == user), details=True)
    expected = details.filter(pl.col("User ID") == user)
    assert table.height == expected.height
    ended = table.join(expected, on=["Job ID", "Submit Time", "Moment"], suffix="_all")
    assert ended.height > 0.9 * table.height  # a job that still runs may not have seen its last moment in a frame of its own
    assert ended["Risk"].equals(ended["Risk_all"], check_names=False)


def test_a_log_of_the_site_is_judged_like_the_site_itself(model, jobs, details, tmp_path):
    ended = jobs.frame.filter(pl.col("end_time").is_not_null())
    write_sacct([ended], tmp_path / "sacct.txt")
    log = load_jobs(tmp_path / "sacct.txt", cluster="another-name")
    table = predict(model, log, details=True).join(details, on=["Job ID", "Submit Time"], suffix="_site")
    assert table.height == ended.height
    assert (table["Risk"] - table["Risk_site"]).abs().max() < 1e-6  # each job counted once, whatever its cluster is called


def test_the_model_says_which_jobs_it_has_learnt_from(practice_site, model, details):
    assert not details["Learnt From"].any()
    everything = predict(model, load_jobs(practice_site), details=True)
    learnt = everything.filter("Learnt From")
    assert 0 < learnt.height < everything.height
    assert learnt["Submit Time"].max() < model.trained_until


def test_whether_a_job_failed_is_unknown_while_it_runs(jobs, details):
    running = jobs.frame.filter(pl.col("state").is_in(["RUNNING", "PENDING"])).select(job_text()).to_series()
    assert details.filter(pl.col("Job ID").is_in(running.implode()))["Failed"].null_count() == running.len()
    assert details["Failed"].sum() > 0


def test_no_jobs_make_an_empty_table(model, jobs):
    assert predict(model, replace(jobs, frame=jobs.frame.clear())).columns == list(COLUMNS)


def test_progress_is_told_up_to_the_end(model, jobs):
    shares: list[float] = []
    predict(model, jobs, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0) and len(shares) == 4


def test_hostile_names_do_not_break_out_of_the_table(model, jobs):
    html = predict(model, replace(jobs, frame=made_hostile(jobs.frame)))._repr_html_()
    assert "&lt;img" in html and "<img" not in html
    assert_is_text(html.replace("<small>", "").replace("</small>", ""))

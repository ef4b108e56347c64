"""Figures of waste."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.figures.waste import cancel_policy_figure, label, waste_by_group_figure, waste_by_week_figure
from stormpetrel.jobs.cancel_policy import cancel_curve
from stormpetrel.jobs.waste import ledger
from stormpetrel.records.jobs import job_frame
from tests.builders import T0


def some_jobs(n=60, state="FAILED"):
    return job_frame(
        [
            {
                "job_id": k, "user": f"user{k % 20}", "state": state if k % 3 else "TIMEOUT" if state == "FAILED" else state,
                "end_time": T0 + timedelta(weeks=k % 4), "elapsed_s": 3600.0, "cpus": 1 + k % 20,
            }
            for k in range(n)
        ]
    )  # fmt: skip


def some_risks():
    return pl.DataFrame({"risk": [0.9, 0.6, 0.2], "failed": [True, False, False], "elapsed_s": [7320.0] * 3, "cpus": [4, 1, 1]})


def texts(figure):
    return [note.text for note in figure.layout.annotations]


def test_every_axis_has_a_title_with_its_unit():
    by_week = waste_by_week_figure(ledger(some_jobs(), by=["week"]))
    policy = cancel_policy_figure(cancel_curve(some_risks()))
    assert by_week.layout.yaxis.title.text == "core-hours lost"
    assert by_week.layout.yaxis2.title.text.endswith("(%)")
    assert policy.layout.yaxis.title.text == "core-hours"
    assert policy.layout.xaxis.title.text and policy.layout.yaxis2.title.text.endswith("(%)")


def test_the_weekly_bars_add_up_to_the_loss_whatever_their_layers():
    jobs = some_jobs()
    total = ledger(jobs, by=[])["lost_core_seconds"].item() / 3600
    for by in (["week"], ["week", "outcome"]):
        figure = waste_by_week_figure(ledger(jobs, by=by))
        assert sum(sum(trace.y) for trace in figure.data if trace.type == "bar") == pytest.approx(total)


def test_outcomes_are_layers_named_in_plain_words():
    figure = waste_by_week_figure(ledger(some_jobs(), by=["week", "outcome"]))
    assert {trace.name for trace in figure.data if trace.type == "bar"} == {"crash", "time-out"}


def test_at_most_fifteen_groups_are_drawn_with_the_largest_on_top():
    figure = waste_by_group_figure(ledger(some_jobs(), by=["user"]))
    bars = figure.data[0]
    assert len(bars.x) == 15
    assert list(bars.x) == sorted(bars.x, reverse=True)
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.layout.yaxis.ticktext[0] == "user19"


def test_two_long_names_that_look_alike_stay_two_bars():
    rows = [
        {"job_id": k, "user": "x" * 60 + str(k), "state": "FAILED", "end_time": T0, "elapsed_s": 3600.0, "cpus": 1}
        for k in range(2)
    ]
    figure = waste_by_group_figure(ledger(job_frame(rows), by=["user"]))
    assert len(set(figure.data[0].y)) == 2


def test_markup_in_a_name_is_shown_and_not_obeyed():
    assert label("<b>ann</b>") == "&lt;b&gt;ann&lt;/b&gt;"


def test_the_best_threshold_is_marked():
    curve = cancel_curve(some_risks())
    figure = cancel_policy_figure(curve)
    assert [shape.x0 for shape in figure.layout.shapes] == [curve.best.tau]
    assert "best τ = 0.600" in figure.layout.title.subtitle.text


def test_the_figure_says_so_where_cancelling_does_not_pay():
    curve = cancel_curve(some_risks().with_columns(failed=pl.lit(False)))
    assert "cancel nothing" in cancel_policy_figure(curve).layout.title.subtitle.text


def test_nothing_to_draw_is_a_sentence_and_not_an_error():
    empty = job_frame([])
    assert texts(waste_by_week_figure(ledger(empty, by=["week"]))) == ["No job has ended yet."]
    assert texts(waste_by_group_figure(ledger(empty, by=["user"]))) == ["No core-hours were lost."]
    assert texts(cancel_policy_figure(cancel_curve(some_risks().clear()))) == ["No job was still running after 2 minutes."]


def test_a_log_without_failures_or_without_ends_is_drawn():
    assert texts(waste_by_group_figure(ledger(some_jobs(state="COMPLETED"), by=["user"]))) == ["No core-hours were lost."]
    waste_by_week_figure(ledger(some_jobs(state="COMPLETED"), by=["week", "outcome"])).to_json()
    without_end = some_jobs().with_columns(end_time=pl.lit(None, pl.Datetime("us", "UTC")))
    assert texts(waste_by_week_figure(ledger(without_end, by=["week"]))) == ["No job has ended yet."]

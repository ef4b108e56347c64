from __future__ import annotations

import json
from dataclasses import replace
from math import exp
from typing import Any

import polars as pl
import pytest

from stormpetrel.answers.jobs.one_job import advice_answer
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.faces.notebook import look_into, predict, prepare_jobs
from stormpetrel.faces.notebook.waterfall import PLOTLY_MIME
from stormpetrel.jobs.advice.advice import Advice
from stormpetrel.jobs.moments import Moment
from tests.faces.notebook.hostile import HOSTILE, assert_is_text, made_hostile


def ran_out(jobs) -> list[str]:
    """Jobs that ran out of time or memory, one of each kind: their advice is a change of the request."""
    some = jobs.frame.filter(pl.col("state").is_in(["TIMEOUT", "OUT_OF_MEMORY"]), pl.col("array_task").is_null())
    return some.unique(["user", "job_name"], keep="last", maintain_order=True)["job_id"].cast(pl.String).to_list()


@pytest.fixture(scope="module")
def insight(model, jobs):
    return look_into(model, jobs, ran_out(jobs)[0])


def test_the_row_is_that_of_the_table(model, jobs):
    table = predict(model, jobs)
    for number in (0, jobs.frame.height // 2, jobs.frame.height - 1):
        assert look_into(model, jobs, table["Job ID"][number]).row.equals(table[number])


def test_reasons_add_up_to_the_risk(insight):
    for verdict in insight.verdicts:
        odds = verdict.base + sum(reason.contribution for reason in verdict.reasons)
        assert 1 / (1 + exp(-odds)) == pytest.approx(verdict.risk, abs=1e-4)


def test_the_moments_come_in_the_order_of_life(insight):
    moments = [verdict.moment for verdict in insight.verdicts]
    assert moments[0] == Moment.SUBMIT and moments == list(Moment)[: len(moments)]


def test_a_job_that_ran_out_is_told_what_to_ask_for_next(insight):
    assert insight.next_request is not None and insight.changes[0] is insight.next_request
    html = insight._repr_html_()
    for piece in (insight.next_request, *insight.advice):
        assert piece.sentence in html
    assert "Next time: Ask for" in html and all(text in html for text in insight.next_request.evidence)


def test_following_the_advice_lowers_the_risk_of_some_job(model, jobs):
    changes = [piece for job_id in ran_out(jobs)[:4] for piece in look_into(model, jobs, job_id).changes]
    assert any(piece.risk_after is not None and piece.risk_after < piece.risk_before for piece in changes)


def test_what_is_shown_names_risk_reasons_profile_and_advice(insight):
    html = insight._repr_html_()
    assert insight.verdict.reasons[0].words.replace("'", "&#x27;") in html
    assert "Risk of failing: at submission" in html and insight.profile in html
    assert html.index("Risk of failing") < html.index("average job") < html.index("Advice")
    bundle = insight._repr_mimebundle_()
    assert bundle["text/html"] == html and insight.reasons[0] in bundle["text/plain"]


@pytest.fixture
def published(monkeypatch):
    """What a notebook would show."""
    outputs: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.publish_display_data", outputs.append)
    return outputs


def test_a_notebook_gets_a_figure_between_words(insight, published):
    insight._ipython_display_()
    above, figure, below = published
    assert figure[PLOTLY_MIME]["data"][0]["type"] == "waterfall"
    assert "average job" in figure["text/html"]  # for front ends that cannot draw
    assert "Risk of failing" in above["text/html"] and "Advice" in below["text/html"]


def test_what_preparation_gave_is_looked_into_like_what_was_loaded(model, jobs, insight):
    again = look_into(model, prepare_jobs(jobs), insight.row["Job ID"][0])
    assert again.row.equals(insight.row) and again.reasons == insight.reasons


def test_an_id_that_is_not_there_says_where_it_was_looked_for(model, jobs):
    with pytest.raises(NotThereError, match=f"no job 999999 among these {len(jobs):,} jobs"):
        look_into(model, jobs, 999999)


@pytest.mark.parametrize("text", ["", "abc", "12; drop table", HOSTILE])
def test_what_is_no_id_is_refused(model, jobs, text):
    with pytest.raises(UsageError, match="not a job id"):
        look_into(model, jobs, text)


def test_a_task_of_an_array_is_found_by_its_number(model, jobs):
    first = jobs.frame.sort("submit_time").head(1)
    tasks = pl.concat(
        [first.with_columns(array_task=pl.lit(task, dtype=pl.Int64), job_id=pl.lit(7_000_000, dtype=pl.Int64)) for task in (1, 2)]
    )
    several = replace(jobs, frame=pl.concat([jobs.frame, tasks]))
    assert look_into(model, several, "7000000_1").row["Job ID"].item() == "7000000_1"
    whole = look_into(model, several, 7000000)
    assert any("latest task of the array" in note for note in whole.notes)


def test_a_node_that_failed_is_not_blamed_on_the_request(model, jobs):
    broken = jobs.frame.with_columns(state=pl.lit("NODE_FAIL"))
    insight = look_into(model, replace(jobs, frame=broken), str(jobs.frame["job_id"][0]))
    assert any("A node failed under the job" in note for note in insight.notes)


def test_a_job_that_the_model_has_learnt_from_is_said_to_be_one(model, jobs, insight):
    older = replace(model, trained_until=jobs.as_of)
    again = look_into(older, jobs, insight.row["Job ID"][0])
    assert any("learnt from this very job" in note for note in again.notes)
    assert not any("learnt from" in note for note in insight.notes)


def test_hostile_names_are_shown_as_text(model, jobs, insight, published):
    hostile = look_into(model, replace(jobs, frame=made_hostile(jobs.frame)), insight.row["Job ID"][0])
    advice = Advice("partition", HOSTILE, HOSTILE, f"Use {HOSTILE}.", (HOSTILE,), 3, "kind", risk_before=0.5, risk_after=0.2)
    hostile = replace(hostile, advice=(advice_answer(advice),), notes=(HOSTILE,))
    hostile._ipython_display_()
    pages = [hostile._repr_html_(), *(output["text/html"] for output in published)]
    assert "&lt;img" in pages[0]
    for html in pages:
        assert_is_text(html)
    assert "<img" not in json.dumps(published[1][PLOTLY_MIME], default=str)

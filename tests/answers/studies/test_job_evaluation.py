"""How good forecasts would have been: the answer holds what the evaluation measured, and what else was asked for."""

from __future__ import annotations

import json

import pytest

from stormpetrel.answers.schemas.job_evaluation import EvaluationQuestion, JobEvaluation
from stormpetrel.answers.studies import job_evaluation
from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import JobsSection
from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees, put_jobs, steady_log


@pytest.fixture(scope="module")
def data():
    with one_thread(), few_trees():
        yield JobInput(steady_log(300), JobsSection(), "UTC", notes=("a note of the log",))


@pytest.fixture(scope="module")
def evaluated(data):
    return job_evaluation.evaluate_forecasts(data, EvaluationQuestion(moments=["submit", "start"]))


def test_the_answer_is_what_was_measured_with_the_notes_of_the_log(evaluated):
    answer, evaluation = evaluated
    measured = json.loads(json.dumps(evaluation.as_json()))
    unasked = {"notes": True, "refit": True, "at": {"__all__": {"recalibrated"}}}
    assert answer.model_dump(mode="json", exclude=unasked) == {
        name: figures for name, figures in measured.items() if name != "notes"
    }
    assert answer.notes == [*evaluation.notes, "a note of the log"]


def test_each_moment_stands_beside_the_trivial_rules_and_the_earlier_moments(evaluated):
    answer, _ = evaluated
    assert list(answer.at) == ["submit", "start"]
    assert {"last_outcome", "user_rate", "xgboost"} <= set(answer.at["submit"].baselines)
    assert list(answer.at["start"].same_jobs) == ["submit"]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_site_is_evaluated_with_similar_names_only_where_they_are_allowed(tmp_path, hidden):
    with make_site(tmp_path / "site", jobs={"similar_names": True}, store={"pseudonymise_users": hidden}) as site:
        put_jobs(site, steady_log(200))
        assert job_evaluation.jobs_of_site(site, LOCAL).training().similar_names is not hidden


def test_nothing_is_refitted_unless_it_is_asked_for(data, evaluated):
    assert evaluated[0].refit is None and evaluated[0].table1 == []
    answer, _ = job_evaluation.evaluate_forecasts(data, EvaluationQuestion(moments=["submit"], refit=True))
    assert answer.refit[-1].begin == "all"
    assert answer.refit[-1].jobs == sum(week.jobs for week in answer.refit[:-1])


def test_an_answer_survives_its_own_json(evaluated):
    answer, _ = evaluated
    assert JobEvaluation.model_validate_json(answer.model_dump_json()) == answer


def test_a_line_of_table_one_has_the_scores_of_both_classes_by_name():
    line = job_evaluation.table_line(SEED_TABLE_ONE["xgboost_active_learning"], "random")
    assert (line.split, line.title, line.part, line.jobs) == ("random", "XGBoost + active learning", "test", None)
    assert (line.precision_failed, line.recall_failed, line.f1_failed) == (0.78, 0.87, 0.82)
    assert (line.precision_completed, line.recall_completed, line.f1_completed) == (0.98, 0.97, 0.97)

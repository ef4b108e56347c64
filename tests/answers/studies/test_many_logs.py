"""Many logs, each by itself: the figures of each alone, by any number of workers, and those that are kept are not made again."""

from __future__ import annotations

import pytest

from stormpetrel.answers.schemas.job_evaluation import EvaluationQuestion
from stormpetrel.answers.studies.job_evaluation import evaluate_forecasts, jobs_of_files
from stormpetrel.answers.studies.many_logs import LogReading, evaluate_logs
from stormpetrel.config import JobsSection
from stormpetrel.engine import Engine
from stormpetrel.errors import NotThereError
from tests.builders import make_jobs, swf_document
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees

QUESTION = EvaluationQuestion(moments=["submit"])
READING = LogReading(JobsSection())


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    return [swf_document(make_jobs(160 + 20 * n, failed=60)).write(folder / f"{n}.swf") for n in range(3)]


@pytest.fixture(autouse=True)
def quick():
    with one_thread(), few_trees():
        yield


def figures(answer):
    content = answer.model_dump(mode="json")
    return {key: value for key, value in content.items() if key != "seconds"}


def test_each_log_has_the_figures_that_it_has_alone(logs):
    answers = evaluate_logs(logs, QUESTION, READING)
    assert list(answers) == [str(path) for path in logs]
    alone, _ = evaluate_forecasts(jobs_of_files([str(logs[1])]), QUESTION)
    assert figures(answers[str(logs[1])]) == figures(alone)


def test_a_kept_log_is_judged_again_only_when_it_has_changed(logs, tmp_path):
    told: list[str] = []
    first = evaluate_logs(logs[:2], QUESTION, READING, keep=tmp_path)
    logs[1].write_bytes(logs[1].read_bytes() + b"; a comment\n")
    again = evaluate_logs(logs[:2], QUESTION, READING, keep=tmp_path, progress=lambda _share, text: told.append(text))
    assert again[str(logs[0])] == first[str(logs[0])]  # to the seconds
    assert [text.split(" (")[0] for text in told if text.endswith("was done before")] == [str(logs[0])]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_missing_log_is_told_before_any_work(logs, tmp_path):
    with pytest.raises(NotThereError, match="no file"):
        evaluate_logs([logs[0], tmp_path / "none.swf"], QUESTION, READING, engine=Engine(2))

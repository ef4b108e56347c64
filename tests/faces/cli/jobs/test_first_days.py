"""`jobs evaluate --first-days` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.main import app
from tests.builders import T0, make_jobs, write_sacct
from tests.jobs.logs import one_thread


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Five days in which the jobs of one user fail every second time, those of the others seldom."""
    jobs = [
        replace(job, submit=T0 + timedelta(minutes=4 * k), state="FAILED" if k % 10 == 0 or k % 13 == 0 else "COMPLETED")
        for k, job in enumerate(make_jobs(2000))
    ]
    return write_sacct(tmp_path_factory.mktemp("log") / "jobs.txt", jobs)


def test_the_first_days_of_a_log_are_printed_and_given_as_json(log):
    words = ["jobs", "evaluate", str(log), "--first-days", "--starts", "2"]
    with one_thread():
        shown = CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False).output
        answer = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).output)
    assert "the prior: prior-1" in shown and "user's rate so far" in shown and "jobs.txt: 2,000 jobs" in shown
    (found,) = answer["logs"]
    assert [period["days"] for period in found["periods"]][:2] == [1, 3]
    first = found["periods"][0]
    assert answer["first_days"]["1"]["prior"] == {name: first[name]["prior"] for name in ("roc_auc", "log_loss")}
    assert first["roc_auc"]["prior"] == first["roc_auc"]["blend"] and f"{first['log_loss']['prior']:.3f}" in shown


def test_the_days_may_be_named_behind_the_option(log):
    words = ["jobs", "evaluate", str(log), "--first-days", "1,3", "--starts", "1", "--json"]
    with one_thread():
        answer = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)
    assert list(answer["first_days"]) == ["1", "3"]


def test_days_that_are_not_judged_are_refused_by_name(log):
    result = CliRunner().invoke(app, ["jobs", "evaluate", str(log), "--first-days", "1,2"])
    assert isinstance(result.exception, UsageError) and "The first 2 days are not judged" in str(result.exception)

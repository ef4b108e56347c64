"""A log without wait times can be learnt from, and every figure made of its history is said to be optimistic."""

import json

import pytest
from typer.testing import CliRunner

from stormpetrel.answers.history.model_quality import model_quality
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import Viewer
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs.exam.evaluation import evaluate
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.optimism import optimism
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from stormpetrel.sources.swf import write_swf
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.jobs.logs import make_log


@pytest.fixture(scope="module")
def swf(tmp_path_factory):
    """A log as the archive has some: a run time and −1 for the wait in every row."""
    path = tmp_path_factory.mktemp("swf") / "waitless.swf"
    write_swf(make_log(800, seed=3, never_started=0.0), path)
    lines = [line if line.startswith(";") else " ".join(_waitless(line.split())) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return path


def _waitless(words):
    return [*words[:2], "-1", *words[3:]]


@pytest.fixture(scope="module")
def jobs(swf):
    return read_log([str(swf)], None, ReadOptions()).jobs


def test_every_job_of_a_log_without_waits_has_an_end_and_is_counted(jobs):
    found = optimism(jobs)
    assert found is not None
    assert (found.jobs, found.ended) == (jobs.height, jobs.height)
    assert found.sentence.startswith("Optimistic: 800 of 800 ended jobs come without a wait time")


def test_a_log_with_waits_is_not_called_optimistic():
    assert optimism(make_log(50)) is None


def test_nobody_is_said_to_have_waited_where_the_log_does_not_tell(jobs):
    assert "wait_time_s" in prepare(jobs).absent


def test_the_forecast_at_submission_is_judged_and_the_moments_that_need_a_start_are_named(jobs):
    found = evaluate(jobs, TrainingSettings(rounds=20))
    told = found.as_json()
    assert list(found.at) == [Moment.SUBMIT]
    assert told["optimistic"]["jobs"] == 800
    assert [note for note in told["notes"] if "'start'" in note or "'2min'" in note]


def test_the_command_line_says_it_above_the_figures(swf):
    done = CliRunner().invoke(app, ["jobs", "evaluate", str(swf), "--at", "submit"])
    assert done.exit_code == 0, done.output
    before, _, after = done.output.partition("At submit")
    assert "Optimistic: 800 of 800" in before.replace("\n", " ")
    assert "Optimistic" not in after


def test_programs_are_told_under_a_key_of_its_own(swf):
    done = CliRunner().invoke(app, ["jobs", "evaluate", str(swf), "--at", "submit", "--json"])
    assert json.loads(done.output)["optimistic"]["rule"] == "end_without_wait"


@pytest.fixture(scope="module")
def site(swf, tmp_path_factory):
    """A site that has read the log, and what its ingest told."""
    folder = tmp_path_factory.mktemp("waitless") / "site"
    make_site(folder).close()
    done = CliRunner().invoke(app, ["--site", str(folder), "ingest", "jobs", str(swf), "--json"])
    return folder, json.loads(done.output)


def test_an_ingest_counts_the_ends_that_it_took(site):
    _, report = site
    assert report["warnings"] == {"end_without_wait": 800}
    assert "no wait time" in report["notes"][0]


def test_a_training_keeps_beside_its_figures_that_they_are_optimistic(site):
    folder, _ = site
    done = CliRunner().invoke(app, ["--site", str(folder), "jobs", "train", "--at", "submit", "--json"])
    assert done.exit_code == 0, done.output
    assert {entry["optimistic"]["jobs"] for entry in json.loads(done.output)} == {800}


def test_the_page_and_the_api_of_the_models_quality_say_so(site):
    folder, _ = site
    with open_site(folder) as opened:
        answer = model_quality(LiveSite(opened), Viewer("", is_admin=True))
    assert answer["optimistic"]["jobs"] == 800

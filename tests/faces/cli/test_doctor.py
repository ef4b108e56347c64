"""`stormpetrel doctor --repair`, and what the faces say of a site whose state is lost or whose models are of another version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.site.health import _model_line
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.main import app
from stormpetrel.faces.web.app import _missing
from stormpetrel.lifecycle.families import FAMILIES
from stormpetrel.store.site import open_site
from tests.lifecycle.test_recorded_models import resave
from tests.parts.command_line import complaint_of, run
from tests.parts.recorded_site import names, unpack_site


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = unpack_site(names()[-1], tmp_path_factory.mktemp("recorded"))
    open_site(folder).close()
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "site")
    return tmp_path / "site"


def cli(folder: Path, *words: str) -> str:
    """What a command prints, run in this process."""
    done = CliRunner().invoke(app, ["--site", str(folder), *words], env={"COLUMNS": "300"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def lose_state(folder: Path) -> None:
    for path in folder.glob("state.db*"):
        path.unlink()


def test_a_command_on_a_site_without_its_state_is_one_line_that_names_the_repair(folder):
    lose_state(folder)
    line = complaint_of(run(folder, "models", "list"))
    assert "state.db is missing" in line and "stormpetrel doctor --repair" in line


def test_the_repair_says_what_it_did_and_what_is_gone(folder):
    lose_state(folder)
    shown = cli(folder, "doctor", "--repair")
    for words in (
        "✓ A new state store was made",
        "1 tombstone lay",
        "jobs-2 is in use now",
        "! Tokens are gone",
        "copy of the old state",
    ):
        assert words in shown
    assert "in use" in cli(folder, "models", "list")


def test_the_repair_can_be_read_by_other_programs(folder):
    lose_state(folder)
    report = json.loads(cli(folder, "doctor", "--repair", "--json"))
    assert report["rebuilt"] and report["done"] and len(report["gone"]) == 3
    again = json.loads(cli(folder, "doctor", "--repair", "--json"))
    assert again == {"rebuilt": False, "done": [], "gone": []}


@pytest.mark.parametrize(("version", "words"), [(0, "to be trained again"), (99, "saved by a newer version")])
def test_the_list_of_models_says_which_cannot_be_read(folder, version, words):
    with open_site(folder) as site:
        for family in FAMILIES:
            resave(site, family, version=version)
        in_use = [site.models.current_training(family).name for family in FAMILIES]
    told = json.loads(cli(folder, "models", "list", "--json"))
    problems = {training["training"]: training["problem"] for training in told}
    assert all(words in problems[name] for name in in_use) and "jobs-1" not in in_use
    assert problems["jobs-1"] is None


@pytest.mark.parametrize(("version", "words"), [(0, "to be trained again"), (99, "newer version")])
def test_why_says_so_in_one_sentence_and_answers_the_rest(folder, version, words):
    with open_site(folder) as site:
        resave(site, "jobs", version=version)
        job = site.jobs.read_jobs().select("job_id").tail(1).collect().item()
        answer = explain_job(site, LOCAL, str(job), now=site.now())
    assert not answer.at and sum(words in note for note in answer.notes) == 1


@pytest.mark.parametrize(("version", "level", "words"), [(0, "warning", "trained again"), (99, "problem", "newer version")])
def test_a_server_is_ready_and_its_health_says_so(folder, version, level, words):
    with open_site(folder) as site:
        resave(site, "jobs", version=version)
        live = LiveSite(site)
        live.refresh()
        assert not _missing(live) and live.overview.frame.height
        line = _model_line(live, None)
        assert line.level == level and words in line.words
        with pytest.raises(type(live.model_problem)):
            live.predictor()


def test_the_doctor_says_so(folder):
    with open_site(folder) as site:
        resave(site, "jobs", version=0)
    findings = json.loads(cli(folder, "doctor", "--json"))["findings"]
    assert any(one["check"] == "models" and "to be trained again" in one["what"] for one in findings)

"""`stormpetrel models` and `stormpetrel nightly`: what they show, what they change, and what they refuse."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import ModelError, ModelFormatError, NotThereError
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle import family, retraining
from stormpetrel.lifecycle.job_models import enter_job_models, load_fitted
from stormpetrel.lifecycle.retraining import Comparison
from stormpetrel.store.audit import AuditTrail
from stormpetrel.store.site import open_site
from tests.answers.workload_sites import put_generator, put_workload
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import DAYS, day, steady_log, train, trained_site

BETTER = Comparison("submit", 812, 160, 0.4, 0.5, -0.12, -0.08, 0.61, 0.55)


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})
    if done.exception is not None:
        raise done.exception
    return done.output


def as_json(*words):
    return json.loads(run(*words, "--json"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A site with two trainings of the model at submission, the second in use."""
    with one_thread():
        folder = trained_site(tmp_path_factory.mktemp("cli") / "site", steady_log(300), until=20, moments=(Moment.SUBMIT,))
        with open_site(folder) as site:
            train(site, until=day(25), moments=(Moment.SUBMIT,))
    return folder


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch):
    """The site has a model of one moment, to be quick: no others are wanted here."""
    monkeypatch.setattr(retraining, "lacking_moments", lambda _current: ())


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "site")
    return tmp_path / "site"


def in_use(folder):
    with open_site(folder) as site:
        return site.models.current_training("jobs").name


def test_the_list_shows_what_is_in_use_and_why(folder):
    lines = run("--site", folder, "models", "list").splitlines()
    assert "training" in lines[0] and "why" in lines[0]
    assert lines[1].startswith("          jobs-1") and "trained by hand" in lines[1]
    assert lines[2].startswith("  in use  jobs-2") and "2024-03-29 08:00" in lines[2]
    told = as_json("--site", folder, "models", "list")
    assert [(one["training"], one["current"], one["previous"]) for one in told] == [
        ("jobs-1", False, None),
        ("jobs-2", True, "jobs-1"),
    ]
    assert told[1]["jobs"] > 50 and told[1]["models"] == {"jobs-profiles": 2, "jobs-submit": 2}


def test_without_a_model_the_list_says_how_to_get_one(tmp_path):
    make_site(tmp_path / "new", jobs={"prior": False}).close()
    assert "stormpetrel jobs train" in run("--site", tmp_path / "new", "models", "list")
    assert as_json("--site", tmp_path / "new", "models", "list") == []


def test_a_training_that_was_not_put_in_use_is_listed_with_its_reason_and_figures(folder):
    with open_site(folder) as site:
        fitted = load_fitted(site, site.models.current_training("jobs"))
        told = {
            f"jobs-{BETTER.moment}": {"comparison": {**retraining.asdict(BETTER), "with": "jobs-2", "until": day(30).isoformat()}}
        }
        enter_job_models(site, fitted, why="not clearly better: \x1b[31m", about=told)
    line = run("--site", folder, "models", "list").splitlines()[3]
    assert "jobs-3" in line and ".61 against .55" in line and "not clearly better" in line and "\x1b" not in line
    shown = run("--site", folder, "models", "show", "jobs-3")
    assert "against jobs-2 on 812 jobs (160 failed): PR area .61 against .55" in shown and "-0.1200 to -0.0800" in shown
    assert as_json("--site", folder, "models", "show", "jobs-3")["about"]["jobs-submit"]["comparison"]["jobs"] == 812


def test_show_takes_a_training_or_a_model(folder):
    shown = run("--site", folder, "models", "show", "jobs-2")
    assert shown.startswith("jobs-2, in use: trained by hand") and "in place of jobs-1" in shown
    assert "flags from a risk of" in shown and "profiles of requests" in shown
    shown = run("--site", folder, "models", "show", "jobs-submit")
    assert "version 1" in shown and "in use  version 2" in shown
    versions = as_json("--site", folder, "models", "show", "jobs-submit")
    assert [(one["version"], one["current"]) for one in versions] == [(1, False), (2, True)]
    with pytest.raises(NotThereError, match="no training 'jobs-none'"):
        run("--site", folder, "models", "show", "jobs-none")


def test_models_of_traces_are_shown_promoted_and_taken_back_by_themselves(tmp_path):
    from tests.lifecycle import traced_site
    from tests.traces.small import one_torch_thread

    with one_torch_thread(), traced_site.traced_site(tmp_path / "site") as site:
        traced_site.train(site)
        traced_site.train(site, settings={"seed": 1})
    folder = tmp_path / "site"
    assert "windows; flags from a score" in run("--site", folder, "models", "show", "traces-2")
    assert as_json("--site", folder, "models", "promote", "traces-1")["before"] == "traces-2"
    assert as_json("--site", folder, "models", "promote", "traces-2")["current"]
    assert "traces-1 is in use now in place of traces-2" in run("--site", folder, "models", "rollback", "traces")
    with pytest.raises(ModelError, match="Train one: stormpetrel jobs train"):
        run("--site", folder, "models", "rollback")


def test_promote_and_rollback_say_what_changed(folder, monkeypatch):
    monkeypatch.setattr(family.getpass, "getuser", lambda: "ada")
    shown = run("--site", folder, "models", "promote", "jobs-1")
    assert "jobs-1 is in use now in place of jobs-2: jobs-profiles version 1, jobs-submit version 1." in shown
    assert "A running watch takes it up by itself" in shown and in_use(folder) == "jobs-1"
    assert "put in use by hand" in run("--site", folder, "models", "list").splitlines()[1]
    told = as_json("--site", folder, "models", "rollback")
    assert (told["training"], told["before"]) == ("jobs-2", "jobs-1") and in_use(folder) == "jobs-2"
    with open_site(folder) as site:
        assert [(e.user, e.action) for e in AuditTrail(site.state).recent(2)] == [
            ("ada", "models rollback"),
            ("ada", "models promote"),
        ]


def test_promoting_what_is_in_use_changes_nothing(folder):
    with open_site(folder) as site:
        before = len(AuditTrail(site.state).recent())
    assert "in use already; nothing changed" in run("--site", folder, "models", "promote", "jobs-2")
    with open_site(folder) as site:
        assert len(AuditTrail(site.state).recent()) == before


def test_a_damaged_model_is_refused_and_the_one_in_use_stays(folder):
    shutil.rmtree(folder / "models" / "jobs-submit" / "00001")
    for words in (["promote", "jobs-1"], ["rollback"]):
        with pytest.raises(ModelFormatError, match="holds no model"):
            run("--site", folder, "models", *words)
    assert in_use(folder) == "jobs-2"


def test_there_is_not_always_something_to_go_back_to(folder):
    run("--site", folder, "models", "rollback")
    with pytest.raises(ModelError, match="nothing was in use before jobs-1"):
        run("--site", folder, "models", "rollback")


# --- shadow, repeat -----------------------------------------------------------------------------------------------------------


def test_a_training_in_shadow_is_marked_in_the_list_and_stops_when_told(folder):
    assert "jobs-1 runs in shadow" in run("--site", folder, "models", "shadow", "jobs-1")
    assert "shadow  jobs-1" in run("--site", folder, "models", "list")
    assert "in shadow: nothing scored yet" in run("--site", folder, "models", "show", "jobs-1")
    assert as_json("--site", folder, "models", "shadow", "jobs-1", "--stop") == {
        "training": "jobs-1",
        "family": "jobs",
        "runs": False,
    }


def test_a_repeated_training_says_whether_the_same_files_came_out(folder):
    shown = as_json("--site", folder, "models", "repeat", "jobs-2")
    assert shown["same"] and shown["why"] == "every file came out the same" and shown["cpu_s"] > 0


# --- nightly ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_day(monkeypatch):
    """The night of a day, for every site that is opened."""

    def set_day(number):
        monkeypatch.setattr("stormpetrel.store.site.Site.now", lambda self: day(number))

    return set_day


def test_a_night_without_new_jobs_says_so_and_does_the_upkeep(folder, on_day):
    on_day(25)
    shown = run("--site", folder, "nightly")
    assert "jobs-2 stays in use; not trained: no job has ended since the last training (2024-03-29 08:00 UTC)" in shown
    assert "jobs 2 → 2" in shown


def test_a_night_with_a_better_model_puts_it_in_use(folder, on_day, monkeypatch):
    on_day(DAYS + 1)
    with open_site(folder) as site:
        fitted = load_fitted(site, site.models.current_training("jobs"))
    for name, value in (("fit_job_models", fitted), ("fit_labelled", fitted), ("compare", [BETTER])):
        monkeypatch.setattr(retraining, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(retraining._Retraining, "_too_early", lambda self: None)
    monkeypatch.setattr(retraining._Retraining, "_cut", lambda self, jobs, current: day(37))
    shown = run("--site", folder, "nightly")
    assert "jobs-3 is in use now in place of jobs-2: better on 812 jobs of the last 4 days: PR area .61 against .55" in shown
    monkeypatch.setattr(retraining, "compare", lambda *_, **__: [replace(BETTER, difference_high=0.1)])
    told = as_json("--site", folder, "nightly")
    assert (told["promoted"], told["training"], told["previous"]) == (False, "jobs-4", "jobs-3")
    assert "not clearly better" in told["why"] and told["comparisons"][0]["jobs"] == 812


def test_a_night_deletes_what_is_older_than_is_to_be_kept(folder, on_day, monkeypatch):
    text = (folder / "site.toml").read_text().replace("keep_days = 0", "keep_days = 30")
    (folder / "site.toml").write_text(text)
    on_day(DAYS)
    assert "jobs older than 30 days were deleted" in run("--site", folder, "nightly")
    with open_site(folder) as site:
        assert site.jobs.read_jobs().select("submit_time").collect().to_series().min() >= day(DAYS - 30)


def test_a_night_on_a_site_without_jobs_is_no_error(tmp_path, on_day):
    make_site(tmp_path / "new").close()
    assert "There is no model in use; not trained: The site has no jobs yet." in run("--site", tmp_path / "new", "nightly")


def test_old_trainings_are_deleted_at_night(folder, on_day):
    on_day(25)
    with open_site(folder) as site:
        fitted = load_fitted(site, site.models.current_training("jobs"))
        for _ in range(11):
            enter_job_models(site, fitted, why="not better")
    assert "Old trainings were deleted: jobs-3." in run("--site", folder, "nightly")
    assert in_use(folder) == "jobs-2"


def test_generators_are_listed_promoted_and_taken_back_by_themselves(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_workload(site)
        first, second = put_generator(site), put_generator(site)
    listed = run("--site", tmp_path / "site", "models", "list")
    assert "synth-2" in listed and "gaussian-copula: " in listed and f"{first.models[0].about['n_train']:,} jobs" in listed
    assert "makes new ones" in run("--site", tmp_path / "site", "models", "show", second.name)
    assert as_json("--site", tmp_path / "site", "models", "rollback", "synth")["training"] == first.name
    assert as_json("--site", tmp_path / "site", "models", "promote", second.name)["current"]

"""Quality of a site's forecasts: out of settled predictions alone; and who may change the model in use."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from stormpetrel.answers.background import Snapshot
from stormpetrel.answers.history import model_quality as module
from stormpetrel.answers.history.model_quality import go_back, model_quality, promote, quality_frames, training_in_full, trainings
from stormpetrel.answers.history.settled import JOB, PREDICTION_COLUMNS, settled_of
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.history import QualityQuestion
from stormpetrel.answers.viewer import LOCAL, READ, Viewer
from stormpetrel.config import Settings
from stormpetrel.errors import AccessError, ModelError, NotThereError
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.lifecycle import running_quality
from stormpetrel.store.registry.models import NewModel
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site
from tests.jobs.logs import make_log

LOG = make_log(600, 11, days=20, unfinished=0.05)
RISK = (pl.col("state").is_in(["FAILED", "TIMEOUT", "OUT_OF_MEMORY"]) * 40 + pl.col("job_id") % 50) / 100
ADA = Viewer("user2", is_admin=False)


def said():
    """Two versions two minutes in, one at submission."""
    late = said_about(LOG.tail(200), "2min", risk=RISK).with_columns(model_version=pl.lit(2, dtype=pl.Int32))
    return pl.concat([said_about(LOG, "submit", risk=RISK), said_about(LOG.head(400), "2min", risk=RISK), late])


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("quality") / "site", watch={"quality_days": 36_500.0}) as site:
        put_jobs(site, LOG)
        put_predictions(site, said())
        yield LiveSite(site)


def made():
    return Snapshot(settled_of(said().select(PREDICTION_COLUMNS), LOG.select(JOB), Settings(), since=T0), 1, T0)


def frames(live, settled=None, **question):
    return quality_frames(live, LOCAL, settled or live.boards.settled.wait(live), QualityQuestion.model_validate(question))


def test_the_figures_are_those_of_the_running_quality(live):
    answer = model_quality(live, ADA)
    assert_frame_equal(frames(live).table, running_quality.running_quality_of(live.site, since=T0 - timedelta(days=1)))
    assert (
        live.boards.settled.wait(live).value.frame.height
        == running_quality.settled(live.site, since=T0 - timedelta(days=1)).height
    )
    assert answer.settled == live.boards.settled.wait(live).value.frame.height


def test_predictions_of_jobs_that_live_wait(live):
    running = LOG.filter(pl.col("state") == "RUNNING")
    assert model_quality(live, LOCAL).waiting == 2 * running.height


def test_what_was_said_with_the_end_in_sight_is_no_forecast():
    hindsight = said().with_columns(as_of=pl.col("submit_time") + timedelta(days=300))
    assert settled_of(hindsight.select(PREDICTION_COLUMNS), LOG.select(JOB), Settings(), since=T0).frame.is_empty()


def test_a_version_has_its_own_line_and_its_own_curves(live):
    answer = frames(live, moment="2min", version=2)
    assert answer.versions == (2, 1)
    assert answer.chosen["model_version"] == 2
    truth, risk = answer.forecasts["two minutes in"]
    assert list(answer.forecasts) == ["two minutes in"]
    assert truth.size == answer.chosen["n"]
    assert pr_auc(truth, risk) == pytest.approx(answer.chosen["pr_auc"], abs=1e-6)


def test_all_versions_together_draw_every_moment(live):
    answer = frames(live)
    assert list(answer.forecasts) == ["at submission", "two minutes in"]
    assert answer.chosen["model_version"] is None


def test_curves_are_of_the_latest_forecasts(live, monkeypatch):
    monkeypatch.setattr(module, "MOST_DRAWN", 50)
    truth, _ = frames(live, made()).forecasts["at submission"]
    latest = made().value.frame.filter(moment="submit").tail(50)
    assert np.array_equal(truth, latest["failed"].to_numpy())


def test_quality_over_time_leaves_out_what_would_be_noise(live):
    days, weeks = (frames(live, made(), moment="submit", every=every).over_time for every in ("1d", "1w"))
    assert weeks["n"].sum() > days["n"].sum() > 0
    assert days["n"].min() >= module.FEWEST
    assert weeks["time"].dt.weekday().unique().to_list() == [1]


def test_reasons_that_were_stored_say_what_moves_the_forecast(live):
    table = frames(live, made()).importance
    assert table["feature"].to_list() == ["user.failed_rate_12h", "time_limit"]
    assert table["mean_abs_shap"].to_list() == [0.5, 0.25]


def test_nothing_settled_is_an_answer_too(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        answer, drawn = model_quality(live, LOCAL), frames(live)
    assert (answer.settled, answer.waiting, answer.quality, answer.over_time) == (0, 0, [], [])
    assert (drawn.chosen, drawn.versions, drawn.threshold, drawn.forecasts) == (None, (), None, {})
    assert drawn.over_time.is_empty() and drawn.importance.is_empty()


@pytest.mark.parametrize("question", [{"moment": "end"}, {"every": "1y"}])
def test_what_makes_no_sense_is_no_question(question):
    with pytest.raises(ValidationError):
        QualityQuestion.model_validate(question)


def test_an_answer_goes_to_other_programs(live):
    told = model_quality(live, LOCAL, QualityQuestion(every="1w")).model_dump(mode="json")
    assert told["quality"][0]["first"].startswith("2024-03-")
    assert told["over_time"][0]["time"].startswith("2024-03-")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A site with two trainings, the second in use; loading them is tested elsewhere."""
    monkeypatch.setattr("stormpetrel.lifecycle.job_models.load_fitted", lambda site, training: None)
    with make_site(tmp_path / "site") as site:
        for why in ("the first", "better"):
            about = {"why": why, "n_train": 100, "trained_until": T0.isoformat(), "code_version": "0.1.0"}
            models = {
                name: NewModel(lambda folder: folder.mkdir(parents=True), about) for name in ("jobs-submit", "jobs-profiles")
            }
            site.models.add_together(models, promoted_by="root")
        yield LiveSite(site)


def test_trainings_say_why_and_which_one_is_in_use(trained):
    lines = trainings(trained, ADA).trainings
    assert [(line.name, line.current, line.why) for line in lines] == [("jobs-2", True, "better"), ("jobs-1", False, "the first")]
    assert (lines[0].previous, lines[0].versions, lines[0].jobs) == ("jobs-1", {"submit": 2}, 100)
    assert lines[0].trained_until == T0
    full = training_in_full(trained, ADA, "jobs-2")
    assert full.name == "jobs-2" and [model.name for model in full.models] == ["jobs-profiles", "jobs-submit"]


def test_an_administrator_promotes_and_goes_back_and_the_trail_knows_who(trained):
    admin = Viewer("grace", is_admin=True)
    assert promote(trained, admin, "jobs-1").current
    assert go_back(trained, admin).name == "jobs-2"
    assert [entry.user for entry in trained.site.audit.recent(3)] == ["grace", "grace", "root"]


@pytest.mark.parametrize("viewer", [ADA, Viewer("root", is_admin=True, scopes=frozenset({READ}))])
def test_nobody_else_changes_the_model(trained, viewer):
    for change in (lambda: promote(trained, viewer, "jobs-1"), lambda: go_back(trained, viewer)):
        with pytest.raises(AccessError):
            change()
    assert trainings(trained, viewer).trainings[0].current


def test_a_training_that_is_not_there_cannot_be_promoted(trained):
    with pytest.raises((NotThereError, ModelError)):
        promote(trained, LOCAL, "jobs-99")

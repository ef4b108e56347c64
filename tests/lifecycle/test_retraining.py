"""Retraining: a better model takes over, another does not, and a training that dies changes nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.config import EngineSection
from stormpetrel.errors import ModelFormatError, NotThereError, StoreBusyError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import label_jobs
from stormpetrel.lifecycle import job_models, retraining
from stormpetrel.lifecycle.contests.decision import difference_of
from stormpetrel.lifecycle.job_models import JOBS, load_fitted, load_models, load_predictor, train_job_models
from stormpetrel.lifecycle.live import current_versions
from stormpetrel.lifecycle.retraining import Comparison, compare, ended_since, forecasts_after, last_attempt, retrain
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import DAYS, QUICK, changing_log, day, put_jobs, steady_log, train, trained_site

NOW = day(DAYS + 1)
BETTER = Comparison("submit", 200, 60, 0.4, 0.5, -0.12, -0.08, 0.7, 0.6)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A model that was trained before the site changed."""
    return trained_site(tmp_path_factory.mktemp("changed") / "site", changing_log(changes_on=12), until=12)


@pytest.fixture
def site(changed, tmp_path):
    shutil.copytree(changed, tmp_path / "site")
    with open_site(tmp_path / "site") as opened:
        yield opened


def audit_of(site):
    from stormpetrel.store.audit import AuditTrail

    return [(entry.user, entry.action, entry.about["training"]) for entry in AuditTrail(site.state).recent()]


def fits_are(fitted, monkeypatch):
    """Whatever is fitted from now on comes to these models."""
    for name in ("fit_job_models", "fit_labelled"):
        monkeypatch.setattr(retraining, name, lambda *_, **__: fitted)


# --- what takes over ----------------------------------------------------------------------------------------------------------


def test_a_better_model_takes_over_and_says_why(site):
    done = retrain(site, now=NOW, settings=QUICK, user="watch")
    assert done.promoted and (done.training, done.previous) == ("jobs-2", "jobs-1")
    assert done.why.startswith("better on ") and "PR area" in done.why and "days" in done.why
    first = done.comparisons[0]
    assert first.moment == "submit" and first.better and first.log_loss < first.log_loss_current and first.jobs >= 100
    current = site.models.current_training("jobs")
    assert current.name == "jobs-2" and current.why == done.why and current.previous == "jobs-1"
    assert set(JOBS.describe(site, current.name).comparisons) == {"jobs-submit", "jobs-start", "jobs-2min"}
    assert current.trained_until == NOW  # the judged jobs are learnt from in the end
    assert audit_of(site)[0] == ("watch", "retrain", "jobs-2")
    assert current_versions(site) == dict.fromkeys(("jobs-profiles", "jobs-submit", "jobs-start", "jobs-2min"), 2)


def test_both_models_are_judged_on_jobs_that_neither_has_seen(site):
    jobs = known_by(site.jobs.read_jobs().collect(), NOW)
    current = site.models.current_training("jobs")
    work = retraining._Retraining(site, NOW, lambda _: None, "ada", QUICK)
    cut = work._cut(jobs, current)
    assert cut > current.trained_until
    judged = forecasts_after(load_fitted(site, current), jobs, cut=cut, now=NOW)
    assert (judged["submit_time"] > cut).all()
    new = jobs.filter(pl.col("submit_time") > current.trained_until)
    assert retraining.JUDGED_SHARE * new.height <= judged.height <= retraining.MOST_JUDGED * new.height
    assert (judged["state"] == "FAILED").sum() >= retraining.FEWEST_OF_A_CLASS


def test_candidates_that_workers_fit_are_those_of_one_process(site, tmp_path):
    shutil.copytree(site.folder, tmp_path / "apart")
    with open_site(tmp_path / "apart") as apart:
        apart.settings = apart.settings.model_copy(update={"engine": EngineSection(workers=2)})
        theirs = retrain(apart, now=NOW, settings=QUICK)
        trees = load_fitted(apart, apart.models.training("jobs-2")).models[Moment.SUBMIT].risk_trees()
    ours = retrain(site, now=NOW, settings=QUICK)
    assert theirs == ours and theirs.promoted
    assert trees == load_fitted(site, site.models.training("jobs-2")).models[Moment.SUBMIT].risk_trees()


def test_the_first_model_of_a_site_is_put_in_use_as_it_is(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert retrain(site, now=NOW).why == "not trained: The site has no jobs yet."
        put_jobs(site, steady_log(200))
        done = retrain(site, now=NOW, settings=replace(QUICK, rounds=3))
        assert done.promoted and done.training == "jobs-1" and done.previous is None and "first model" in done.why


def test_a_model_that_is_not_clearly_better_is_kept_aside_with_its_reason(tmp_path):
    folder = trained_site(tmp_path / "site", changing_log(changes_on=DAYS), until=24)  # chance all along: nothing to be learnt
    with open_site(folder) as site:
        before = site.models.in_use()
        done = retrain(site, now=NOW, settings=QUICK)
        assert not done.promoted and done.training == "jobs-2"
        assert "better at 'submit' on" in done.why or "worse at" in done.why
        assert site.models.in_use() == before
        aside = site.models.training("jobs-2")
        assert aside.why == done.why and not aside.current and aside.previous is None
        again = retrain(site, now=NOW, settings=QUICK)  # the same jobs are not tried twice
        assert not again.promoted and again.training is None and "no job has ended since the last training" in again.why


@pytest.mark.parametrize(
    ("compared", "promoted", "words"),
    [
        ([BETTER], True, "better on 200 jobs"),
        ([replace(BETTER, difference_high=0.01)], False, "not clearly better at 'submit'"),
        ([BETTER, replace(BETTER, moment="start", difference_low=-0.1, difference_high=0.1)], True, "better on 200 jobs"),
        ([BETTER, replace(BETTER, moment="2min", difference_low=0.01, difference_high=0.02)], False, "worse at '2min'"),
    ],
)
def test_it_must_win_at_submission_and_lose_nowhere(site, monkeypatch, compared, promoted, words):
    fitted = load_fitted(site, site.models.current_training("jobs"))
    fits_are(fitted, monkeypatch)
    monkeypatch.setattr(retraining, "compare", lambda *_, **__: compared)
    done = retrain(site, now=NOW)
    assert done.promoted is promoted and words in done.why
    assert site.models.current_training("jobs").name == ("jobs-2" if promoted else "jobs-1")


def test_who_decides_while_it_trains_is_not_overruled(site, monkeypatch):
    fitted = load_fitted(site, site.models.current_training("jobs"))
    train(site, until=day(14), moments=(Moment.SUBMIT,))
    site.models.rollback("jobs", user="ada")

    def meanwhile(*_, **__):
        site.models.promote_training("jobs-2", user="ada")
        return [BETTER]

    fits_are(fitted, monkeypatch)
    monkeypatch.setattr(retraining, "compare", meanwhile)
    done = retrain(site, now=NOW)
    assert not done.promoted and done.training == "jobs-3" and "jobs-2 was put in use meanwhile" in done.why
    assert site.models.current_training("jobs").name == "jobs-2"


# --- when nothing is trained --------------------------------------------------------------------------------------------------


def test_without_enough_new_jobs_it_says_so_and_reads_nothing(site, monkeypatch):
    monkeypatch.setattr(retraining, "known_by", lambda *_: pytest.fail("jobs were read"))
    done = retrain(site, now=day(12.5))
    assert not done.promoted and done.training is None and "watch.retrain_min_jobs is 200" in done.why
    assert "no job has ended" in retrain(site, now=day(12)).why


def test_too_few_failed_jobs_to_tell_keep_the_old_model(tmp_path):
    jobs = steady_log(600).with_columns(
        state=pl.when(pl.col("submit_time") > day(20)).then(pl.lit("COMPLETED")).otherwise("state")
    )
    with open_site(trained_site(tmp_path / "site", jobs, until=20)) as site:
        done = retrain(site, now=NOW)
        assert not done.promoted and done.training is None
        assert "too few jobs to tell" in done.why and "0 failed" in done.why


def test_a_model_that_cannot_be_read_any_more_is_replaced(site, monkeypatch):
    fitted = load_fitted(site, site.models.current_training("jobs"))
    shutil.rmtree(site.models.folder_of("jobs-submit", 1))
    fits_are(fitted, monkeypatch)
    done = retrain(site, now=NOW)
    assert done.promoted and done.why.startswith("jobs-1 can no longer be used: ")


def test_two_trainings_at_once_are_refused(site):
    with open_site(site.folder) as other, other.state.sole("training"), pytest.raises(StoreBusyError):
        retrain(site, now=NOW)


def test_jobs_that_ended_since_are_counted_by_their_end(site):
    jobs = site.jobs.read_jobs().collect()
    assert ended_since(site, None, until=NOW) == jobs.height
    assert (
        ended_since(site, day(20), until=day(30))
        == jobs.filter(pl.col("end_time") > day(20), pl.col("end_time") <= day(30)).height
    )
    assert last_attempt(site) == day(12)


# --- comparing ----------------------------------------------------------------------------------------------------------------


def test_what_is_compared_is_what_the_live_loop_would_have_said(site):
    """The features after the cut are those of one sweep over the whole log, in which each moment sees only what was before it."""
    jobs = known_by(site.jobs.read_jobs().collect(), NOW)
    fitted = load_fitted(site, site.models.current_training("jobs"))
    after = forecasts_after(fitted, jobs, cut=day(30), now=NOW)
    labelled = label_jobs(jobs, QUICK, profiles=fitted.profiles)
    later = (labelled.jobs["submit_time"] > day(30)).to_numpy()
    for moment in MOMENTS:
        whole = fitted.models[moment].risk(labelled.features[moment])
        expected = np.where(labelled.reached(moment), whole, np.nan)[later]
        np.testing.assert_allclose(after[str(moment)].fill_null(np.nan).to_numpy(), expected, rtol=1e-6)


def test_a_model_against_itself_is_neither_better_nor_worse(site):
    jobs = known_by(site.jobs.read_jobs().collect(), NOW)
    fitted = load_fitted(site, site.models.current_training("jobs"))
    for found in compare(fitted, fitted, jobs, cut=day(30), now=NOW, settings=QUICK):
        assert not found.better and not found.worse and found.log_loss == found.log_loss_current


def test_jobs_of_one_user_and_day_are_drawn_together():
    rng = np.random.default_rng(1)
    of_group = rng.normal(0.02, 0.1, size=40)
    difference, group = np.repeat(of_group, 50), np.repeat(np.arange(40), 50)
    found = difference_of(difference, group)
    low, high = found.low, found.high
    narrow = difference_of(difference, np.arange(difference.size))
    assert low < narrow.low < narrow.high < high
    assert found == difference_of(difference, group)


def test_a_surprise_of_a_forecast_that_was_sure_does_not_cost_everything():
    losses = retraining._log_losses(np.array([True, False]), np.array([0.0, 1.0]))
    assert np.isfinite(losses).all()


# --- trainings belong together ------------------------------------------------------------------------------------------------


def test_a_training_by_hand_is_always_put_in_use(site, monkeypatch):
    monkeypatch.setattr(job_models, "training_settings", lambda _: QUICK)
    entries = train_job_models(site, [Moment.SUBMIT], until=day(14))
    current = site.models.current_training("jobs")
    assert current.why == "trained by hand" and current.name == "jobs-2" and current.previous == "jobs-1"
    assert [entry.name for entry in entries] == ["jobs-profiles", "jobs-submit"]


def test_a_training_of_one_moment_takes_the_others_along_over_the_same_profiles(site, monkeypatch):
    monkeypatch.setattr(job_models, "training_settings", lambda _: QUICK)
    before = load_fitted(site, site.models.training("jobs-1"))
    train_job_models(site, [Moment.SUBMIT], until=day(14))
    after = load_fitted(site, site.models.training("jobs-2"))
    assert after.models[Moment.START].metadata == before.models[Moment.START].metadata
    assert after.models[Moment.SUBMIT].metadata["trained_until"] == day(14).isoformat()
    assert after.profiles.summary_.equals(before.profiles.summary_)
    assert load_predictor(site, now=NOW).versions == dict.fromkeys(MOMENTS, 2)
    shutil.rmtree(site.models.folder_of("jobs-start", 1))  # the copy stands on its own
    load_fitted(site, site.models.training("jobs-2"))


def test_promote_and_rollback_move_all_models_of_a_training(site):
    train(site, until=day(14), moments=(Moment.SUBMIT,))
    assert set(site.models.in_use()) == {"jobs-profiles", "jobs-submit"}
    assert JOBS.roll_back(site, user="ada").name == "jobs-1"
    assert current_versions(site) == dict.fromkeys(("jobs-profiles", "jobs-submit", "jobs-start", "jobs-2min"), 1)
    assert JOBS.promote(site, "jobs-2", user="ada").current
    assert audit_of(site)[:2] == [("ada", "models promote", "jobs-2"), ("ada", "models rollback", "jobs-1")]


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_damaged_models_are_refused_before_anything_changes(site, damage):
    train(site, until=day(14), moments=(Moment.SUBMIT,))
    folder = site.models.folder_of("jobs-2min", 1)
    if damage == "deleted":
        shutil.rmtree(folder)
    else:
        (folder / "risk.json").write_text("{}")
    before = site.models.in_use()
    with pytest.raises(ModelFormatError):
        JOBS.promote(site, "jobs-1")
    with pytest.raises(ModelFormatError):
        JOBS.roll_back(site)
    with pytest.raises(NotThereError, match="no training 'jobs-9'"):
        JOBS.promote(site, "jobs-9")
    assert site.models.in_use() == before


# --- what is guaranteed when it dies ------------------------------------------------------------------------------------------

_KILLED = """
import signal, sys
from datetime import datetime
from pathlib import Path
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.lifecycle import retraining
from stormpetrel.lifecycle.contests.decision import difference_of
from stormpetrel.lifecycle.retraining import Comparison
from stormpetrel.lifecycle.job_models import load_fitted
from stormpetrel.store.registry import models
from stormpetrel.store.site import open_site

def halt(*_, **__):
    print("now", flush=True)
    signal.pause()

folder, now, where = sys.argv[1:]
if where == "a folder is half written":
    def save(self, folder):
        (folder / "half").mkdir(parents=True)
        halt()
    JobOutcomeModel.save = save
else:
    models.ModelRegistry._make_current = halt  # inside the transaction, after the rows
site = open_site(Path(folder))
fitted = load_fitted(site, site.models.current_training("jobs"))
retraining.fit_job_models = retraining.fit_labelled = lambda *_, **__: fitted
retraining.compare = lambda *_, **__: [Comparison("submit", 200, 60, 0.4, 0.5, -0.12, -0.08, 0.7, 0.6)]
retraining.retrain(site, now=datetime.fromisoformat(now))
"""


@pytest.mark.parametrize("where", ["a folder is half written", "the transaction is open"])
def test_a_training_that_is_killed_changes_nothing(site, where, monkeypatch):
    before = site.models.versions()
    words = [sys.executable, "-c", _KILLED, str(site.folder), NOW.isoformat(), where]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert site.models.versions() == before
    load_models(site)
    fitted = load_fitted(site, site.models.current_training("jobs"))
    fits_are(fitted, monkeypatch)
    monkeypatch.setattr(retraining, "compare", lambda *_, **__: [BETTER])
    assert retrain(site, now=NOW + timedelta(hours=1)).training == "jobs-2"  # the next one is not hindered by what is left
    assert load_models(site).versions == dict.fromkeys(MOMENTS, 2)

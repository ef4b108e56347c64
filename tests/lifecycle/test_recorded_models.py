"""Models that earlier versions have saved are read by this one; what cannot be read any more is trained again by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from stormpetrel.errors import ModelOutdatedError, ModelVersionError
from stormpetrel.events.choose import DEFAULT as DEFAULT_EVENTS
from stormpetrel.events.choose import RETIRED
from stormpetrel.events.choose import load as load_events
from stormpetrel.learn.saving import METADATA, RETIRED_KINDS, _digest
from stormpetrel.lifecycle.contests.events import contest_events
from stormpetrel.lifecycle.event_models import load_event_model
from stormpetrel.lifecycle.families import FAMILIES, formats, model_findings, outdated_trainings, problem_of, retrain_outdated
from stormpetrel.lifecycle.retraining import retrain
from stormpetrel.lifecycle.trace_models import load_trace_model
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.lifecycle.workload_models import load_site_generator
from stormpetrel.records.times import fixed_clock
from stormpetrel.simulate.feed import set_clock
from stormpetrel.store.events.series import series_of
from stormpetrel.store.registry.entries import folder_digest
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.state_tables import models as registry
from stormpetrel.store.upkeep.repair import repair
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.watch.loop import Watch
from stormpetrel.watch.training import TrainingSchedule
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import QUICK
from tests.parts.command_line import change_settings
from tests.parts.recorded_site import contents_of, names, unpack_site
from tests.traces.small import one_torch_thread, tiny

SITES = names()


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), one_torch_thread():
        yield


@pytest.fixture(scope="module", params=SITES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    """A recorded site that is only read."""
    with open_site(unpack_site(request.param, tmp_path_factory.mktemp("recorded"))) as site:
        yield request.param, site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The newest recorded site, to be changed."""
    with open_site(unpack_site(SITES[-1], tmp_path)) as opened:
        yield opened


@pytest.fixture
def oldest_site(tmp_path: Path) -> Iterator[Site]:
    """The oldest recorded site, to be changed: it has models that later versions dropped."""
    with open_site(unpack_site(SITES[0], tmp_path)) as opened:
        yield opened


def resave(site: Site, family: str, *, version: int) -> None:
    """Let every model of a family's training in use be of another format, as another version would have saved and entered it."""
    for model in site.models.current_training(family).models:
        folder = site.models.folder_of(model.name, model.version)
        record = {**json.loads((folder / METADATA).read_text()), "format_version": version}
        (folder / METADATA).write_text(json.dumps({**record, "digest": _digest(record)}))
        about = site.models._sealed(model, model.about, folder_digest(folder))
        same = (registry.c.name == model.name, registry.c.version == model.version)
        with site.state.transaction() as connection:
            connection.execute(sa.update(registry).where(*same).values(about=about))


# --- read ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_in_use_of_every_family_can_be_read(recorded, family):
    _, site = recorded
    training = site.models.current_training(family)
    assert training is not None and problem_of(site, training) is None


def test_every_recorded_model_can_be_read_in_use_or_not(recorded):
    name, site = recorded
    problems = {training.name: problem_of(site, training) for training in site.models.trainings() if not is_retired(training)}
    assert problems == dict.fromkeys(problems) and sum(len(t.models) for t in site.models.trainings()) == len(
        contents_of(name)["all_models"]
    )


def is_retired(training: Training) -> bool:
    """Whether a training has a model of a kind that this version no longer has."""
    return any(model.name.removeprefix("events-") in RETIRED for model in training.models)


def test_a_retired_model_in_use_is_outdated_and_the_default_takes_its_place(oldest_site):
    site = oldest_site
    (retired,) = [training for training in site.models.trainings() if is_retired(training)]
    assert "no longer has" in problem_of(site, retired)
    site.models.promote_training(retired.name, user="ada")
    with pytest.raises(ModelOutdatedError):
        load_event_model(site)
    assert [training.name for training in outdated_trainings(site)] == [retired.name]
    assert "earlier version" in contest_events(site, now=site.now()).sentence()
    assert load_event_model(site).name == f"events-{DEFAULT_EVENTS}" and outdated_trainings(site) == []


def test_every_kind_of_recorded_model_has_a_format_that_is_known(recorded):
    _, site = recorded
    kinds = {json.loads(path.read_text())["kind"] for path in site.folder.glob("models/*/*/model.json")}
    assert kinds <= set(formats()) | RETIRED_KINDS


def test_the_trace_model_scores_windows_as_it_did(recorded):
    _, site = recorded
    model = load_trace_model(site, threads=1)
    rows = site.cpu_windows.read().collect().sort("trace", "window_start", "node", "cpu")
    then = site.trace_scores.read(model=model.name, version=model.version).collect().sort("trace", "window_start", "node", "cpu")
    assert np.allclose(score_frame(model, rows)["score"], then["score"], rtol=1e-3, atol=1e-6)


def test_the_event_model_scores_hours_as_it_did(recorded):
    _, site = recorded
    used = load_event_model(site)
    then = site.event_scores.read(model=used.name, version=used.version).collect().sort("bucket_start")
    series = series_of(site).of_kinds(used.kinds)
    now = used.model.score(series)
    at = {series.moment(place): value for place, value in enumerate(now)}
    both = [(at[moment], score) for moment, score in then.select("bucket_start", "score").iter_rows() if not np.isnan(at[moment])]
    assert len(both) > 400 and np.allclose(*zip(*both, strict=True), rtol=1e-3, atol=1e-6)


def test_every_sort_of_event_model_scores(recorded):
    _, site = recorded
    used = load_event_model(site)
    series = series_of(site).of_kinds(used.kinds)
    for model in site.models.versions():
        if model.family == "events" and model.name.removeprefix("events-") not in RETIRED:
            scores = load_events(site.models.folder_of(model.name, model.version)).score(series)
            assert np.isfinite(scores[~np.isnan(scores)]).all() and (~np.isnan(scores)).sum() > 100


def test_the_generator_makes_jobs(recorded):
    _, site = recorded
    made = sample(load_site_generator(site).generator, Wanted(jobs=40, seed=1))
    assert made.height == 40 and set(made.jobs.columns) >= {"submit_time", "cores", "runtime_s"}


def test_a_watch_goes_on_with_the_recorded_models(site):
    before = site.predictions.read().collect().height
    set_clock(site.folder / "feed", fixed_clock(site.now() + timedelta(hours=8)))
    step = Watch(site).step()
    assert step.ready and step.predictions.height > 0 and step.predictions["risk"].is_between(0, 1).all()
    assert site.predictions.read().collect().height == before + step.predictions.height


def test_a_lost_state_of_a_recorded_site_is_rebuilt_with_the_models_that_were_in_use(site):
    then = {model.name: model.version for model in site.models.in_use().values()}
    site.close()
    for path in site.folder.glob("state.db*"):
        path.unlink()
    repair(site.folder, problem_of=problem_of, user="ada")
    with open_site(site.folder) as again:
        assert {model.name: model.version for model in again.models.in_use().values()} == then
        assert [problem_of(again, again.models.current_training(family)) for family in FAMILIES] == [None] * len(FAMILIES)


def test_a_recorded_site_that_lost_its_state_before_it_was_ever_opened_gets_back_what_its_folders_tell(tmp_path):
    folder = unpack_site(SITES[0], tmp_path)
    (folder / "state.db").unlink()
    report = repair(folder, problem_of=problem_of, user="ada")
    assert any("Who had been forgotten is not known" in line for line in report.gone)
    assert any(line.startswith("No model of traces can be used") for line in report.gone)  # its map lay in the state only
    with open_site(folder) as site:
        assert problem_of(site, site.models.current_training("jobs")) is None
        assert problem_of(site, site.models.current_training("synth")) is None


# --- to be trained again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_a_format_that_is_not_read_any_more_is_outdated(site, family):
    assert outdated_trainings(site) == []
    resave(site, family, version=0)
    assert [one.name.partition("-")[0] for one in outdated_trainings(site)] == [family]
    assert "to be trained again" in problem_of(site, site.models.current_training(family))
    (finding,) = model_findings(site)
    assert finding.level == "warning" and "to be trained again" in finding.what and "by themselves" in finding.hint


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_a_newer_version_is_a_problem_and_nothing_replaces_it(site, family):
    resave(site, family, version=99)
    before = site.models.trainings()
    (finding,) = model_findings(site)
    assert finding.level == "problem" and "newer version" in finding.what and "--upgrade" in finding.hint
    assert outdated_trainings(site) == [] and retrain_outdated(site) == []
    assert "newer version" in (retrain(site, now=site.now()).why if family == "jobs" else "newer version")
    assert "newer version" in (contest_events(site, now=site.now()).sentence() if family == "events" else "newer version")
    assert site.models.trainings() == before


def test_outdated_models_of_jobs_are_trained_again_without_waiting_for_new_jobs(site):
    resave(site, "jobs", version=0)
    done = retrain(site, now=site.now(), settings=replace(QUICK, rounds=4))
    assert done.promoted and "can no longer be used" in done.why and "earlier version" in done.why
    assert outdated_trainings(site) == [] and problem_of(site, site.models.current_training("jobs")) is None


def test_an_outdated_model_of_events_is_trained_again_as_the_same_sort(site):
    site.models.promote_training("events-1", user="ada")  # unsupervised
    resave(site, "events", version=0)
    words = contest_events(site, now=site.now()).sentence()
    assert words is not None and "earlier version" in words
    assert load_event_model(site).name == "events-unsupervised" and outdated_trainings(site) == []


@pytest.mark.needs("torch")
def test_an_outdated_model_of_traces_is_trained_again_with_the_same_architecture(site, monkeypatch):
    site.models.promote_training("traces-2", user="ada")  # node_gnn
    resave(site, "traces", version=0)
    monkeypatch.setattr("stormpetrel.lifecycle.trace_models.AutoencoderSettings", lambda: tiny(max_epochs=1))
    (words,) = retrain_outdated(site)
    assert words.startswith("traces-4 is in use now in place of traces-2")
    assert load_trace_model(site).name == "traces-node_gnn" and outdated_trainings(site) == []


def test_an_outdated_generator_is_fitted_again(site):
    site.models.promote_training("synth-1", user="ada")  # gaussian-copula
    resave(site, "synth", version=0)
    (words,) = retrain_outdated(site)
    assert words.startswith("synth-4 is in use now in place of synth-1")
    assert load_site_generator(site).name == "gaussian-copula" and outdated_trainings(site) == []


def test_a_private_generator_is_never_fitted_again_by_itself(site):
    site.models.promote_training("synth-2", user="ada")
    resave(site, "synth", version=0)
    (words,) = retrain_outdated(site)
    assert "could not be trained again" in words and "synth fit --model private" in words
    assert site.models.current_training("synth").name == "synth-2"


def test_what_cannot_be_trained_again_is_told_and_stops_nothing(site):
    resave(site, "traces", version=0)
    site.cpu_windows.table.overwrite(site.cpu_windows.table.scan().head(0).collect())
    (words,) = retrain_outdated(site)
    assert "could not be trained again" in words and "no windows" in words


@pytest.mark.parametrize("family", FAMILIES)
def test_a_watch_starts_the_training_of_an_outdated_model_at_once(site, family):
    change_settings(site.folder, watch={"retrain_hours": 24.0})
    with open_site(site.folder) as opened:
        assert not TrainingSchedule(opened).due(opened.now())
        resave(opened, family, version=0)
        assert TrainingSchedule(opened).due(opened.now())


def test_a_watch_with_outdated_models_goes_on_reading_and_says_why_it_does_not_judge(site):
    resave(site, "jobs", version=0)
    set_clock(site.folder / "feed", fixed_clock(site.now() + timedelta(hours=8)))
    step = Watch(site).step()
    assert step.read.problem is None and step.read.new > 0 and not step.predictions.height
    assert "to be trained again" in step.model_problem


def test_loading_an_outdated_or_newer_model_says_which_of_the_two(site):
    resave(site, "synth", version=0)
    with pytest.raises(ModelOutdatedError):
        load_site_generator(site)
    resave(site, "synth", version=99)
    with pytest.raises(ModelVersionError):
        load_site_generator(site)

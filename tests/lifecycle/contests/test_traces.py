"""The nightly contest of trace models: the same recent windows for all, and the champion stays unless one is better."""

from __future__ import annotations

import shutil

import pytest

from stormpetrel.config import EngineSection
from stormpetrel.lifecycle.contests import traces
from stormpetrel.lifecycle.contests.traces import contest_traces
from stormpetrel.lifecycle.trace_models import load_trace_model
from stormpetrel.store.site import open_site
from tests.lifecycle.traced_site import put_windows, traced_site, train
from tests.parts import need
from tests.traces.small import STEPS, one_torch_thread, small_windows, tiny


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A site whose champion has hardly learnt, and a day of new windows."""
    need("torch")
    folder = tmp_path_factory.mktemp("contest") / "site"
    with traced_site(folder, splits=False, nightly={"trace_models": ["fast"], "group_rows": 1000}) as site:
        train(site, settings={"max_epochs": 1, "learning_rate": 1e-5})
        put_windows(site, small_windows(7, steps=60 * STEPS, name="live"))
    return folder


@pytest.fixture
def site(before, tmp_path):
    shutil.copytree(before, tmp_path / "site")
    with open_site(tmp_path / "site") as opened:
        yield opened


def test_a_challenger_with_a_clearly_lower_error_on_calm_windows_is_put_in_use(site):
    night = contest_traces(site, settings=tiny(max_epochs=6))
    assert night.promoted and night.previous == "traces-1"
    assert site.models.current_training("traces").name == night.training == "traces-2"
    assert "error" in night.why and "faults seen" in night.why


def test_every_challenger_is_judged_on_the_same_windows_as_the_champion(site):
    night = contest_traces(site, settings=tiny(max_epochs=1))
    assert len({challenger["windows"] for challenger in night.challengers}) == 1
    assert len({challenger["champion"]["re_normal"] for challenger in night.challengers}) == 1
    assert {challenger["name"] for challenger in night.challengers} == {"fast, 1 day", "fast, everything"}


def test_challengers_that_workers_train_are_those_of_one_process(site, tmp_path):
    shutil.copytree(site.folder, tmp_path / "apart")
    with open_site(tmp_path / "apart") as apart:
        settings = apart.settings.model_copy(update={"engine": EngineSection(workers=2)})
        apart.settings = settings
        theirs = contest_traces(apart, settings=tiny(max_epochs=6))
    ours = contest_traces(site, settings=tiny(max_epochs=6))
    assert theirs.promoted and theirs.training == ours.training
    errors = [[challenger["re_normal"] for challenger in night.challengers] for night in (theirs, ours)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)


def test_a_challenger_that_is_no_better_is_kept_with_a_reason(site):
    assert contest_traces(site, settings=tiny(max_epochs=6)).promoted
    put_windows(site, small_windows(8, steps=60 * STEPS, name="live"))
    night = contest_traces(site, settings=tiny(max_epochs=1, learning_rate=1e-6))
    assert not night.promoted and site.models.current_training("traces").name == "traces-2"
    assert site.models.training(night.training).why == night.why
    assert night.sentence().startswith("traces-2 stays in use.")


def test_a_challenger_that_is_worse_for_a_large_group_is_not_put_in_use(site, monkeypatch):
    monkeypatch.setattr(traces, "worse_groups", lambda *_a, **_k: (["n1"], 2))
    night = contest_traces(site, settings=tiny(max_epochs=6))
    assert not night.promoted and "worse on n1" in night.why


def test_without_torch_only_detector_and_threshold_are_renewed_and_the_network_stays(site, monkeypatch):
    monkeypatch.setattr(traces, "find_spec", lambda name: None)
    old = load_trace_model(site)
    night = contest_traces(site)
    assert {challenger["name"] for challenger in night.challengers} == {"detector, 1 day", "detector, everything"}
    entry = site.models.training(night.training).models[0]
    folder, source = (site.models.verified_folder(old.name, version) for version in (entry.version, old.version))
    assert (folder / "weights.safetensors").read_bytes() == (source / "weights.safetensors").read_bytes()


def test_a_night_that_is_killed_while_it_saves_leaves_the_champion(site, monkeypatch):
    def killed(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(site.models, "add_together", killed)
    with pytest.raises(KeyboardInterrupt):
        contest_traces(site, settings=tiny(max_epochs=6))
    assert [training.name for training in site.models.trainings("traces")] == ["traces-1"]


def test_too_few_new_windows_are_one_sentence(site):
    first = contest_traces(site, settings=tiny(max_epochs=6))
    assert first.promoted
    again = contest_traces(site, settings=tiny(max_epochs=6))
    assert "new moments of windows" in again.why and again.training is None


def test_what_is_needed_to_repeat_a_training_is_kept_with_it(site):
    about = site.models.training(contest_traces(site, settings=tiny(max_epochs=1)).training).models[0].about
    assert {"settings", "seed", "table_version", "code_version", "compute", "learn_days", "comparison"} <= set(about)
    assert about["compute"]["cpu_s"] > 0

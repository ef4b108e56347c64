"""Ensembles: one model per seed, none trained twice, and a stop anywhere loses at most an epoch or two."""

from __future__ import annotations

from tests.parts import need

need("torch")

import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.traces.networks import training
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.ensemble import train_ensemble
from tests.traces.small import one_torch_thread, small_windows, tiny

TRAIN, VALIDATION = small_windows(0), small_windows(1)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


def digests(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/weights.safetensors")}


def test_each_seed_has_its_model(tmp_path):
    told = []
    paths = train_ensemble(
        tiny(Architecture.JOB_GNN, seed=4),
        TRAIN,
        VALIDATION,
        models=2,
        folder=tmp_path,
        device="cpu",
        progress=lambda *x: told.append(x),
    )
    assert [path.name for path in paths] == ["job_gnn-4", "job_gnn-5"]
    assert [TraceAutoencoder.load(path).settings.seed for path in paths] == [4, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job_gnn-4", "job_gnn-5"]
    fractions = [fraction for fraction, _ in told]
    assert (
        fractions == sorted(fractions) and fractions[-1] == 1.0 and any("job_gnn 2 of 2: epoch 1" in words for _, words in told)
    )


def test_models_trained_in_processes_are_those_of_one_process(tmp_path):
    for workers in (1, 2):
        train_ensemble(tiny(), TRAIN, VALIDATION, models=2, folder=tmp_path / str(workers), device="cpu", engine=Engine(workers))
    assert digests(tmp_path / "1") == digests(tmp_path / "2") and len(digests(tmp_path / "1")) == 2


def test_a_stopped_ensemble_goes_on_to_the_same_models(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_EVERY_S", 0.0)
    train_ensemble(tiny(), TRAIN, VALIDATION, models=2, folder=tmp_path / "whole", device="cpu")

    def stopped(fraction, words):
        if "2 of 2: epoch 2" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_ensemble(tiny(), TRAIN, VALIDATION, models=2, folder=tmp_path / "parts", device="cpu", progress=stopped)
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["vanilla-0", "vanilla-1.checkpoint"]
    rest = []
    train_ensemble(
        tiny(), TRAIN, VALIDATION, models=2, folder=tmp_path / "parts", device="cpu", progress=lambda *words: rest.append(words)
    )
    assert not any(": epoch" in words and ("1 of 2:" in words or "epoch 1" in words) for _, words in rest)  # only what was left
    assert any("2 of 2: epoch" in words for _, words in rest)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["vanilla-0", "vanilla-1"]


def test_models_that_are_there_are_not_trained_again(tmp_path, monkeypatch):
    train_ensemble(tiny(), TRAIN, VALIDATION, models=1, folder=tmp_path, device="cpu")
    monkeypatch.setattr(TraceAutoencoder, "fit", lambda *_, **__: pytest.fail("trained again"))
    assert len(train_ensemble(tiny(), TRAIN, VALIDATION, models=1, folder=tmp_path, device="cpu")) == 1


@pytest.mark.parametrize(("settings", "seed"), [(tiny(hidden=8), 0), (tiny(), 7)], ids=["settings", "windows"])
def test_a_model_of_something_else_in_the_folder_is_refused(tmp_path, settings, seed):
    train_ensemble(tiny(), TRAIN, VALIDATION, models=1, folder=tmp_path, device="cpu")
    with pytest.raises(ModelError, match="other settings or other windows"):
        train_ensemble(settings, small_windows(seed), VALIDATION, models=1, folder=tmp_path, device="cpu")


def test_an_ensemble_of_none_is_refused(tmp_path):
    with pytest.raises(UsageError):
        train_ensemble(tiny(), TRAIN, VALIDATION, models=0, folder=tmp_path)

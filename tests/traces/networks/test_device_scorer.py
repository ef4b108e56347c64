"""Scoring on a device: it says what ONNX Runtime says, for one model and for an ensemble, in 32 bits and in 16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.traces.networks.architecture import FORMAT_VERSION, KIND, WEIGHTS, Architecture, Scorer
from stormpetrel.traces.networks.runtime import TraceScorer
from tests.parts import need
from tests.traces.small import one_torch_thread, small_windows, tiny

need("torch")

import torch

from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.device_scorer import (
    ABSOLUTE,
    FULL_TOLERANCE,
    HALF_TOLERANCE,
    DeviceEnsemble,
    DeviceScorer,
    DeviceSlidingScores,
)
from stormpetrel.traces.networks.stacked import Precision

TRAIN, VALIDATION, TEST = (small_windows(seed) for seed in range(3))
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _quiet():
    with one_torch_thread():
        yield


def _saved(folder: Path, architecture: Architecture, models: int = 1, **changes: object) -> list[Path]:
    paths = [folder / f"{architecture}-{seed}" for seed in range(models)]
    for seed, path in enumerate(paths):
        settings = tiny(architecture, max_epochs=2, seed=seed, **changes)
        TraceAutoencoder(settings).fit(TRAIN, VALIDATION, device="cpu").save(path)
    return paths


@pytest.fixture(scope="module", params=Architecture)
def saved(request, tmp_path_factory) -> list[Path]:
    with one_torch_thread():
        return _saved(tmp_path_factory.mktemp("models"), request.param, models=3)


@pytest.fixture(scope="module")
def vanilla(tmp_path_factory) -> Path:
    with one_torch_thread():
        return _saved(tmp_path_factory.mktemp("plain"), Architecture.VANILLA)[0]


@pytest.mark.parametrize("device", DEVICES)
def test_every_model_of_an_ensemble_says_what_onnx_runtime_says(saved, device):
    z, scores = DeviceEnsemble.load(saved, device=device, precision=Precision.FULL, portion=37).embed_and_score(TEST)
    for model, folder in enumerate(saved):
        expected_z, expected = TraceScorer.load(folder, threads=1).embed_and_score(TEST)
        assert np.allclose(scores[model], expected, rtol=FULL_TOLERANCE, atol=ABSOLUTE)
        assert np.abs(z[model] - expected_z).max() < 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_sixteen_bits_stay_within_the_stated_tolerance(saved, device):
    scores = DeviceEnsemble.load(saved, device=device, precision=Precision.HALF).score(TEST)
    for model, folder in enumerate(saved):
        expected = TraceScorer.load(folder, threads=1).score(TEST)
        assert np.allclose(scores[model], expected, rtol=HALF_TOLERANCE, atol=ABSOLUTE)


@pytest.mark.parametrize("device", DEVICES)
def test_one_model_has_the_interface_of_the_runtime(saved, device):
    ours: Scorer = DeviceScorer.load(saved[0], device=device, precision=Precision.FULL)
    theirs = TraceScorer.load(saved[0], threads=1)
    assert ours.settings == theirs.settings
    assert ours.score(TEST).dtype == np.float64
    assert np.abs(ours.embed(TEST) - theirs.embed(TEST)).max() < 1e-4
    assert np.abs(ours.reconstruct(TEST) - theirs.reconstruct(TEST)).max() < 1e-4


@pytest.mark.parametrize("architecture", [Architecture.VANILLA, Architecture.FAST])
@pytest.mark.parametrize("device", DEVICES)
def test_windows_and_channels_of_odd_sizes_are_scored_alike(tmp_path, architecture, device):
    rates = np.random.default_rng(0).dirichlet(np.ones(4), size=(5, 45)).astype(np.float32)
    windows = replace(small_windows().take(slice(5)), rates=rates)
    settings = tiny(architecture, steps=45, channels=(6, 10, 10))
    TraceAutoencoder(replace(settings, max_epochs=1)).fit(windows, windows, device="cpu").save(tmp_path / "odd")
    scores = DeviceScorer.load(tmp_path / "odd", device=device).score(windows)
    tolerance = FULL_TOLERANCE if device == "cpu" else HALF_TOLERANCE
    assert np.allclose(scores, TraceScorer.load(tmp_path / "odd", threads=1).score(windows), rtol=tolerance, atol=ABSOLUTE)


@pytest.mark.parametrize("device", DEVICES)
def test_a_window_whose_numbers_do_not_fit_into_sixteen_bits_is_scored_in_thirty_two(vanilla, tmp_path, device):
    from safetensors.numpy import load, save

    record, files = load_model_bytes(vanilla, kind=KIND, format_version=FORMAT_VERSION)
    weights = load(files[WEIGHTS])
    weights["encoder.hidden.bias"] = np.full_like(weights["encoder.hidden.bias"], 7e4)  # finite, and too large for 16 bits
    metadata = {name: record[name] for name in record if name not in {"kind", "format_version", "files", "digest"}}
    save_model(tmp_path / "large", kind=KIND, format_version=FORMAT_VERSION, metadata=metadata, files={WEIGHTS: save(weights)})
    half, full = (DeviceScorer.load(tmp_path / "large", device=device, precision=precision) for precision in reversed(Precision))
    scores = half.score(TEST)
    assert np.isfinite(scores).all()
    assert np.allclose(scores, full.score(TEST), rtol=FULL_TOLERANCE)


@pytest.mark.parametrize("device", DEVICES)
def test_sliding_scores_are_those_of_the_last_window_and_nan_after_a_gap(vanilla, device):
    ensemble = DeviceEnsemble.load([vanilla], device=device, precision=Precision.FULL, portion=3)
    rates = TEST.rates[:5]  # (threads, steps, 4)
    sliding = DeviceSlidingScores(ensemble, threads=5)
    steps = np.concatenate([rates[:, 8:], rates], axis=1)
    for step in range(steps.shape[1] - 1):
        scores = sliding.push(steps[:, step])
        assert torch.isfinite(scores).all().item() == (step >= rates.shape[1] - 1)
    scores = sliding.push(steps[:, -1]).cpu().numpy()
    assert np.allclose(scores[0], ensemble.score(TEST.take(slice(5)))[0], rtol=FULL_TOLERANCE)
    gap = steps[:, 0].copy()
    gap[2] = np.nan
    assert np.isnan(sliding.push(gap).cpu().numpy()[0]).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("device", DEVICES)
def test_windows_that_must_not_be_written_to_are_scored_in_place(vanilla, device):
    rates = TEST.rates.copy()
    rates.setflags(write=False)
    scorer = DeviceScorer.load(vanilla, device=device)
    assert np.array_equal(scorer.score(replace(TEST, rates=rates)), scorer.score(TEST))


@pytest.mark.parametrize("device", DEVICES)
def test_no_windows_have_no_scores_and_those_with_gaps_are_refused(vanilla, device):
    scorer = DeviceScorer.load(vanilla, device=device)
    assert scorer.embed_and_score(TEST.take(slice(0)))[0].shape == (0, scorer.settings.embedding)
    rates = TEST.rates.copy()
    rates[3, 2] = np.nan
    with pytest.raises(ModelError, match="not numbers"):
        scorer.score(replace(TEST, rates=rates))


def test_models_of_different_shapes_are_no_ensemble(vanilla, tmp_path):
    (other,) = _saved(tmp_path, Architecture.VANILLA, hidden=8)
    with pytest.raises(ModelError, match="another shape"):
        DeviceEnsemble.load([vanilla, other], device="cpu")


def test_an_ensemble_of_none_is_refused():
    with pytest.raises(ModelError, match="no models"):
        DeviceEnsemble.load([], device="cpu")


def test_weights_that_are_not_numbers_are_a_damaged_model(vanilla, tmp_path):
    from safetensors.numpy import load, save

    record, files = load_model_bytes(vanilla, kind=KIND, format_version=FORMAT_VERSION)
    weights = load(files[WEIGHTS])
    weights["encoder.hidden.bias"][0] = np.nan
    metadata = {name: record[name] for name in record if name not in {"kind", "format_version", "files", "digest"}}
    save_model(tmp_path / "nan", kind=KIND, format_version=FORMAT_VERSION, metadata=metadata, files={WEIGHTS: save(weights)})
    with pytest.raises(ModelFormatError, match="not numbers"):
        DeviceScorer.load(tmp_path / "nan", device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("architecture", [Architecture.VANILLA, Architecture.FAST])
def test_compiled_layers_say_what_the_plain_ones_say(architecture, precision, monkeypatch):
    """In Triton's interpreter where there is no GPU but Triton (TRITON_INTERPRET=1)."""
    from stormpetrel.traces.networks import stacked, stacked_kernels
    from stormpetrel.traces.networks.layers import make_network

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    networks = [make_network(tiny(architecture, seed=seed)).eval() for seed in range(2)]
    rates = torch.from_numpy(TEST.rates[:5]).to(device)
    scores = []
    for kernels in (None, stacked_kernels):
        monkeypatch.setattr(stacked, "_kernels", lambda *_, kernels=kernels: kernels)
        weights = [network.state_dict() for network in networks]
        stack = stacked.StackedNetwork(networks[0].settings, weights, device=device, precision=precision)
        with torch.inference_mode():
            scores.append(stack.error(stack.encode(rates), rates).cpu().numpy())
    assert np.allclose(*scores, rtol=FULL_TOLERANCE if precision is Precision.FULL else HALF_TOLERANCE)

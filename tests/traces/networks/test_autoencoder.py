"""The autoencoder: what it says of windows does not depend on their order or number, and survives saving."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.traces.networks import autoencoder
from stormpetrel.traces.networks.architecture import WEIGHTS, Architecture, Scorer
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from tests.parts import need
from tests.traces.small import one_torch_thread, small_windows, tiny

TRAIN, VALIDATION, TEST = (small_windows(seed) for seed in range(3))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module", params=Architecture)
def model(request):
    need("torch")
    return TraceAutoencoder(tiny(request.param)).fit(TRAIN, VALIDATION, device="cpu")


def test_the_score_is_the_mean_squared_difference_over_steps_and_four_modes(model):
    expected = np.square(model.reconstruct(TEST) - TEST.rates).mean(axis=(1, 2))
    assert np.allclose(model.score(TEST), expected, rtol=1e-4) and model.score(TEST).dtype == np.float64


def test_what_comes_back_has_the_shape_it_promises(model):
    scorer: Scorer = model
    assert scorer.embed(TEST).shape == (len(TEST), 4) and scorer.embed(TEST).dtype == np.float32
    rates = scorer.reconstruct(TEST)
    assert rates.shape == TEST.rates.shape and rates.dtype == np.float32
    assert np.allclose(rates.sum(axis=2), 1, atol=1e-5)


def test_the_order_of_the_windows_does_not_matter(model):
    order = np.random.default_rng(0).permutation(len(TEST))
    assert np.allclose(model.score(TEST.take(order)), model.score(TEST)[order], rtol=1e-3, atol=1e-7)
    assert np.allclose(model.embed(TEST.take(order)), model.embed(TEST)[order], atol=1e-4)


def test_small_batches_say_the_same(model, monkeypatch):
    whole = model.embed(TEST)
    monkeypatch.setattr(autoencoder, "_AT_ONCE", 10)
    assert np.allclose(model.embed(TEST), whole, atol=1e-4)


def test_a_gnn_hears_the_threads_beside_it_and_the_others_do_not(model):
    """The threads of an MPI job, with and without the other three."""
    alone = TEST.take(TEST.cpu == 0)
    together = model.embed(TEST)[TEST.cpu == 0]
    heard = not np.allclose(model.embed(alone), together, atol=1e-4)
    assert heard == model.settings.architecture.passes_messages


def test_a_job_gnn_does_not_hear_other_jobs(model):
    mpi = TEST.take(TEST.cpu < 4)
    same = np.allclose(model.embed(mpi), model.embed(TEST)[TEST.cpu < 4], atol=1e-4)
    assert same == (model.settings.architecture is not Architecture.NODE_GNN)


def test_no_windows_have_no_scores(model):
    none = TEST.take(slice(0))
    assert model.score(none).shape == (0,) and model.embed(none).shape == (0, 4) and model.reconstruct(none).shape == (0, 16, 4)


def test_windows_of_another_length_or_with_gaps_are_refused(model):
    with pytest.raises(ModelError, match="sees 16"):
        model.score(replace(TEST, rates=TEST.rates[:, :10]))
    broken = TEST.take(np.arange(5))
    broken.rates[2, 1] = np.nan
    with pytest.raises(ModelError, match="not numbers"):
        model.score(broken)


def test_rates_that_cannot_be_written_to_or_are_doubles_are_scored(model):
    locked = replace(TEST, rates=TEST.rates.copy())
    locked.rates.setflags(write=False)
    for windows in (locked, replace(TEST, rates=TEST.rates.astype(np.float64))):
        assert np.array_equal(model.score(windows), model.score(TEST))


@pytest.mark.needs("torch")
def test_one_that_was_not_trained_says_so(tmp_path):
    for use in (lambda new: new.score(TEST), lambda new: new.embed(TEST), lambda new: new.save(tmp_path / "m")):
        with pytest.raises(ModelError, match="not been trained"):
            use(TraceAutoencoder(tiny()))


def test_a_saved_one_says_the_same(model, tmp_path):
    model.save(tmp_path / "m")
    again = TraceAutoencoder.load(tmp_path / "m")
    assert np.array_equal(again.score(TEST), model.score(TEST)) and np.array_equal(again.embed(TEST), model.embed(TEST))
    assert (again.settings, again.history_, again.data_) == (model.settings, model.history_, model.data_)


def test_the_record_says_what_it_was_trained_on(model, tmp_path):
    model.save(tmp_path / "m")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    assert record["kind"] == "traces" and record["settings"]["architecture"] == model.settings.architecture
    assert record["data"]["train"] | {"digest": ""} == {
        "traces": ["run"], "windows": 280, "step_s": 1.0, "first_s": 1000.0, "last_s": 1320.0, "digest": "",
    }  # fmt: skip
    assert len(record["history"]["validation"]) == 4 and record["versions"]["torch"] and record["data"]["device"] == "cpu"


def test_nothing_saved_is_code(model, tmp_path):
    model.save(tmp_path / "m")
    assert {path.suffix for path in (tmp_path / "m").iterdir()} == {".json", ".safetensors", ".onnx"}


@pytest.mark.needs("torch")
def test_weights_of_another_network_are_refused(tmp_path):
    for name, settings in (("small", tiny()), ("large", tiny(hidden=32))):
        TraceAutoencoder(settings).fit(TRAIN, VALIDATION, device="cpu").save(tmp_path / name)
    (tmp_path / "small" / WEIGHTS).write_bytes((tmp_path / "large" / WEIGHTS).read_bytes())
    with pytest.raises(ModelFormatError, match="not the file that was saved"):
        TraceAutoencoder.load(tmp_path / "small")


@pytest.mark.needs("torch")
def test_a_folder_without_a_model_names_the_command_that_trains_one(tmp_path):
    with pytest.raises(ModelFormatError, match="stormpetrel traces train"):
        TraceAutoencoder.load(tmp_path / "none")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(autoencoder, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[traces\]"):
        TraceAutoencoder(tiny()).fit(TRAIN, VALIDATION)


def test_a_training_that_begins_with_earlier_weights_is_good_from_its_first_epoch_on():
    need("torch")
    cold = TraceAutoencoder(tiny(max_epochs=8)).fit(TRAIN, VALIDATION, device="cpu")
    warm = TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu", warm_from=cold)
    assert warm.history_.validation[0] < cold.history_.validation[0]
    with pytest.raises(ModelError, match="another shape"):
        TraceAutoencoder(tiny(embedding=3)).fit(TRAIN, VALIDATION, device="cpu", warm_from=cold)

"""Training: it learns, stops where it should, repeats bit by bit, goes on after a stop, and refuses what teaches nothing."""

from __future__ import annotations

from tests.parts import need

need("torch")

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.traces import UNKNOWN_JOB
from stormpetrel.traces.networks import training
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.training import TrainingHistory, device_named, learning_rate_after, shifted
from tests.traces.small import STEPS, one_torch_thread, small_windows, tiny

TRAIN, VALIDATION = small_windows(0), small_windows(1)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


def weights(model: TraceAutoencoder) -> dict[str, torch.Tensor]:
    return model.network_.state_dict()


def same(one: TraceAutoencoder, other: TraceAutoencoder) -> bool:
    return all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())


@pytest.mark.parametrize("architecture", Architecture)
def test_the_error_falls_and_normal_windows_come_back_better_than_bad_ones(architecture):
    model = TraceAutoencoder(tiny(architecture, max_epochs=12)).fit(TRAIN, VALIDATION, device="cpu")
    assert model.history_.validation[model.history_.best_epoch] < 0.5 * model.history_.validation[0]
    test = small_windows(2)
    scores, bad = model.score(test), test.is_anomalous()
    assert scores[bad].min() > scores[~bad].max()


def test_anomalous_windows_teach_nothing():
    without = TRAIN.take(~TRAIN.is_anomalous())
    one, other = (TraceAutoencoder(tiny()).fit(windows, VALIDATION, device="cpu") for windows in (TRAIN, without))
    assert same(one, other)


def test_the_weights_of_the_best_epoch_are_kept():
    model = TraceAutoencoder(tiny(learning_rate=0.2, max_epochs=8)).fit(TRAIN, VALIDATION, device="cpu")
    errors = model.history_.validation
    assert errors[-1] > min(errors)  # a rate at which it jumps about
    assert model.score(VALIDATION.of_normal()).mean() == pytest.approx(min(errors), rel=1e-4)


def test_it_stops_where_it_no_longer_helps(monkeypatch):
    errors = iter([0.5, 0.3, 0.4, 0.3, 0.35, 0.1, 0.1])
    monkeypatch.setattr(training._Training, "_validation_error", lambda self: next(errors))
    model = TraceAutoencoder(tiny(patience=3, max_epochs=50)).fit(TRAIN, VALIDATION, device="cpu")
    assert model.history_.validation == (0.5, 0.3, 0.4, 0.3, 0.35) and model.history_.best_epoch == 1


def test_training_leaves_torch_as_it_was():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu")
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads


def test_crumbs_are_no_reason_to_go_on_but_the_best_weights_are_kept(monkeypatch):
    errors = iter([0.5, 0.4999, 0.4998, 0.4997, 0.4996])
    monkeypatch.setattr(training._Training, "_validation_error", lambda self: next(errors))
    model = TraceAutoencoder(tiny(patience=3, max_epochs=50)).fit(TRAIN, VALIDATION, device="cpu")
    assert model.history_.validation == (0.5, 0.4999, 0.4998, 0.4997) and model.history_.best_epoch == 3


class KilledError(Exception):
    pass


def killed_at(epoch: int):
    done = []

    def progress(fraction: float, words: str) -> None:
        done.append(fraction)
        if len(done) == epoch:
            raise KilledError

    return progress


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("every_s", [0.0, 3600.0], ids=["every epoch", "the first epoch"])
def test_a_training_that_was_killed_goes_on_to_the_same_weights(architecture, every_s, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_EVERY_S", every_s)
    settings = tiny(architecture, max_epochs=5)
    whole = TraceAutoencoder(settings).fit(TRAIN, VALIDATION, device="cpu")
    for epoch in (2, 1):
        with pytest.raises(KilledError):
            TraceAutoencoder(settings).fit(
                TRAIN, VALIDATION, device="cpu", progress=killed_at(epoch), checkpoint=tmp_path / "checkpoint"
            )
    resumed = TraceAutoencoder(settings).fit(TRAIN, VALIDATION, device="cpu", checkpoint=tmp_path / "checkpoint")
    assert same(whole, resumed) and resumed.history_ == whole.history_
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("architecture", [Architecture.NODE_GNN, Architecture.JOB_GNN])
def test_nodes_of_one_thread_send_no_messages_and_their_training_goes_on_all_the_same(architecture, tmp_path):
    train, validation = (windows.take(windows.cpu == 0) for windows in (TRAIN, VALIDATION))
    settings = tiny(architecture, max_epochs=3)
    whole = TraceAutoencoder(settings).fit(train, validation, device="cpu")
    with pytest.raises(KilledError):
        TraceAutoencoder(settings).fit(train, validation, device="cpu", progress=killed_at(1), checkpoint=tmp_path / "one")
    assert same(whole, TraceAutoencoder(settings).fit(train, validation, device="cpu", checkpoint=tmp_path / "one"))


def test_a_training_that_was_over_is_not_done_again(tmp_path):
    path = tmp_path / "checkpoint"
    first = TraceAutoencoder(tiny()).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)
    again = TraceAutoencoder(tiny()).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path, progress=killed_at(1))
    assert same(first, again)


@pytest.mark.parametrize("change", ["settings", "windows"])
def test_the_checkpoint_of_another_training_is_refused(tmp_path, change):
    path = tmp_path / "checkpoint"
    TraceAutoencoder(tiny()).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)
    before = path.read_bytes()
    settings, train = (tiny(seed=1), TRAIN) if change == "settings" else (tiny(), small_windows(5))
    with pytest.raises(ModelError, match="other settings or other windows"):
        TraceAutoencoder(settings).fit(train, VALIDATION, device="cpu", checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"x" * 100, b"\xff" * 8, None], ids=["empty", "letters", "huge header", "cut"])
def test_a_damaged_checkpoint_is_refused_in_one_sentence(tmp_path, damage):
    path = tmp_path / "checkpoint"
    TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)
    path.write_bytes(path.read_bytes()[:-50] if damage is None else damage)
    with pytest.raises(ModelError, match="cannot be read") as caught:
        TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_with_weights_missing_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys() if key != "best/decoder.flat.bias"}  # noqa: SIM118
    path.write_bytes(save(tensors, metadata=header))
    with pytest.raises(ModelError, match="does not fit this training"):
        TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu", checkpoint=path)


def test_progress_rises_to_one_and_says_how_it_goes():
    told = []
    TraceAutoencoder(tiny()).fit(TRAIN, VALIDATION, device="cpu", progress=lambda *words: told.append(words))
    assert [fraction for fraction, _ in told] == [0.25, 0.5, 0.75, 1.0]
    assert "epoch 4: validation error" in told[-1][1]


def nothing(windows):
    return windows.take(slice(0))


def with_nan(windows):
    rates = windows.rates.copy()
    rates[4, 3] = np.nan
    return replace(windows, rates=rates)


def jobless(windows):
    return replace(windows, job=np.full(len(windows), UNKNOWN_JOB, dtype=np.int32))


@pytest.mark.parametrize(
    ("train", "validation", "settings", "message"),
    [
        (nothing(TRAIN), VALIDATION, tiny(), "no normal windows to train on"),
        (TRAIN.take(TRAIN.is_anomalous()), VALIDATION, tiny(), "no normal windows to train on"),
        (TRAIN, nothing(VALIDATION), tiny(), "validation"),
        (with_nan(TRAIN), VALIDATION, tiny(), "not numbers"),
        (TRAIN, with_nan(VALIDATION), tiny(), "not numbers"),
        (TRAIN, VALIDATION, tiny(steps=20), "16 steps, and the autoencoder sees 20"),
        (jobless(TRAIN), VALIDATION, tiny(Architecture.JOB_GNN), "no window says which job"),
        (TRAIN, VALIDATION, tiny(), "diverged"),
    ],
    ids=["none", "only bad", "no validation", "NaN", "NaN in validation", "length", "no jobs", "diverges"],
)
def test_what_teaches_nothing_is_refused_in_one_sentence(train, validation, settings, message, monkeypatch):
    if message == "diverged":
        monkeypatch.setattr(training._Training, "_validation_error", lambda self: float("nan"))
    with pytest.raises(ModelError, match=message) as caught:
        TraceAutoencoder(settings).fit(train, validation, device="cpu")
    assert "\n" not in str(caught.value)


def test_threads_of_unknown_jobs_are_learnt_from_without_a_graph_of_jobs():
    TraceAutoencoder(tiny(Architecture.NODE_GNN, max_epochs=1)).fit(jobless(TRAIN), VALIDATION, device="cpu")


@pytest.mark.parametrize("name", ["gpu9", "", "cuda"])
def test_a_device_that_is_not_there_is_refused(name):
    if name == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError):
        device_named(name)


def test_auto_is_the_gpu_if_there_is_one():
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_the_learning_rate_is_halved_where_the_error_stalls():
    settings = tiny(patience=6, learning_rate=0.8)
    rates = [learning_rate_after([0.5, 0.4, 0.6, 0.6, 0.6, 0.6, 0.3][:epoch], settings) for epoch in range(8)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.4, 0.4, 0.2, 0.2])


def test_a_node_that_almost_only_idles_is_learnt_all_the_same():
    """From an even answer, the softmax saturated within an epoch and stayed there: the error no longer moved."""
    rng = np.random.default_rng(0)
    busy = np.where(rng.random((2, 400, 1)) < 0.08, rng.uniform(0.2, 1, (2, 400, 1)), 0.0)  # (part, windows, 1)
    user = np.repeat(busy, STEPS, axis=2).astype(np.float32)  # (part, windows, steps)
    rates = np.stack([user, 0 * user, 0 * user, 1 - user], axis=3)  # (part, windows, steps, 4)
    some = np.resize(np.arange(len(TRAIN.of_normal())), 400)
    train, validation = (replace(TRAIN.of_normal().take(some), rates=part) for part in rates)
    settings = tiny(channels=(16, 32), kernel=5, hidden=64, max_epochs=15, learning_rate=0.01)
    history = TraceAutoencoder(settings).fit(train, validation, device="cpu").history_
    assert min(history.validation) < 0.2 * history.validation[0]
    assert min(history.validation) < 0.1 * float(((rates[1] - rates[1].mean(axis=(0, 1))) ** 2).mean())


@pytest.mark.parametrize("record", [None, [], {}, {"train": [1.0], "validation": []}, {"train": ["x"], "validation": ["y"]}])
def test_a_record_that_is_no_history_is_refused(record):
    with pytest.raises(ValueError):
        TrainingHistory.of_record(record)


def test_shifted_windows_hold_the_same_steps_in_the_same_order_from_another_on():
    rates = torch.arange(40, dtype=torch.float32).reshape(8, 5, 1).expand(-1, -1, 4)
    found = shifted(rates, torch.Generator().manual_seed(0))
    rolls = [[torch.equal(found[row], rates[row].roll(-by, 0)) for by in range(5)] for row in range(8)]
    assert all(any(row) for row in rolls) and len({row.index(True) for row in rolls}) > 2


def test_the_fast_network_learns_from_shifted_windows_and_is_judged_on_windows_as_they_are(monkeypatch):
    seen = []
    monkeypatch.setattr(training, "shifted", lambda rates, generator: seen.append(len(rates)) or rates)
    for kind in (Architecture.VANILLA, Architecture.FAST):
        TraceAutoencoder(tiny(kind, max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu")
    assert sum(seen) == len(TRAIN.of_normal())

"""The loop of the recurrent networks: it stops where it should, goes on after a stop, and refuses a foreign checkpoint."""

from __future__ import annotations

from tests.parts import need

need("torch")

import numpy as np
import pytest
import torch

from stormpetrel.errors import ModelError
from stormpetrel.events.recurrent import training as recurrent_training
from stormpetrel.events.recurrent.numpy_cells import Sizes
from stormpetrel.events.recurrent.training import Lesson, Pace, make_network, rate_after, task_of, train, windows_of

PACE = Pace(learning_rate=0.03, batch=20, max_epochs=5, patience=3, seed=1)


def lesson(judge=None, task="task") -> Lesson:
    """Is the last row of a window above zero in its first column?"""
    columns = np.random.default_rng(0).normal(size=(160, 3))
    network = make_network(Sizes(width=3, hidden=4, outputs=2), dropout=0.3, seed=1)
    windows, target = windows_of(columns, 6), torch.from_numpy((columns[:, 0] > 0).astype(np.int64))
    later = torch.arange(120, 160)

    def loss(rows):
        return torch.nn.functional.cross_entropy(network(windows(rows)), target[rows])

    def order(generator):
        return torch.randperm(120, generator=generator)

    return Lesson(network, loss, judge or (lambda: float(loss(later))), order, task)


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class StoppedError(Exception):
    """Somebody has stopped the training."""


def stop_after(epochs: int):
    def progress(_share: float, words: str) -> None:
        if words.startswith(f"epoch {epochs}:"):
            raise StoppedError

    return progress


def test_it_learns_and_repeats_and_leaves_torch_as_it_was():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    one, history = train(lesson(), PACE)
    other, _ = train(lesson(), PACE)
    assert same(one, other) and history.judged[-1] < 0.8 * history.judged[0]
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads


def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(recurrent_training, "CHECKPOINT_EVERY_S", 0.0)
    whole, history = train(lesson(), PACE)
    path = tmp_path / "training.safetensors"
    with pytest.raises(StoppedError):
        train(lesson(), PACE, checkpoint=path, progress=stop_after(2))
    resumed, again = train(lesson(), PACE, checkpoint=path)
    assert same(resumed, whole) and again == history
    done, _ = train(lesson(), PACE, checkpoint=path)  # nothing is left to do
    assert same(done, whole)


def test_the_weights_of_the_best_epoch_are_kept_and_it_stops_when_nothing_helps():
    errors = iter([0.5, 0.3, 0.4, 0.3, 0.35, 0.1])
    kept, history = train(lesson(lambda: next(errors)), PACE)
    assert history.judged == [0.5, 0.3, 0.4, 0.3, 0.35]
    errors = iter([0.5, 0.3, 0.4, 0.3])
    until_then, _ = train(lesson(lambda: next(errors)), Pace(0.03, 20, 4, 3, 1))
    assert same(kept, until_then)  # the fourth is as good as the second, and later


def test_the_rate_falls_while_nothing_helps():
    pace = Pace(learning_rate=1.0, batch=1, max_epochs=9, patience=4, seed=0)
    assert [rate_after(errors, pace) for errors in ([], [3.0, 2.0], [2.0, 2.0], [2.0] * 3, [2.0] * 5)] == [1, 1, 1, 0.5, 0.25]


@pytest.mark.parametrize("contents", [b"", b"no tensors", b"\xff" * 64])
def test_a_damaged_checkpoint_is_refused(tmp_path, contents):
    path = tmp_path / "training.safetensors"
    path.write_bytes(contents)
    with pytest.raises(ModelError, match="cannot be read"):
        train(lesson(), PACE, checkpoint=path)


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "training.safetensors"
    train(lesson(), PACE, checkpoint=path)
    with pytest.raises(ModelError, match="other settings or another series"):
        train(lesson(task="another"), PACE, checkpoint=path)


def test_a_task_is_told_apart_by_settings_and_numbers():
    numbers = np.arange(6.0)
    tasks = {
        task_of({"a": 1}, numbers),
        task_of({"a": 2}, numbers),
        task_of({"a": 1}, numbers + 1),
        task_of({"a": 1}, numbers[:, None]),
    }
    assert len(tasks) == 4


def test_divergence_is_an_error_in_words():
    with pytest.raises(ModelError, match="diverged in epoch 1"):
        train(lesson(lambda: float("nan")), PACE)

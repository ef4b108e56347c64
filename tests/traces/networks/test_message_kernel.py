"""The compiled message passing: what the definition says, for graphs of any size in any order."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.traces.networks.message_kernel import PREFIX, MessageKernel


def _weights(embedding: int, *, units: int = 16, inner: int = 64) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "receiver.weight": (units, embedding), "receiver.bias": (units,), "sender.weight": (units, embedding),
        "weight.weight": (1, units), "weight.bias": (1,), "hidden.weight": (inner, 2 * embedding), "hidden.bias": (inner,),
        "update.weight": (embedding, inner), "update.bias": (embedding,),
    }  # fmt: skip
    return {PREFIX + name: (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32) for name, shape in shapes.items()}


def _defined(z: np.ndarray, graphs: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    """The definition, pair by pair, in double precision."""
    w = {name.removeprefix(PREFIX): value.astype(np.float64) for name, value in weights.items()}
    answer = np.empty(z.shape)
    for i, mine in enumerate(z.astype(np.float64)):
        others = [j for j in np.flatnonzero(graphs == graphs[i]) if j != i]
        message = np.zeros(z.shape[1])
        for j in others:
            hidden = np.maximum(w["receiver.weight"] @ mine + w["receiver.bias"] + w["sender.weight"] @ z[j], 0)
            message += (w["weight.weight"][0] @ hidden + w["weight.bias"][0]) * z[j] / len(others)
        hidden = np.maximum(w["hidden.weight"] @ np.concatenate([mine, message]) + w["hidden.bias"], 0)
        answer[i] = mine + w["update.weight"] @ hidden + w["update.bias"]
    return answer


@pytest.mark.parametrize("embedding", [1, 4, 13, 16])
@pytest.mark.parametrize("threads", [1, 2, 7, 33])
def test_it_is_the_definition_for_graphs_and_embeddings_of_any_size(embedding, threads):
    z = np.random.default_rng(1).normal(size=(2 * threads + 1, embedding)).astype(np.float32)
    graphs = np.arange(len(z)) // threads
    weights = _weights(embedding)
    kernel = MessageKernel.of_weights(embedding, weights)
    assert np.abs(kernel(z, graphs) - _defined(z, graphs, weights)).max() < 1e-5


def test_other_numbers_of_hidden_units_are_filled_up():
    z = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
    graphs = np.arange(12) // 5
    weights = _weights(6, units=21, inner=9)
    assert np.abs(MessageKernel.of_weights(6, weights)(z, graphs) - _defined(z, graphs, weights)).max() < 1e-5


def test_threads_of_different_graphs_may_lie_in_any_order():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(40, 8)).astype(np.float32)
    graphs = rng.integers(0, 5, size=40) * 1_000_000_007
    weights = _weights(8)
    assert np.abs(MessageKernel.of_weights(8, weights)(z, graphs) - _defined(z, graphs, weights)).max() < 1e-5


def test_a_thread_hears_its_own_graph_only():
    kernel = MessageKernel.of_weights(8, _weights(8))
    z = np.random.default_rng(3).normal(size=(6, 8)).astype(np.float32)
    graphs = np.array([0, 0, 0, 1, 1, 2])
    louder = z.copy()
    louder[4] *= 10
    changed = np.abs(kernel(louder, graphs) - kernel(z, graphs)).max(axis=1) > 0
    assert changed.tolist() == [False, False, False, True, True, False]


def test_no_windows_give_no_embeddings():
    assert MessageKernel.of_weights(8, _weights(8))(np.empty((0, 8), np.float32), np.empty(0, np.int64)).shape == (0, 8)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights.pop(PREFIX + "sender.weight"),
        lambda weights: weights.update({PREFIX + "more": np.zeros(3, np.float32)}),
        lambda weights: weights.update({PREFIX + "hidden.bias": np.ones((), np.float32)}),
        lambda weights: weights.update({PREFIX + "update.weight": np.zeros((8, 63), np.float32)}),
        lambda weights: weights.update({PREFIX + "receiver.bias": np.zeros(16)}),
        lambda weights: weights.clear(),
    ],
    ids=["one missing", "one more", "no axis", "too short", "doubles", "none"],
)
def test_weights_that_do_not_fit_are_refused_before_a_loop_trusts_them(change):
    weights = _weights(8)
    change(weights)
    with pytest.raises(ModelFormatError, match="message passing"):
        MessageKernel.of_weights(8, weights)

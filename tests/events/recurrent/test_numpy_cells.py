"""The forward pass without torch says what torch says."""

from __future__ import annotations

from tests.parts import need

need("torch")

import numpy as np
import pytest
import torch

from stormpetrel.events.recurrent.numpy_cells import Sizes, answers, check_weights
from stormpetrel.events.recurrent.training import make_network, windows_of

SHAPES = [Sizes(width=7, hidden=5, outputs=2), Sizes(width=4, hidden=6, outputs=3)]


def made(sizes: Sizes, buckets: int = 60):
    rng = np.random.default_rng(1)
    network = make_network(sizes, dropout=0.3, seed=3).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(3.0)  # far from the linear part of the gates
    weights = {name: weight.numpy() for name, weight in network.state_dict().items()}
    return network, weights, 3 * rng.normal(size=(buckets, sizes.width))


@pytest.mark.parametrize("sizes", SHAPES)
def test_both_give_the_same_answers(sizes):
    network, weights, columns = made(sizes)
    ends = np.array([0, 3, 11, 12, 40, 59])
    with torch.no_grad():
        expected = network(windows_of(columns, 12)(torch.from_numpy(ends))).numpy()
    found = answers(weights, columns, ends, 12)
    assert np.abs(expected).max() > 0.5
    assert found == pytest.approx(expected, abs=1e-5)


def test_an_answer_depends_on_its_window_alone():
    _, weights, columns = made(SHAPES[0])
    all_at_once = answers(weights, columns, np.arange(60), 12)
    alone = answers(weights, columns[39:51], np.array([11]), 12)
    assert alone[0] == pytest.approx(all_at_once[50], abs=1e-12)
    columns[38] += 100
    assert answers(weights, columns, np.array([50]), 12)[0] == pytest.approx(all_at_once[50], abs=1e-12)


def test_more_windows_than_fit_in_one_pass(monkeypatch):
    _, weights, columns = made(SHAPES[0])
    expected = answers(weights, columns, np.arange(60), 12)
    monkeypatch.setattr("stormpetrel.events.recurrent.numpy_cells._AT_ONCE", 7)
    assert answers(weights, columns, np.arange(60), 12) == pytest.approx(expected, abs=1e-12)
    assert answers(weights, columns, np.arange(0), 12).shape == (0, 2)


def test_weights_of_another_network_are_refused():
    _, weights, _ = made(SHAPES[0])
    check_weights(weights, SHAPES[0])
    with pytest.raises(ValueError, match="do not fit"):
        check_weights(weights, SHAPES[1])
    with pytest.raises(ValueError, match="no number"):
        check_weights(weights | {"answer.bias": np.full(2, np.nan, dtype=np.float32)}, SHAPES[0])

"""What is asked for in training, and what rows look like to a network."""

from tests.parts import need

need("torch")

import numpy as np
import pytest
import torch

from stormpetrel.errors import UsageError
from stormpetrel.synth.rows.networks import Averaged, Conditions, Critic, RowsByCategory, RowShape, device_named, seeded
from stormpetrel.synth.rows.table_encoding import Encoded

CPU = torch.device("cpu")


def test_rare_categories_are_asked_for_more_often_in_training_than_afterwards():
    codes = np.repeat([0, 1], [990, 10])[:, None]
    conditions = Conditions.of_codes(codes, (2,))
    rng = np.random.default_rng(0)
    asked = [conditions.draw(4000, rng, evenly=evenly, height=1000)[1].mean() for evenly in (True, False)]
    assert asked[0] == pytest.approx(np.log(11) / (np.log(11) + np.log(991)), abs=0.03) and asked[1] == pytest.approx(
        0.01, abs=0.01
    )


def test_a_row_of_the_category_asked_for_is_found():
    codes = np.random.default_rng(0).integers(0, [3, 5], size=(200, 2))
    columns, categories = np.array([0, 1, 1, 0]), np.array([2, 4, 0, 1])
    rows = RowsByCategory(codes, (3, 5)).draw(columns, categories, np.random.default_rng(1))
    assert codes[rows, columns].tolist() == categories.tolist()


def test_rows_look_as_they_are_and_raw_outputs_become_rows():
    look = RowShape(1, (2, 3))
    rows = Encoded(np.array([[0.5], [-0.5]], dtype=np.float32), np.array([[1, 2], [0, 0]]))
    tensor = look.as_tensor(rows, CPU)
    assert tensor.tolist() == [[0.5, 0, 1, 0, 0, 1], [-0.5, 1, 0, 1, 0, 0]]
    back = look.choose(tensor * 100, np.random.default_rng(0))
    assert back.modes.tolist() == rows.modes.tolist()
    active = look.activate(tensor * 100)
    assert active[:, 1:].sum(dim=1).tolist() == pytest.approx([2, 2]) and active[:, 0].abs().max() <= 1


def test_the_critic_judges_packs_and_its_penalty_sees_a_slope_that_is_not_one():
    with seeded(0, CPU):
        critic = Critic(4, together=10)
        real, fake = torch.randn(50, 4), torch.randn(50, 4)
        assert critic(real).shape == (5, 1)
        assert critic.gradient_penalty(real, fake) > 0
        for weights in critic.parameters():
            torch.nn.init.zeros_(weights)
        assert critic.gradient_penalty(real, fake).item() == pytest.approx(10.0)


def test_an_averaged_network_forgets_what_it_was_and_follows():
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, 100.0)
    average = Averaged(network)
    torch.nn.init.zeros_(network.weight)
    for _ in range(40):
        average.follow(network)
    assert 0 <= average.network.weight.item() < 1e-3
    torch.nn.init.ones_(network.weight)
    average.follow(network)
    assert 0 < average.network.weight.item() < 0.3


def test_randomness_elsewhere_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1, CPU):
        torch.rand(7)
    assert torch.equal(torch.rand(3), expected)


def test_a_device_that_is_not_there_is_refused():
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no GPU"):
            device_named("cuda")
    with pytest.raises(UsageError, match="Known: auto, cpu, cuda"):
        device_named("tpu")

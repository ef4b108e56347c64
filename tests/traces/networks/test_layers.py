"""Networks: shapes, shares that sum to one, FLOP as torch counts them, and no trace left in torch's random state."""

from __future__ import annotations

from tests.parts import need

need("torch")

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, flops_per_window
from stormpetrel.traces.networks.layers import make_network, network_of
from tests.traces.small import one_torch_thread, tiny

FAST = AutoencoderSettings(architecture=Architecture.FAST)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


def some_rates(windows: int, steps: int) -> torch.Tensor:
    return torch.rand(windows, steps, 4, generator=torch.Generator().manual_seed(1)).softmax(2)


@pytest.mark.parametrize(
    "settings",
    [AutoencoderSettings(), AutoencoderSettings(steps=37), tiny(), tiny(channels=(4, 4, 8)), FAST, replace(FAST, steps=37)],
)
def test_the_flop_per_window_are_those_that_torch_counts(settings):
    with FlopCounterMode(display=False) as counter:
        make_network(settings)(some_rates(2, settings.steps))
    assert counter.get_total_flops() == 2 * flops_per_window(settings)


@pytest.mark.parametrize("steps", [8, 9, 10, 11, 100])
def test_a_window_comes_back_in_its_length_and_sums_to_one(steps):
    network = make_network(tiny(steps=steps))
    rates = network(some_rates(3, steps))
    assert rates.shape == (3, steps, 4)
    assert torch.allclose(rates.sum(2), torch.ones(3, steps), atol=1e-5) and (rates >= 0).all()


@pytest.mark.parametrize("steps", [8, 10, 37, 100])
def test_what_comes_back_of_patches_has_the_length_of_the_window_and_sums_to_one(steps):
    rates = make_network(tiny(Architecture.FAST, steps=steps))(some_rates(3, steps))
    assert rates.shape == (3, steps, 4) and torch.allclose(rates.sum(2), torch.ones(3, steps), atol=1e-5)


@pytest.mark.parametrize("architecture", [Architecture.VANILLA, Architecture.FAST])
def test_the_redundant_mode_is_not_an_input(architecture):
    network, rates = make_network(tiny(architecture)), some_rates(3, 16)
    changed = rates.clone()
    changed[:, :, 3] = 0.5
    assert torch.equal(network.encoder(rates), network.encoder(changed))
    changed[:, :, 0] = 0.5
    assert not torch.equal(network.encoder(rates), network.encoder(changed))


def test_all_three_convolutional_architectures_have_the_same_encoder_and_decoder():
    shapes = [
        {name: tensor.shape for name, tensor in make_network(tiny(kind)).state_dict().items() if "message" not in name}
        for kind in Architecture
        if kind is not Architecture.FAST
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_the_seed_alone_decides_the_first_weights():
    before = torch.get_rng_state()
    first, again, other = (make_network(tiny(seed=seed)).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.hidden.weight"], other["encoder.hidden.weight"])
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_make_the_network_that_they_came_from():
    network = make_network(tiny(seed=5))
    rates = some_rates(3, 16)
    assert torch.equal(network_of(tiny(), network.state_dict())(rates), network(rates))


@pytest.mark.parametrize("change", [{"hidden": 4096, "steps": 4096}, {"kernel": 5}, {"architecture": Architecture.JOB_GNN}])
def test_weights_of_other_settings_are_refused(change):
    with pytest.raises(ValueError, match="do not fit"):
        network_of(replace(tiny(), **change), make_network(tiny()).state_dict())

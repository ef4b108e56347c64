"""Networks: the autoencoders in torch; three share a convolutional encoder and decoder, `fast` has its own of patches.

rates (windows, steps, 4) -> Encoder -> z (windows, embedding) -> [MessagePassing] -> Decoder -> rates (windows, steps, 4).
A window whose length the blocks do not divide is filled up by repeating its last step; what comes back is cut to its length.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpetrel.records.traces import MODES
from stormpetrel.traces.networks.architecture import (
    INPUT_MODES,
    LEAK,
    PATCH_STEPS,
    Architecture,
    AutoencoderSettings,
    decoder_channels,
)
from stormpetrel.traces.networks.message_passing import Graphs, MessagePassing


class EncoderBlock(nn.Module):
    """Convolution and residual, then the larger of each two steps."""

    def __init__(self, inside: int, outside: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inside, outside, kernel, padding=kernel // 2)
        self.residual = _residual(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        """(windows, inside, steps) -> (windows, outside, steps / 2)."""
        return functional.max_pool1d(functional.relu(self.convolution(x)) + self.residual(x), 2)


class Encoder(nn.Module):
    """Blocks, then an MLP to the embedding; `other` is not an input."""

    def __init__(self, settings: AutoencoderSettings) -> None:
        super().__init__()
        self.fill = settings.padded_steps - settings.steps
        sizes = pairwise((INPUT_MODES, *settings.channels))
        self.blocks = nn.Sequential(*(EncoderBlock(inside, outside, settings.kernel) for inside, outside in sizes))
        self.hidden = nn.Linear(settings.flat, settings.hidden)
        self.embedding = nn.Linear(settings.hidden, settings.embedding)

    def forward(self, rates: Tensor) -> Tensor:
        """(windows, steps, 4) -> (windows, embedding)."""
        x = rates[:, :, :INPUT_MODES].transpose(1, 2)  # (windows, 3, steps)
        if self.fill:
            x = functional.pad(x, (0, self.fill), mode="replicate")
        x = self.blocks(x).flatten(1)  # (windows, channels × innermost steps)
        embedding: Tensor = self.embedding(functional.relu(self.hidden(x)))
        return embedding


class DecoderBlock(nn.Module):
    """Each step twice, then convolution and residual.

    A 1 × 1 convolution gives the same before the steps are doubled as after, and costs half.
    """

    def __init__(self, inside: int, outside: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inside, outside, kernel, padding=kernel // 2)
        self.residual = _residual(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        """(windows, inside, steps) -> (windows, outside, 2 × steps)."""
        return functional.relu(self.convolution(_doubled(x))) + _doubled(self.residual(x))


class Decoder(nn.Module):
    """The encoder backwards, and a softmax over the modes at each step."""

    def __init__(self, settings: AutoencoderSettings) -> None:
        super().__init__()
        self.steps = settings.steps
        self.shape = (settings.channels[-1], settings.innermost_steps)
        self.hidden = nn.Linear(settings.embedding, settings.hidden)
        self.flat = nn.Linear(settings.hidden, settings.flat)
        sizes = pairwise(decoder_channels(settings))
        self.blocks = nn.Sequential(*(DecoderBlock(inside, outside, settings.kernel) for inside, outside in sizes))
        self.modes = nn.Conv1d(settings.channels[0], len(MODES), settings.kernel, padding=settings.kernel // 2)

    def forward(self, z: Tensor) -> Tensor:
        """(windows, embedding) -> (windows, steps, 4)."""
        x = functional.relu(self.flat(functional.relu(self.hidden(z))))
        x = self.blocks(x.reshape(-1, *self.shape))  # (windows, channels, padded steps)
        return functional.softmax(self.modes(x), dim=1).transpose(1, 2)[:, : self.steps]

    def begin_at(self, mean: Tensor) -> None:
        """Answer with these shares (4,) of the modes, about, whatever the embedding."""
        assert self.modes.bias is not None
        self.modes.bias.copy_(mean.log())


class AutoencoderNetwork(nn.Module):
    """Encoder, one step of message passing unless each thread is alone, and decoder."""

    def __init__(self, settings: AutoencoderSettings) -> None:
        super().__init__()
        self.settings = settings
        in_patches = settings.architecture is Architecture.FAST
        self.encoder: Encoder | PatchEncoder = PatchEncoder(settings) if in_patches else Encoder(settings)
        self.message_passing = MessagePassing(settings.embedding) if settings.architecture.passes_messages else None
        self.decoder: Decoder | PatchDecoder = PatchDecoder(settings) if in_patches else Decoder(settings)

    def embed(self, rates: Tensor, graphs: Graphs | None) -> Tensor:
        """(windows, steps, 4) -> (windows, embedding), after the threads of a graph have heard of each other."""
        z: Tensor = self.encoder(rates)
        if self.message_passing is None:
            return z
        if graphs is None:
            raise ValueError("message passing needs to know which windows belong together")
        received: Tensor = self.message_passing(z, graphs)
        return received

    def forward(self, rates: Tensor, graphs: Graphs | None = None) -> Tensor:
        """(windows, steps, 4) -> (windows, steps, 4)."""
        reconstruction: Tensor = self.decoder(self.embed(rates, graphs))
        return reconstruction


def make_network(settings: AutoencoderSettings) -> AutoencoderNetwork:
    """A network with the first weights of its seed, on the CPU; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return AutoencoderNetwork(settings)


def network_of(settings: AutoencoderSettings, weights: dict[str, Any]) -> AutoencoderNetwork:
    """A network with these weights; ValueError where they are not its own. Nothing is allocated for sizes that do not fit."""
    with torch.device("meta"):
        network = AutoencoderNetwork(settings)
    expected = {name: (tuple(tensor.shape), torch.float32) for name, tensor in network.state_dict().items()}
    shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}
    if expected != shapes:
        odd = sorted(name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name))
        raise ValueError(f"the weights do not fit the settings: {', '.join(odd[:3])}")
    network.load_state_dict(weights, assign=True)
    return network


def _residual(inside: int, outside: int) -> nn.Module:
    return nn.Identity() if inside == outside else nn.Conv1d(inside, outside, 1)


def _doubled(x: Tensor) -> Tensor:
    """(windows, channels, steps) -> (windows, channels, 2 × steps), each step twice."""
    return x.unsqueeze(3).expand(-1, -1, -1, 2).flatten(2)


# The fast network: all patches of a window share one linear layer to and from their values, and an MLP sees all patches together.
# Three modes come back by a linear layer, and `other` as what they leave of one: a softmax would cost more than all the rest.


class PatchEncoder(nn.Module):
    """A shared layer for each patch, then an MLP to the embedding; `other` is not an input."""

    def __init__(self, settings: AutoencoderSettings) -> None:
        super().__init__()
        self.fill = settings.padded_steps - settings.steps
        self.patch = nn.Linear(INPUT_MODES * PATCH_STEPS, settings.channels[0])
        self.hidden = nn.Linear(settings.flat, settings.hidden)
        self.embedding = nn.Linear(settings.hidden, settings.embedding)

    def forward(self, rates: Tensor) -> Tensor:
        """(windows, steps, 4) -> (windows, embedding)."""
        x = rates[:, :, :INPUT_MODES]
        if self.fill:
            x = torch.cat([x, x[:, -1:].expand(-1, self.fill, -1)], dim=1)
        x = x.reshape(len(x), -1, INPUT_MODES * PATCH_STEPS)  # (windows, patches, 3 × steps of a patch)
        x = _bent(self.patch(x)).flatten(1)  # (windows, patches × values)
        embedding: Tensor = self.embedding(_bent(self.hidden(x)))
        return embedding


class PatchDecoder(nn.Module):
    """The encoder backwards; three modes are linear in the values of their patch, the fourth is what they leave of one."""

    def __init__(self, settings: AutoencoderSettings) -> None:
        super().__init__()
        self.steps, self.values = settings.steps, settings.channels[0]
        self.hidden = nn.Linear(settings.embedding, settings.hidden)
        self.flat = nn.Linear(settings.hidden, settings.flat)
        self.modes = nn.Linear(settings.channels[0], INPUT_MODES * PATCH_STEPS)

    def forward(self, z: Tensor) -> Tensor:
        """(windows, embedding) -> (windows, steps, 4)."""
        x = _bent(self.flat(_bent(self.hidden(z))))
        x = self.modes(x.reshape(len(z), -1, self.values)).reshape(len(z), -1, INPUT_MODES)[:, : self.steps]
        return torch.cat([x, 1 - x.sum(dim=2, keepdim=True)], dim=2)

    def begin_at(self, mean: Tensor) -> None:
        """Answer with these shares (4,) of the modes, about, whatever the embedding."""
        self.modes.bias.copy_(mean[:INPUT_MODES].repeat(PATCH_STEPS))


def _bent(x: Tensor) -> Tensor:
    """Leaky, because units that are always off are lost: the error is a tenth lower than with a plain ReLU."""
    return functional.leaky_relu(x, LEAK)

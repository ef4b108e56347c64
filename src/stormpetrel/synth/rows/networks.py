"""The networks of the seed's generators, and how a row of modes looks to them.

Encoded rows -> as_tensor -> networks -> raw outputs -> activate (while training) or choose (while drawing) -> Encoded rows.
Sizes are those of Xu et al. (2019), "Modeling Tabular Data using Conditional GAN".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stormpetrel.errors import UsageError
from stormpetrel.synth.rows.row_table import Codes
from stormpetrel.synth.rows.table_encoding import Encoded, Places

TEMPERATURE: Final = 0.2  # of the Gumbel softmax
_HIDDEN: Final = 256
_MEMORY: Final = 0.99  # of the average of a generator, per step
_PENALTY: Final = 10.0  # of the gradient's norm (Gulrajani et al. 2017)


Network = TypeVar("Network", bound=nn.Module)


def device_named(name: str) -> torch.device:
    """The device to compute on: `auto` is a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"Unknown device {name[:40]!r}.", hint="Known: auto, cpu, cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no GPU that torch can use here.", hint="Say --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Everything that torch draws in here follows from the seed; what it draws elsewhere is left alone."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


class RowLook:
    """How rows look to a network: the places of the numbers, then one unit for each mode of each column."""

    def __init__(self, numbers: int, sizes: tuple[int, ...]) -> None:
        self.numbers = numbers
        self.sizes = sizes
        self.first = numbers + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)  # (columns + 1,)

    @property
    def width(self) -> int:
        """Units of a row."""
        return int(self.first[-1])

    def as_tensor(self, rows: Encoded, device: torch.device) -> Tensor:
        """(rows, width)."""
        look = torch.zeros(len(rows.modes), self.width, device=device)
        look[:, : self.numbers] = torch.as_tensor(rows.places, device=device)
        return look.scatter_(1, torch.as_tensor(rows.modes + self.first[:-1], device=device), 1.0)

    def blocks(self, raw: Tensor) -> list[Tensor]:
        """The units of each column's modes: (rows, size) each."""
        return list(torch.split(raw[:, self.numbers :], list(self.sizes), dim=1))

    def activate(self, raw: Tensor) -> Tensor:
        """Places within -1 … 1, modes nearly chosen (Gumbel softmax), so that gradients pass."""
        soft = [torch.softmax((block + _gumbel_like(block)) / TEMPERATURE, dim=1) for block in self.blocks(raw)]
        return torch.cat([torch.tanh(raw[:, : self.numbers]), *soft], dim=1)

    def choose(self, raw: Tensor, rng: np.random.Generator) -> Encoded:
        """Rows drawn from raw outputs."""
        numbers = raw.cpu().numpy().astype(np.float64)
        places: Places = np.tanh(numbers[:, : self.numbers]).astype(np.float32)
        noisy = numbers + rng.gumbel(size=numbers.shape)
        modes = [np.argmax(noisy[:, first:last], axis=1) for first, last in zip(self.first[:-1], self.first[1:], strict=True)]
        return Encoded(places, np.stack(modes, axis=1).astype(np.int64))


class ResidualGenerator(nn.Module):
    """Two residual layers: each hands on its input beside its output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Linear(inputs, _HIDDEN), nn.BatchNorm1d(_HIDDEN)
        self.second, self.second_norm = nn.Linear(inputs + _HIDDEN, _HIDDEN), nn.BatchNorm1d(_HIDDEN)
        self.last = nn.Linear(inputs + 2 * _HIDDEN, outputs)

    def forward(self, noise: Tensor) -> Tensor:
        """(batch, inputs) -> (batch, outputs)."""
        once = torch.cat([torch.relu(self.first_norm(self.first(noise))), noise], dim=1)
        twice = torch.cat([torch.relu(self.second_norm(self.second(once))), once], dim=1)
        raw: Tensor = self.last(twice)
        return raw


class Critic(nn.Module):
    """How real some rows look, judged together (PacGAN, Lin et al. 2018), so that a generator cannot always make the same."""

    def __init__(self, inputs: int, *, together: int = 10, dropout: float = 0.5) -> None:
        super().__init__()
        self.together = together
        self.layers = nn.Sequential(
            nn.Linear(inputs * together, _HIDDEN), nn.LeakyReLU(0.2), nn.Dropout(dropout),
            nn.Linear(_HIDDEN, _HIDDEN), nn.LeakyReLU(0.2), nn.Dropout(dropout),
            nn.Linear(_HIDDEN, 1),
        )  # fmt: skip

    def forward(self, rows: Tensor) -> Tensor:
        """(batch, inputs) -> (batch / together, 1)."""
        judged: Tensor = self.layers(rows.reshape(len(rows) // self.together, -1))
        return judged

    def gradient_penalty(self, real: Tensor, fake: Tensor) -> Tensor:
        """How far the slope between real and fake is from one."""
        packs = len(real) // self.together
        share = torch.rand(packs, 1, 1, device=real.device)
        shape = (packs, self.together, real.shape[1])
        between = (share * real.reshape(shape) + (1 - share) * fake.reshape(shape)).reshape(real.shape).requires_grad_()
        judged = self(between)
        (slope,) = torch.autograd.grad(judged, between, torch.ones_like(judged), create_graph=True)
        penalty: Tensor = _PENALTY * (slope.reshape(packs, -1).norm(dim=1) - 1).square().mean()
        return penalty


class Averaged(Generic[Network]):
    """The mean of a network over its last hundred steps or so: a generator and its critic chase each other in circles."""

    def __init__(self, network: Network) -> None:
        self.network: Network = copy.deepcopy(network).eval()
        self.steps = 0

    def follow(self, network: Network) -> None:
        """Take in where the network stands now."""
        self.steps += 1
        memory = min(_MEMORY, self.steps / (self.steps + 10))  # short at first: what it was before training is soon forgotten
        with torch.no_grad():
            for mean, now in zip(self.network.state_dict().values(), network.state_dict().values(), strict=True):
                if mean.is_floating_point():
                    mean.lerp_(now, 1 - memory)


class Perceptron(nn.Module):
    """Plain layers of a given width, for the encoder and the decoder of the variational autoencoder."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
        )

    def forward(self, rows: Tensor) -> Tensor:
        """(batch, inputs) -> (batch, outputs)."""
        out: Tensor = self.layers(rows)
        return out


def as_codes(values: Codes, device: torch.device) -> Tensor:
    """Codes on a device."""
    return torch.as_tensor(values, dtype=torch.int64, device=device)


def _gumbel_like(block: Tensor) -> Tensor:
    return -torch.log(-torch.log(torch.rand_like(block).clamp(1e-9, 1 - 1e-7)))

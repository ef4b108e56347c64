"""The networks of the seed's generators, and how a row of modes looks to them.

Encoded rows -> as_tensor -> networks -> raw outputs -> activate (while training) or choose (while drawing) -> Encoded rows.
Sizes are those of Xu et al. (2019), "Modeling Tabular Data using Conditional GAN".
Encoded rows -> train_gan -> generator (draw_rows), train_vae -> decoder (draw_decoded). Everything here needs torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats
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


class RowShape:
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
        encoded = torch.zeros(len(rows.modes), self.width, device=device)
        encoded[:, : self.numbers] = torch.as_tensor(rows.places, device=device)
        return encoded.scatter_(1, torch.as_tensor(rows.modes + self.first[:-1], device=device), 1.0)

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
    """Two residual layers: each passes on its input with its output."""

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


NOISE: Final = 128
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class Training:
    """How a network is trained."""

    epochs: int
    batch_size: int
    seed: int
    device: str
    on_epoch: Callable[[int], None]


class Conditions:
    """Which category of which column is asked for.

    While training by the logarithm of its frequency, so that rare ones are learnt too; afterwards by its frequency.
    """

    def __init__(self, shares: list[Floats]) -> None:
        self.shares = shares
        self.sizes = tuple(len(share) for share in shares)
        self.first = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)  # (columns + 1,)

    @classmethod
    def of_codes(cls, codes: Codes, sizes: tuple[int, ...]) -> Conditions:
        """Of (rows, columns) codes."""
        return cls([np.bincount(codes[:, place], minlength=size) / len(codes) for place, size in enumerate(sizes)])

    @property
    def width(self) -> int:
        """Units that say what is requested."""
        return int(self.first[-1])

    def draw(self, rows: int, rng: np.random.Generator, *, evenly: bool = False, height: int = 1) -> tuple[Codes, Codes]:
        """A column and one of its categories for each row."""
        columns = rng.integers(len(self.shares), size=rows)
        categories = np.zeros(rows, dtype=np.int64)
        for column, share in enumerate(self.shares):
            here = columns == column
            weight = np.log1p(share * height) if evenly else share
            categories[here] = rng.choice(len(share), size=int(here.sum()), p=weight / weight.sum())
        return columns, categories

    def as_tensor(self, columns: Codes, categories: Codes, device: torch.device) -> Tensor:
        """(rows, width): one unit on."""
        condition = torch.zeros(len(columns), self.width, device=device)
        return condition.scatter_(1, as_codes(self.first[columns] + categories, device)[:, None], 1.0)


class RowsByCategory:
    """Finds rows of a category quickly."""

    def __init__(self, codes: Codes, sizes: tuple[int, ...]) -> None:
        self.height = len(codes)
        self.order = np.stack([np.argsort(codes[:, place], kind="stable") for place in range(len(sizes))])  # (columns, rows)
        counts = [np.bincount(codes[:, place], minlength=size) for place, size in enumerate(sizes)]
        self.starts = np.concatenate([np.cumsum(count) - count for count in counts])  # (categories of all columns,)
        self.counts = np.concatenate(counts)
        self.first = np.concatenate([[0], np.cumsum(sizes)])[:-1]

    def draw(self, columns: Codes, categories: Codes, rng: np.random.Generator) -> Codes:
        """One row of each category asked for."""
        at = self.first[columns] + categories
        drawn: Codes = self.order[columns, self.starts[at] + (rng.random(len(at)) * self.counts[at]).astype(np.int64)]
        return drawn


def train_gan(rows: Encoded, shape: RowShape, training: Training) -> tuple[ResidualGenerator, Conditions]:
    """A generator of rows like these."""
    device = device_named(training.device)
    rng = np.random.default_rng(training.seed)
    codes, sizes = rows.modes[:, shape.numbers :], shape.sizes[shape.numbers :]
    conditions = Conditions.of_codes(codes, sizes)
    by_category = RowsByCategory(codes, sizes) if sizes else None
    with seeded(training.seed, device):
        adversaries = _Adversaries(shape, conditions, device)
        steps = max(1, len(codes) // training.batch_size)
        for epoch in range(training.epochs):
            for _ in range(steps):
                adversaries.step(rows, by_category, training.batch_size, rng)
            training.on_epoch(epoch + 1)
    return adversaries.average.network, conditions


def draw_rows(
    generator: ResidualGenerator, shape: RowShape, conditions: Conditions, count: int, rng: np.random.Generator
) -> Encoded:
    """New rows."""
    device = next(generator.parameters()).device
    batches = []
    with torch.inference_mode():
        for first in range(0, count, _AT_ONCE):
            rows = min(_AT_ONCE, count - first)
            inputs = torch.as_tensor(rng.standard_normal((rows, NOISE), dtype=np.float32), device=device)
            if conditions.sizes:
                inputs = torch.cat([inputs, conditions.as_tensor(*conditions.draw(rows, rng), device)], dim=1)
            batches.append(shape.choose(generator(inputs), rng))
    return Encoded(np.concatenate([batch.places for batch in batches]), np.concatenate([batch.modes for batch in batches]))


class _Adversaries:
    """Generator and critic, and one step of both."""

    def __init__(self, shape: RowShape, conditions: Conditions, device: torch.device) -> None:
        self.shape, self.conditions, self.device = shape, conditions, device
        self.generator = ResidualGenerator(NOISE + conditions.width, shape.width).to(device)
        self.average = Averaged(self.generator)
        self.critic = Critic(shape.width + conditions.width).to(device)
        self.of_generator = Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.9), weight_decay=1e-6)
        self.of_critic = Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.9), weight_decay=1e-6)

    def step(self, rows: Encoded, by_category: RowsByCategory | None, batch: int, rng: np.random.Generator) -> None:
        if by_category is None:
            drawn, condition = rng.integers(len(rows.modes), size=batch), torch.zeros(batch, 0, device=self.device)
            wanted = None
        else:
            wanted = self.conditions.draw(batch, rng, evenly=True, height=by_category.height)
            drawn, condition = by_category.draw(*wanted, rng), self.conditions.as_tensor(*wanted, self.device)
        real = self.shape.as_tensor(Encoded(rows.places[drawn], rows.modes[drawn]), self.device)  # (batch, width)
        self._step_of_critic(torch.cat([real, condition], dim=1), condition)
        self._step_of_generator(condition, wanted)
        self.average.follow(self.generator)

    def _generated(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs (batch, width), and rows with what was requested (batch, width + conditions)."""
        noise = torch.randn(len(condition), NOISE, device=self.device)
        raw = self.generator(torch.cat([noise, condition], dim=1))
        return raw, torch.cat([self.shape.activate(raw), condition], dim=1)

    def _step_of_critic(self, real: Tensor, condition: Tensor) -> None:
        with torch.no_grad():
            _, fake = self._generated(condition)
        loss = self.critic(fake).mean() - self.critic(real).mean() + self.critic.gradient_penalty(real, fake)
        self.of_critic.zero_grad(set_to_none=True)
        loss.backward()
        self.of_critic.step()

    def _step_of_generator(self, condition: Tensor, wanted: tuple[Codes, Codes] | None) -> None:
        raw, fake = self._generated(condition)
        loss = -self.critic(fake).mean()
        if wanted is not None:
            loss = loss + self._disobedience(raw, *wanted)
        self.of_generator.zero_grad(set_to_none=True)
        loss.backward()
        self.of_generator.step()

    def _disobedience(self, raw: Tensor, columns: Codes, categories: Codes) -> Tensor:
        """Cross-entropy between the categories asked for and those made, over the whole batch."""
        blocks = self.shape.blocks(raw)[self.shape.numbers :]
        total = torch.zeros((), device=self.device)
        for column, block in enumerate(blocks):
            here = np.flatnonzero(columns == column)
            if len(here):
                target = as_codes(categories[here], self.device)
                total = total + functional.cross_entropy(block[as_codes(here, self.device)], target, reduction="sum")
        return total / len(columns)


LATENT: Final = 128
_LOSS_FACTOR: Final = 2.0  # of the reconstruction against the divergence, as in the paper
_NARROWEST, _WIDEST = 0.01, 1.0  # standard deviation of a place


class Decoder(nn.Module):
    """Noise -> raw outputs of a row, and how far the places of the numbers scatter around them."""

    def __init__(self, shape: RowShape) -> None:
        super().__init__()
        self.layers = Perceptron(LATENT, shape.width)
        self.scatter = nn.Parameter(torch.full((shape.numbers,), 0.1))

    def forward(self, noise: Tensor) -> Tensor:
        """(batch, LATENT) -> (batch, width)."""
        raw: Tensor = self.layers(noise)
        return raw

    def spread(self) -> Tensor:
        """(numbers,) standard deviations of the places."""
        return self.scatter.clamp(_NARROWEST, _WIDEST)


def train_vae(rows: Encoded, shape: RowShape, training: Training) -> Decoder:
    """A decoder of rows like these."""
    device = device_named(training.device)
    rng = np.random.default_rng(training.seed)
    with seeded(training.seed, device):
        encoder, decoder = Perceptron(shape.width, 2 * LATENT).to(device), Decoder(shape).to(device)
        optimiser = Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, weight_decay=1e-5)
        for epoch in range(training.epochs):
            order = rng.permutation(len(rows.modes))
            for first in range(0, len(order), training.batch_size):
                drawn = order[first : first + training.batch_size]
                loss = _loss(encoder, decoder, shape, Encoded(rows.places[drawn], rows.modes[drawn]), device)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            training.on_epoch(epoch + 1)
    return decoder.eval()


def draw_decoded(decoder: Decoder, shape: RowShape, count: int, rng: np.random.Generator) -> Encoded:
    """New rows: places scatter as they did in training, modes are drawn by their probability."""
    device = decoder.scatter.device
    with torch.inference_mode():
        raw = decoder(torch.as_tensor(rng.standard_normal((count, LATENT), dtype=np.float32), device=device))
        spread = decoder.spread().cpu().numpy()
    rows = shape.choose(raw, rng)
    scattered = rows.places + spread * rng.standard_normal(rows.places.shape)
    return Encoded(np.clip(scattered, -1, 1).astype(np.float32), rows.modes)


def _loss(encoder: Perceptron, decoder: Decoder, shape: RowShape, rows: Encoded, device: torch.device) -> Tensor:
    """Reconstruction, weighed, and divergence of the latent from the normal, both per row."""
    real = shape.as_tensor(rows, device)
    middle, log_variance = encoder(real).chunk(2, dim=1)  # (batch, LATENT) each
    raw = decoder(middle + torch.exp(log_variance / 2) * torch.randn_like(middle))
    spread = decoder.spread()
    away = (real[:, : shape.numbers] - torch.tanh(raw[:, : shape.numbers])) / spread
    lost = (away.square() / 2 + torch.log(spread)).sum()
    for place, block in enumerate(shape.blocks(raw)):
        lost = lost + functional.cross_entropy(block, as_codes(rows.modes[:, place], device), reduction="sum")
    divergence = -0.5 * (1 + log_variance - middle.square() - log_variance.exp()).sum()
    loss: Tensor = (_LOSS_FACTOR * lost + divergence) / len(real)
    return loss

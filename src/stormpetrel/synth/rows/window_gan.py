"""The GAN of sequences: each row made after the rows before it.

Encoded rows in their order -> train_windows -> NextRow -> run_of_rows -> Encoded rows in order, without end. The critic sees the
rows before and the new one together, so what it judges is the order; the surprise at the row that really came next keeps the
training on its way (as in TimeGAN, Yoon et al. 2019): without it neighbouring intervals came out unlike each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam

from stormpetrel.synth.rows.gan_training import Training
from stormpetrel.synth.rows.networks import Averaged, Critic, ResidualGenerator, RowLook, as_codes, device_named, seeded
from stormpetrel.synth.rows.table_encoding import Encoded

BEFORE: Final = 8  # rows looked back at
_NOISE: Final = 128
_SQUEEZED: Final = 32  # units of a row that is looked back at
_SURPRISE: Final = 5.0  # weight of the surprise beside the critic's judgement
_STARTS: Final = 0.05  # of the windows in training that have no rows before: so it learns to begin
_WARM_UP: Final = 4 * BEFORE  # rows of each strand that are thrown away: the first ones follow nothing


class NextRow(nn.Module):
    """The rows before, and noise -> raw outputs of the next row."""

    def __init__(self, look: RowLook) -> None:
        super().__init__()
        self.look = look
        self.squeeze = nn.Linear(look.width, _SQUEEZED)
        self.network = ResidualGenerator(_NOISE + BEFORE * _SQUEEZED, look.width)

    def forward(self, before: Tensor, noise: Tensor) -> Tensor:
        """(batch, BEFORE, width), (batch, noise) -> (batch, width)."""
        raw: Tensor = self.network(torch.cat([noise, self.squeeze(before).flatten(1)], dim=1))
        return raw


class WindowCritic(Critic):
    """How real some consecutive rows look."""

    def __init__(self, width: int) -> None:
        super().__init__((BEFORE + 1) * _SQUEEZED, together=1, dropout=0.25)
        self.width = width
        self.squeeze = nn.Sequential(nn.Linear(width, _SQUEEZED), nn.LeakyReLU(0.2))

    def forward(self, rows: Tensor) -> Tensor:
        """(batch, (BEFORE + 1) · width) -> (batch, 1)."""
        return super().forward(self.squeeze(rows.reshape(len(rows), -1, self.width)).flatten(1))


def train_windows(rows: Encoded, look: RowLook, training: Training) -> NextRow:
    """A generator of the next row after any eight."""
    device = device_named(training.device)
    rng = np.random.default_rng(training.seed)
    with seeded(training.seed, device):
        adversaries = _WindowAdversaries(look, device)
        for epoch in range(training.epochs):
            for _ in range(max(1, len(rows.modes) // training.batch_size)):
                adversaries.step(rows, training.batch_size, rng)
            training.told(epoch + 1)
    return adversaries.average.network


def run_of_rows(generator: NextRow, strands: int, length: int, rng: np.random.Generator) -> Iterator[Encoded]:
    """Rows in order: `length` of the first strand, then of the second …, and again where each strand stopped."""
    running = _free_run(generator, strands, rng)
    for _ in range(_WARM_UP):
        next(running)
    while True:
        made = [next(running) for _ in range(length)]
        yield Encoded(_strand_after_strand([one.places for one in made]), _strand_after_strand([one.modes for one in made]))


def _free_run(generator: NextRow, strands: int, rng: np.random.Generator) -> Iterator[Encoded]:
    """The next row of each strand, again and again; each follows what its strand made before."""
    look, device = generator.look, next(generator.parameters()).device
    before = torch.zeros(strands, BEFORE, look.width, device=device)
    while True:
        with torch.inference_mode():
            noise = torch.as_tensor(rng.standard_normal((strands, _NOISE), dtype=np.float32), device=device)
            rows = look.choose(generator(before, noise), rng)
            before = torch.cat([before[:, 1:], look.as_tensor(rows, device)[:, None]], dim=1)
        yield rows


def _strand_after_strand(steps: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """`length` arrays of (strands, columns) -> (strands · length, columns)."""
    side_by_side = np.stack(steps, axis=1)  # (strands, length, columns)
    return side_by_side.reshape(-1, side_by_side.shape[-1])


class _WindowAdversaries:
    """Generator and critic of windows, and one step of both."""

    def __init__(self, look: RowLook, device: torch.device) -> None:
        self.look, self.device = look, device
        self.generator = NextRow(look).to(device)
        self.average = Averaged(self.generator)
        self.critic = WindowCritic(look.width).to(device)
        self.of_generator = Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9), weight_decay=1e-6)
        self.of_critic = Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.9), weight_decay=1e-6)

    def step(self, rows: Encoded, batch: int, rng: np.random.Generator) -> None:
        first = rng.integers(max(1, len(rows.modes) - BEFORE), size=batch)
        at = np.minimum(first[:, None] + np.arange(BEFORE + 1), len(rows.modes) - 1).reshape(-1)  # (batch · window,)
        real = self.look.as_tensor(Encoded(rows.places[at], rows.modes[at]), self.device).reshape(batch, BEFORE + 1, -1)
        starts = torch.as_tensor(rng.random(batch) < _STARTS, device=self.device)
        real[:, :BEFORE] *= (~starts)[:, None, None]
        self._step_of_critic(real)
        self._step_of_generator(real[:, :BEFORE], rows.modes[at[BEFORE :: BEFORE + 1]])
        self.average.follow(self.generator)

    def _made(self, before: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs (batch, width), and the whole window (batch, (BEFORE + 1) · width)."""
        raw = self.generator(before, torch.randn(len(before), _NOISE, device=self.device))
        return raw, torch.cat([before, self.look.activate(raw)[:, None]], dim=1).flatten(1)

    def _step_of_critic(self, real: Tensor) -> None:
        with torch.no_grad():
            _, fake = self._made(real[:, :BEFORE])
        flat = real.flatten(1)
        loss = self.critic(fake).mean() - self.critic(flat).mean() + self.critic.gradient_penalty(flat, fake)
        self.of_critic.zero_grad(set_to_none=True)
        loss.backward()
        self.of_critic.step()

    def _step_of_generator(self, before: Tensor, came: npt.NDArray[np.int64]) -> None:
        raw, fake = self._made(before)
        pairs = zip(self.look.blocks(raw), as_codes(came, self.device).T, strict=True)
        surprise = torch.stack([functional.cross_entropy(block, code) for block, code in pairs]).sum()
        loss = _SURPRISE * surprise - self.critic(fake).mean()
        self.of_generator.zero_grad(set_to_none=True)
        loss.backward()
        self.of_generator.step()

"""The conditional GAN of rows: a generator trained against a critic, one category of one column asked for at a time.

Encoded rows -> train_gan -> ResidualGenerator -> draw_rows -> Encoded rows (Xu et al. 2019, sections 4.3 and 4.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Adam

from stormpetrel.synth.rows.networks import Averaged, Critic, ResidualGenerator, RowLook, as_codes, device_named, seeded
from stormpetrel.synth.rows.row_table import Codes, Floats
from stormpetrel.synth.rows.table_encoding import Encoded

NOISE: Final = 128
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class Training:
    """How a network is trained."""

    epochs: int
    batch_size: int
    seed: int
    device: str
    told: Callable[[int], None]


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
        """Units that say what is asked for."""
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
        asked = torch.zeros(len(columns), self.width, device=device)
        return asked.scatter_(1, as_codes(self.first[columns] + categories, device)[:, None], 1.0)


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


def train_gan(rows: Encoded, look: RowLook, training: Training) -> tuple[ResidualGenerator, Conditions]:
    """A generator of rows like these."""
    device = device_named(training.device)
    rng = np.random.default_rng(training.seed)
    codes, sizes = rows.modes[:, look.numbers :], look.sizes[look.numbers :]
    conditions = Conditions.of_codes(codes, sizes)
    by_category = RowsByCategory(codes, sizes) if sizes else None
    with seeded(training.seed, device):
        adversaries = _Adversaries(look, conditions, device)
        steps = max(1, len(codes) // training.batch_size)
        for epoch in range(training.epochs):
            for _ in range(steps):
                adversaries.step(rows, by_category, training.batch_size, rng)
            training.told(epoch + 1)
    return adversaries.average.network, conditions


def draw_rows(
    generator: ResidualGenerator, look: RowLook, conditions: Conditions, count: int, rng: np.random.Generator
) -> Encoded:
    """New rows."""
    device = next(generator.parameters()).device
    made = []
    with torch.inference_mode():
        for first in range(0, count, _AT_ONCE):
            rows = min(_AT_ONCE, count - first)
            inputs = torch.as_tensor(rng.standard_normal((rows, NOISE), dtype=np.float32), device=device)
            if conditions.sizes:
                inputs = torch.cat([inputs, conditions.as_tensor(*conditions.draw(rows, rng), device)], dim=1)
            made.append(look.choose(generator(inputs), rng))
    return Encoded(np.concatenate([one.places for one in made]), np.concatenate([one.modes for one in made]))


class _Adversaries:
    """Generator and critic, and one step of both."""

    def __init__(self, look: RowLook, conditions: Conditions, device: torch.device) -> None:
        self.look, self.conditions, self.device = look, conditions, device
        self.generator = ResidualGenerator(NOISE + conditions.width, look.width).to(device)
        self.average = Averaged(self.generator)
        self.critic = Critic(look.width + conditions.width).to(device)
        self.of_generator = Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.9), weight_decay=1e-6)
        self.of_critic = Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.9), weight_decay=1e-6)

    def step(self, rows: Encoded, by_category: RowsByCategory | None, batch: int, rng: np.random.Generator) -> None:
        if by_category is None:
            drawn, asked = rng.integers(len(rows.modes), size=batch), torch.zeros(batch, 0, device=self.device)
            wanted = None
        else:
            wanted = self.conditions.draw(batch, rng, evenly=True, height=by_category.height)
            drawn, asked = by_category.draw(*wanted, rng), self.conditions.as_tensor(*wanted, self.device)
        real = self.look.as_tensor(Encoded(rows.places[drawn], rows.modes[drawn]), self.device)  # (batch, width)
        self._step_of_critic(torch.cat([real, asked], dim=1), asked)
        self._step_of_generator(asked, wanted)
        self.average.follow(self.generator)

    def _made(self, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs (batch, width), and rows with what was asked for (batch, width + conditions)."""
        noise = torch.randn(len(asked), NOISE, device=self.device)
        raw = self.generator(torch.cat([noise, asked], dim=1))
        return raw, torch.cat([self.look.activate(raw), asked], dim=1)

    def _step_of_critic(self, real: Tensor, asked: Tensor) -> None:
        with torch.no_grad():
            _, fake = self._made(asked)
        loss = self.critic(fake).mean() - self.critic(real).mean() + self.critic.gradient_penalty(real, fake)
        self.of_critic.zero_grad(set_to_none=True)
        loss.backward()
        self.of_critic.step()

    def _step_of_generator(self, asked: Tensor, wanted: tuple[Codes, Codes] | None) -> None:
        raw, fake = self._made(asked)
        loss = -self.critic(fake).mean()
        if wanted is not None:
            loss = loss + self._disobedience(raw, *wanted)
        self.of_generator.zero_grad(set_to_none=True)
        loss.backward()
        self.of_generator.step()

    def _disobedience(self, raw: Tensor, columns: Codes, categories: Codes) -> Tensor:
        """Cross-entropy between the categories asked for and those made, over the whole batch."""
        blocks = self.look.blocks(raw)[self.look.numbers :]
        total = torch.zeros((), device=self.device)
        for column, block in enumerate(blocks):
            here = np.flatnonzero(columns == column)
            if len(here):
                target = as_codes(categories[here], self.device)
                total = total + functional.cross_entropy(block[as_codes(here, self.device)], target, reduction="sum")
        return total / len(columns)

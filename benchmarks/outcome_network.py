"""A small network over a user's past events that says whether the job submitted now fails; the model of `jobs_sequence`.

events (job, event, number) + features (job, feature) + outcomes -> fit_network -> OutcomeNetwork -> risk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stormpetrel.records.arrays import Floats

Numbers = NDArray[np.float16]
Matrix = NDArray[np.float32]

_FARTHEST: Final = 5.0  # standard deviations
_JUDGED_AT_A_TIME: Final = 4_096


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """What the network is, and how it is fitted; chosen inside the training parts of KTH and Theta (docs/log.md)."""

    past: Literal["gru", "transformer", "none"] = "gru"  # none: features only
    width: int = 32
    dropout: float = 0.2
    epochs: float = 8.0
    batch: int = 256
    learning_rate: float = 4e-3
    decay: float = 0.03
    most_rows: int = 30_000  # of one fit: the most recent ones
    seed: int = 0


class OutcomeNetwork(nn.Module):
    """Events and features in, log-odds of a failure out."""

    def __init__(self, numbers: int, events: int, features: int, settings: NetworkSettings) -> None:
        super().__init__()
        width = settings.width
        self.kind = settings.past
        self.features = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Dropout(settings.dropout))
        if self.kind == "gru":
            self.recurrent = nn.GRU(numbers, width, batch_first=True)
        elif self.kind == "transformer":
            self.embed = nn.Linear(numbers, width)
            self.place = nn.Parameter(torch.zeros(events + 1, width))
            layer = nn.TransformerEncoderLayer(width, 4, 2 * width, settings.dropout, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            causal = torch.triu(torch.ones(events + 1, events + 1, dtype=torch.bool), diagonal=1)
            self.register_buffer("causal", causal)
        both = width if self.kind == "none" else 2 * width
        self.head = nn.Sequential(
            nn.Dropout(settings.dropout), nn.Linear(both, width), nn.ReLU(), nn.Dropout(settings.dropout), nn.Linear(width, 1)
        )

    def forward(self, events: Tensor, features: Tensor) -> Tensor:
        """Log-odds of a failure, one per job."""
        now = self.features(features)  # (job, width)
        if self.kind == "gru":
            _, last = self.recurrent(events)
            now = torch.cat([last[0], now], dim=1)
        elif self.kind == "transformer":
            now = torch.cat([self._attended(events, now), now], dim=1)
        return self.head(now).squeeze(1)  # (job,)

    def _attended(self, events: Tensor, now: Tensor) -> Tensor:
        """What the job itself, placed after its events, reads from them."""
        steps = torch.cat([self.embed(events), now[:, None]], dim=1) + self.place  # (job, event + 1, width)
        empty = torch.zeros(steps.shape[:2], dtype=torch.bool)
        empty[:, :-1] = events.abs().sum(dim=2) == 0
        # An empty place attends to itself alone: a row without any place to look at would be no number.
        mask = self.causal | empty[:, None, :]
        mask = mask & ~torch.eye(steps.shape[1], dtype=torch.bool)
        heads = mask.repeat_interleave(4, dim=0)  # (job × head, event + 1, event + 1)
        return self.layers(steps, mask=heads)[:, -1]


def fit_network(
    events: Numbers, features: Matrix, failed: NDArray[np.bool_], settings: NetworkSettings
) -> Callable[[Numbers, Matrix], Floats]:
    """Fit on jobs in the order of submission; returns the function that gives the risk of others."""
    latest = slice(-settings.most_rows, None)
    events, features, failed = events[latest], features[latest], failed[latest]
    scaled = Scaling(features)
    torch.manual_seed(settings.seed)
    network = OutcomeNetwork(events.shape[2], events.shape[1], scaled(features).shape[1], settings)
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.decay)
    steps = max(1, int(settings.epochs * len(failed) / settings.batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.learning_rate, total_steps=steps, pct_start=0.2)
    loss = nn.BCEWithLogitsLoss()
    rng = np.random.default_rng(settings.seed)
    inputs, target = scaled(features), torch.from_numpy(failed.astype(np.float32))
    order: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    network.train()
    for _ in range(steps):
        if order.size < min(settings.batch, len(failed)):
            order = rng.permutation(len(failed))
        rows, order = order[: settings.batch], order[settings.batch :]
        optimiser.zero_grad()
        logits = network(_tensor(events[rows]), inputs[rows])
        loss(logits, target[rows]).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    network.eval()

    @torch.no_grad()
    def risk(events: Numbers, features: Matrix) -> Floats:
        inputs = scaled(features)
        parts = [
            torch.sigmoid(network(_tensor(events[at : at + _JUDGED_AT_A_TIME]), inputs[at : at + _JUDGED_AT_A_TIME]))
            for at in range(0, len(events), _JUDGED_AT_A_TIME)
        ]
        return torch.cat(parts).double().numpy() if parts else np.empty(0)

    return risk


class Scaling:
    """Features by mean and standard deviation of the training rows; what is unknown is 0, with a column that says so."""

    def __init__(self, features: Matrix) -> None:
        known = ~np.isnan(features)
        count = np.maximum(known.sum(axis=0), 1)
        self.mean = np.where(known, features, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, features - self.mean, 0.0) ** 2).sum(axis=0) / count)
        self.spread = np.where(spread > 1e-6, spread, 1.0)
        share = known.mean(axis=0)
        self.gaps = (share > 0.001) & (share < 0.999)

    def __call__(self, features: Matrix) -> Tensor:
        """The scaled features, (job, feature and gap)."""
        unknown = np.isnan(features)
        scaled = np.clip((features - self.mean) / self.spread, -_FARTHEST, _FARTHEST)
        scaled = np.where(unknown, 0.0, scaled)
        return torch.from_numpy(np.concatenate([scaled, unknown[:, self.gaps]], axis=1).astype(np.float32))


def _tensor(events: Numbers) -> Tensor:
    return torch.from_numpy(events.astype(np.float32))

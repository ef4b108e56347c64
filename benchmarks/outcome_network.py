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

    past: Literal["gru", "attention", "none"] = "gru"  # none: features only
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
        elif self.kind == "attention":
            self.embed = nn.Linear(numbers, width)
            self.place = nn.Parameter(torch.zeros(events, width))
            self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
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
        elif self.kind == "attention":
            now = torch.cat([self._looked_up(events, now), now], dim=1)
        return self.head(now).squeeze(1)  # (job,)

    def _looked_up(self, events: Tensor, now: Tensor) -> Tensor:
        """The events weighted by how well each answers what the job asks, four ways; an empty place may be looked at, too."""
        steps = torch.relu(self.embed(events) + self.place)  # (job, event, width)
        jobs, places, width = steps.shape
        query = self.query(now).view(jobs, 4, 1, width // 4)
        key, value = (layer(steps).view(jobs, places, 4, width // 4).transpose(1, 2) for layer in (self.key, self.value))
        looked_up = nn.functional.scaled_dot_product_attention(query, key, value)  # (job, head, 1, width / 4)
        return looked_up.reshape(jobs, width)


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

"""A scorer without a network: it gives back every window as its own mean, and its embedding is that mean."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks.architecture import AutoencoderSettings


@dataclass
class FlatScorer:
    """`offset` is added to every score, so that the members of an ensemble differ."""

    settings: AutoencoderSettings = field(default_factory=lambda: AutoencoderSettings(embedding=3))
    offset: float = 0.0

    def embed(self, windows: Windows) -> np.ndarray:
        return windows.rates[:, :, :3].mean(axis=1)

    def reconstruct(self, windows: Windows) -> np.ndarray:
        return np.repeat(windows.rates.mean(axis=1, keepdims=True), windows.steps, axis=1)

    def score(self, windows: Windows) -> np.ndarray:
        """The mean share of iowait, of which an honest judge must find that it tells Bad IO apart."""
        return windows.rates[:, :, 2].mean(axis=1).astype(np.float64) + self.offset

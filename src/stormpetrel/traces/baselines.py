"""What a model of traces must beat: a rule of one line, and the best that lines can do.

Windows -> mean_iowait (a score), RawPca (embeddings, reconstructions and scores). Both are judged on the windows that the
networks are judged on; what they need to know, they learn from training windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelError
from stormpetrel.learn.metrics import best_f1_threshold
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import IOWAIT
from stormpetrel.records.windows import Windows
from stormpetrel.traces.separability import PcaMap

Truth = npt.NDArray[np.bool_]

_CALM_QUANTILE = 0.999  # where no anomaly is known to choose a threshold by


def mean_iowait(windows: Windows) -> Floats:
    """The rule that every administrator knows: the mean share of iowait over the window; higher is more abnormal."""
    return np.asarray(windows.rates[:, :, IOWAIT].mean(axis=1), dtype=np.float64)


def max_iowait(windows: Windows) -> Floats:
    """The largest share of iowait at any step of the window: the worst moment of its thread."""
    return np.asarray(windows.rates[:, :, IOWAIT].max(axis=1, initial=0.0), dtype=np.float64)


def chosen_threshold(scores: Floats, anomalous: Truth) -> float:
    """The threshold with the best F1 on these (training) windows; where none is anomalous, what one in a thousand exceeds.

    It stands half-way to the next lower score: on the edge itself, every other window of the same kind would fall below it.
    """
    if not scores.size:
        raise ModelError("There are no windows to choose a threshold on.")
    if anomalous.any():
        edge = best_f1_threshold(anomalous, scores)
        below = scores[scores < edge]
        return float((edge + below.max()) / 2) if below.size else edge
    return float(np.quantile(scores, _CALM_QUANTILE))


@dataclass(frozen=True, slots=True, eq=False)
class RawPca:
    """Principal components of the raw windows: an autoencoder that knows straight lines only."""

    components: PcaMap  # of windows laid out as (steps × 4,)

    @classmethod
    def fit(cls, windows: Windows, embedding: int) -> RawPca:
        """As many components as an embedding has numbers."""
        if len(windows) < 2:
            raise ModelError(f"Principal components need two windows or more; there are {len(windows)}.")
        return cls(PcaMap.fit(_flat(windows), components=embedding))

    def embed(self, windows: Windows) -> npt.NDArray[np.float32]:
        """Places along the components, (windows, embedding)."""
        return self.components.transform(_flat(windows))

    def reconstruct(self, windows: Windows) -> npt.NDArray[np.float32]:
        """The windows as the components see them, (windows, steps, 4)."""
        decoded = self.embed(windows) @ self.components.axes + self.components.mean
        return np.asarray(decoded.reshape(windows.rates.shape), dtype=np.float32)

    def score(self, windows: Windows) -> Floats:
        """Mean over steps and modes of the squared difference, as of the networks."""
        difference = self.reconstruct(windows).astype(np.float64) - windows.rates  # (windows, steps, 4)
        return np.asarray((difference**2).mean(axis=(1, 2)), dtype=np.float64)


def _flat(windows: Windows) -> npt.NDArray[np.float32]:
    return windows.rates.reshape(len(windows), -1)  # (windows, steps × 4)

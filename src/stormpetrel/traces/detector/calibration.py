"""Calibration: a surprise as the share of calm windows that surprise as much, so that .1 % means .1 % on the next campaign.

surprise of calm windows that nothing was learnt from -> Calibration.fit -> share(surprise) -> p in (0, 1). Up to the highest
twentieth the share is a rank; beyond, where ranks are few, it falls exponentially at the rate at which that twentieth does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from stormpetrel.records.arrays import Floats

TAIL: Final = 0.05
SMALLEST: Final = 1e-12
_MOST_KEPT: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Calm surprises, sorted, and how the highest of them thin out."""

    values: Floats  # (kept,), sorted
    scale: float  # mean excess over the border of the tail
    windows: int  # that it was learnt from

    @classmethod
    def fit(cls, surprise: Floats) -> Self:
        """Learn from calm windows that were kept aside."""
        ordered = np.sort(surprise[np.isfinite(surprise)])
        if not ordered.size:
            return cls(np.zeros(1), 1.0, 0)
        border = float(np.quantile(ordered, 1 - TAIL))
        above = ordered[ordered > border]
        usual = float(np.std(ordered)) or 1.0
        scale = float((above - border).mean()) if above.size else 0.3 * usual
        places = np.round(np.linspace(0, ordered.size - 1, min(ordered.size, _MOST_KEPT))).astype(np.intp)
        return cls(ordered[places], max(scale, 0.05 * usual), int(ordered.size))

    @property
    def border(self) -> float:
        """The surprise above which the share is not a rank any more."""
        return float(np.quantile(self.values, 1 - TAIL))

    def share(self, surprise: Floats) -> Floats:
        """The share of calm windows that surprise as much or more."""
        rank = 1 - np.searchsorted(self.values, surprise, "left") / (len(self.values) + 1)
        tail = TAIL * np.exp(-np.minimum((surprise - self.border) / self.scale, 700.0))
        return np.clip(np.where(surprise > self.border, np.minimum(tail, TAIL), np.maximum(rank, TAIL)), SMALLEST, 1.0)

    def surprise_of(self, share: float) -> float:
        """The surprise that so large a share of calm windows exceeds."""
        if share >= TAIL:
            return float(np.quantile(self.values, 1 - share))
        return self.border + self.scale * float(np.log(TAIL / share))

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        return {f"{prefix}.values": self.values, f"{prefix}.tail": np.array([self.scale, float(self.windows)])}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        scale, windows = arrays[f"{prefix}.tail"]
        return cls(arrays[f"{prefix}.values"], float(scale), int(windows))

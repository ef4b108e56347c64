"""A forecast of use: amounts with their probabilities, for each job a distribution of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stormpetrel.records.arrays import Floats, Matrix

LEVELS: Final = (0.5, 0.9, 0.99)  # of the quantiles that are shown and judged


@dataclass(frozen=True, slots=True)
class UseForecast:
    """How much each job may use: amounts in bytes or seconds, ascending, with their probabilities; both (job, amount)."""

    amounts: Matrix
    chance: Matrix

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """The smallest amounts that are enough with these probabilities: (job, level)."""
        total = np.cumsum(self.chance, axis=1)
        places = [np.minimum((total < level - 1e-6).sum(axis=1), total.shape[1] - 1) for level in levels]
        return np.stack([self.amounts[np.arange(len(total)), place].astype(np.float64) for place in places], axis=1)

    def chance_of_more(self, amounts: Floats) -> Floats:
        """The probability that each job uses more than its amount."""
        more = self.amounts > np.asarray(amounts)[:, None] * (1.0 + 1e-6)
        return np.asarray((self.chance * more).sum(axis=1), np.float64)

"""Normal scores: each statistic as a rank among calm windows, written as the quantile of a normal distribution.

values (rows, columns) -> NormalScores.fit -> transform -> (rows, columns). 0 is the median of the calm windows, 2 what 2.3 % of
them exceed. Beyond everything that was seen a score grows with the distance in units of the usual spread: twice as far is odder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from stormpetrel.records.arrays import Floats

MOST_KEPT: Final = 1024  # sorted values per column: enough for a score to the second digit
LARGEST: Final = 12.0  # a score beyond which nothing is odder


@dataclass(frozen=True, slots=True, eq=False)
class NormalScores:
    """The calm values of each column, sorted, and their usual spread."""

    values: Floats  # (kept, columns), sorted
    spread: Floats  # (columns,)

    @classmethod
    def fit(cls, values: Floats, least_spread: float) -> Self:
        """Learn from calm values (rows, columns); a column that stood still has the least spread."""
        ordered = np.sort(values, axis=0)
        low, quarter, three_quarters, high = np.quantile(values, [0.05, 0.25, 0.75, 0.95], axis=0)
        spread = np.maximum.reduce([(high - low) / 3.29, (three_quarters - quarter) / 1.35, values.std(axis=0) / 4])
        if len(ordered) > MOST_KEPT:
            ordered = ordered[np.round(np.linspace(0, len(ordered) - 1, MOST_KEPT)).astype(np.intp)]
        return cls(ordered, np.maximum(spread, least_spread))

    def transform(self, values: Floats) -> Floats:
        """The normal score of each value, in -LARGEST..LARGEST; equal values share the middle of their ranks."""
        from scipy.special import ndtri

        known = len(self.values)
        columns = np.empty(values.T.shape)  # each column in one piece: searching in strides takes three times as long
        for column, (ordered, wanted) in enumerate(
            zip(np.ascontiguousarray(self.values.T), np.ascontiguousarray(values.T), strict=True)
        ):
            below = np.searchsorted(ordered, wanted, "left") + np.searchsorted(ordered, wanted, "right")
            columns[column] = ndtri((below / 2 + 0.5) / (known + 1))
        scores = np.ascontiguousarray(columns.T)
        return np.asarray(np.clip(scores + self.beyond(values), -LARGEST, LARGEST))

    def beyond(self, values: Floats) -> Floats:
        """How far each value lies above (below: negative) everything that was seen, in units of the usual spread; 0 within it."""
        outside = np.maximum(values - self.values[-1], 0) - np.maximum(self.values[0] - values, 0)
        return np.asarray(outside / self.spread)

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        return {f"{prefix}.values": self.values, f"{prefix}.spread": self.spread}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        return cls(arrays[f"{prefix}.values"], arrays[f"{prefix}.spread"])

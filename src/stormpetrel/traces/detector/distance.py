"""Distance: how far a row of residuals lies from what calm rows do, with the correlations between columns taken into account.

calm rows (rows, columns) -> Distance.fit -> log_distance -> (rows,). The covariance is drawn towards its diagonal: there are
about as many columns as independent calm windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from stormpetrel.records.arrays import Floats

SHRINKAGE: Final = 0.2  # share of the diagonal in the covariance
FLOOR: Final = 0.1  # added to each variance: a column that hardly moved may move a little


@dataclass(frozen=True, slots=True, eq=False)
class Distance:
    """Mean and inverse covariance of calm rows."""

    mean: Floats  # (columns,)
    precision: Floats  # (columns, columns)

    @classmethod
    def fit(cls, rows: Floats, shrinkage: float = SHRINKAGE, floor: float = FLOOR) -> Self:
        """Learn from calm rows; with fewer than two, columns count as they are."""
        columns = rows.shape[1]
        covariance = np.atleast_2d(np.cov(rows, rowvar=False)) if len(rows) > 1 else np.eye(columns)
        diagonal = np.diag(np.diag(covariance) + floor)
        inverse = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * diagonal)
        mean = rows.mean(axis=0) if len(rows) else np.zeros(columns)
        return cls(mean, (inverse + inverse.T) / 2)

    def log_distance(self, rows: Floats) -> Floats:
        """The logarithm of the squared distance of each row."""
        away = rows - self.mean
        squared: Floats = np.einsum("ij,ij->i", away @ self.precision, away)
        return np.log(np.maximum(squared, 1e-9))

    def parts(self, row: Floats) -> Floats:
        """What each column adds to the squared distance of one row; they sum to it."""
        away = row - self.mean
        return np.asarray(away * (self.precision @ away))

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        return {f"{prefix}.mean": self.mean, f"{prefix}.precision": self.precision}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        return cls(arrays[f"{prefix}.mean"], arrays[f"{prefix}.precision"])

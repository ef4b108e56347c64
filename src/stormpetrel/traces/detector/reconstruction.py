"""Reconstruction: how well straight lines through calm windows give a window back; too well is as odd as too badly.

rates (windows, steps, 4) -> Reconstruction.fit -> log_error -> (windows,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

_MOST_LEARNT: Final = 8_000
_AT_ONCE: Final = 8_192
_SMALL: Final = 1e-6  # a hundredth of a tick, squared
_DIGITS: Final = 6  # of the logarithm


@dataclass(frozen=True, slots=True, eq=False)
class Reconstruction:
    """The mean of calm windows, and the directions in which they differ most."""

    mean: Floats  # (steps × 3,)
    axes: Floats  # (components, steps × 3)

    @classmethod
    def fit(cls, rates: npt.NDArray[np.floating[Any]], components: int, rng: np.random.Generator) -> Self:
        """Learn from calm windows."""
        rows = rng.choice(len(rates), min(len(rates), _MOST_LEARNT), replace=False)
        flat = _flat(rates[np.sort(rows)]).astype(np.float64)
        mean = flat.mean(axis=0)
        power, axes = np.linalg.eigh((flat - mean).T @ (flat - mean))
        return cls(mean, np.ascontiguousarray(axes[:, np.argsort(-power)[:components]].T))

    def log_error(self, rates: npt.NDArray[np.floating[Any]]) -> Floats:
        """The logarithm of the mean squared error of each window.

        Rounded, since a matrix product differs in its last digits with the number of rows and threads, and ranks among many
        equal idle windows would differ with it.
        """
        errors = np.empty(len(rates))
        for at in range(0, len(rates), _AT_ONCE):
            away = _flat(rates[at : at + _AT_ONCE]).astype(np.float64) - self.mean
            left = (away**2).sum(axis=1) - ((away @ self.axes.T) ** 2).sum(axis=1)
            errors[at : at + _AT_ONCE] = np.maximum(left, 0.0) / away.shape[1]
        return np.asarray(np.round(np.log(errors + _SMALL), _DIGITS), dtype=np.float64)

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        return {f"{prefix}.mean": self.mean, f"{prefix}.axes": self.axes}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        return cls(arrays[f"{prefix}.mean"], arrays[f"{prefix}.axes"])


def _flat(rates: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Windows laid out as rows; `other` follows from the three modes."""
    return rates[:, :, :3].reshape(len(rates), -1)

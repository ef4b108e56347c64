"""Recalibration: forecasts corrected by how the latest ones turned out, as their outcomes become known.

settled forecasts, one after the other -> Recalibrator -> Calibration (a line in log-odds) -> probability.

A site's failure rate moves faster than its models. What moves is mostly the level of the risks, seldom their order: so the
log-odds are moved along a line, which keeps the order. How much of the past to believe differs between sites and weeks, so
several memories are kept, from twenty forecasts to all of them, and are weighted by how well each would have corrected the
latest ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

FEWEST: Final = 20  # settled forecasts before anything is corrected
MOST_REMEMBERED: Final = 8_000
_SMALLEST: Final = 1e-5  # no forecast is surer than this
_SLOPES: Final = (0.05, 20.0)  # never negative: the order of the risks is the model's
_EVERY: Final = 20  # settled forecasts between two fits, or a fortieth of the memory where that is more
_SLOPE_PRIOR, _LEVEL_PRIOR = 8.0, 2.0  # by how many forecasts, about, the next longer memory is believed
_QUICK_PRIOR: Final = 0.5
_LEARNING_RATE: Final = 0.5  # of the weights of the memories
_FORGETTING: Final = 0.998  # of their losses, per settled forecast
_HALF_LIVES: Final = 10  # a forecast that is older weighs less than a thousandth, and is not looked at


@dataclass(frozen=True, slots=True)
class Memory:
    """How fast the past is forgotten (half-life in settled forecasts), and whether the slope is fitted or the level only."""

    half_life: float
    fits_slope: bool


# From long to short; each leans on the one before it that fits a slope. A level needs few forecasts, a slope many.
MEMORIES: Final = (
    Memory(np.inf, True),
    Memory(3200, True),
    Memory(800, True),
    Memory(200, True),
    Memory(200, False),
    Memory(60, False),
    Memory(20, False),
)
_LEVELS_LEAN_ON: Final = 1  # which memory lends its slope to those that fit the level only


@dataclass(frozen=True, slots=True)
class Calibration:
    """A line in log-odds: corrected = slope × as forecast + level."""

    slope: float = 1.0
    level: float = 0.0

    def probability(self, forecast: Floats) -> Floats:
        """Return the corrected probabilities of forecasts."""
        return expit(self.slope * log_odds(forecast) + self.level)

    def forecast_of(self, probability: float) -> float:
        """Return the forecast that is corrected to this probability: a threshold as the model counts."""
        return float(expit((log_odds(np.array([probability])) - self.level) / self.slope)[0])


@dataclass
class Recalibrator:
    """Keeps the latest settled forecasts, and what they say of the next ones."""

    odds: list[float] = field(default_factory=list)  # log-odds as forecast, in the order of settling
    failed: list[float] = field(default_factory=list)
    lines: Floats = field(default_factory=lambda: np.tile([1.0, 0.0], (len(MEMORIES), 1)))  # (memory, slope and level)
    losses: Floats = field(default_factory=lambda: np.zeros(len(MEMORIES)))
    settled: int = 0

    def begin(self, forecasts: Floats, failed: npt.NDArray[np.bool_]) -> Recalibrator:
        """Start from forecasts whose outcomes are known, oldest first; nothing is known yet of how well each memory does."""
        self.odds = list(log_odds(np.asarray(forecasts, dtype=np.float64))[-MOST_REMEMBERED:])
        self.failed = list(np.asarray(failed, dtype=np.float64)[-MOST_REMEMBERED:])
        self._fit(range(len(MEMORIES)))
        return self

    @property
    def calibration(self) -> Calibration:
        """What the memories say together at this moment."""
        slope, level = self.weights @ self.lines
        return Calibration(float(slope), float(level))

    @property
    def weights(self) -> Floats:
        """How far each memory is believed."""
        weights: Floats = np.exp(-_LEARNING_RATE * (self.losses - self.losses.min()))
        weights /= weights.sum()
        return weights

    def settle(self, odds: float, failed: bool, lines: Floats) -> None:
        """Take in one outcome; `odds` as forecast, `lines` are those of the moment when the forecast was made."""
        corrected = lines[:, 0] * odds + lines[:, 1]
        self.losses = _FORGETTING * self.losses + np.logaddexp(0.0, corrected) - failed * corrected
        self.odds.append(odds)
        self.failed.append(float(failed))
        self.settled += 1
        if len(self.odds) > 2 * MOST_REMEMBERED:
            del self.odds[:-MOST_REMEMBERED], self.failed[:-MOST_REMEMBERED]
        due = [number for number, memory in enumerate(MEMORIES) if self.settled % _pause(memory) == 0]
        if due and len(self.odds) >= FEWEST:
            self._fit(due)

    def _fit(self, which: Iterable[int]) -> None:
        if len(self.odds) < FEWEST:
            return
        lines = self.lines.copy()  # forecasts that are not settled yet hold the old ones
        for number in which:
            memory = MEMORIES[number]
            latest = int(min(MOST_REMEMBERED, _HALF_LIVES * memory.half_life))
            odds, failed = np.array(self.odds[-latest:]), np.array(self.failed[-latest:])
            weights = np.exp2(-np.arange(odds.size)[::-1] / memory.half_life)
            part = odds, failed, weights
            if memory.fits_slope:
                lines[number] = _fit_line(*part, toward=lines[number - 1] if number else np.array([1.0, 0.0]))
            else:
                lines[number] = _fit_level(*part, toward=lines[_LEVELS_LEAN_ON])
        self.lines = lines


def log_odds(probability: Floats) -> Floats:
    """The log-odds of probabilities, none surer than one in a hundred thousand."""
    sure = np.clip(probability, _SMALLEST, 1 - _SMALLEST)
    odds: Floats = np.log(sure / (1 - sure))
    return odds


def expit(odds: Floats) -> Floats:
    """The probabilities of log-odds."""
    return 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))


def _pause(memory: Memory) -> int:
    return int(max(_EVERY, min(memory.half_life, MOST_REMEMBERED) // 40))


def _fit_line(odds: Floats, failed: Floats, weights: Floats, toward: Floats) -> Floats:
    """Slope and level by Newton's method, held near another line as if by a few forecasts."""
    line = toward.copy()
    prior = np.array([_SLOPE_PRIOR, _LEVEL_PRIOR])
    columns = np.stack([odds, np.ones_like(odds)], axis=1)  # (forecast, slope and level)
    for _ in range(8):
        probability = expit(columns @ line)
        gradient = columns.T @ (weights * (probability - failed)) + prior * (line - toward)
        curvature = (columns.T * (weights * probability * (1 - probability))) @ columns + np.diag(prior)
        step = np.linalg.solve(curvature, gradient)
        line = line - step * min(1.0, 2.0 / max(1e-9, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-4:
            break
    line[0] = np.clip(line[0], *_SLOPES)
    return line


def _fit_level(odds: Floats, failed: Floats, weights: Floats, toward: Floats) -> Floats:
    """The level alone, with the slope of another line."""
    slope, level = toward
    for _ in range(8):
        probability = expit(slope * odds + level)
        gradient = float(weights @ (probability - failed)) + _QUICK_PRIOR * (level - toward[1])
        step = gradient / (float(weights @ (probability * (1 - probability))) + _QUICK_PRIOR)
        level -= np.clip(step, -2.0, 2.0)
        if abs(step) < 1e-4:
            break
    return np.array([slope, level])

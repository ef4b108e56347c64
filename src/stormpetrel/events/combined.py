"""The combined alarm: starts without labels, and takes them as they come.

EventSeries -> fit -> Combined -> score, forecast.

The score is the forecaster's, corrected by what labelled outages and labelled calm taught: which kinds, up or down, mean trouble
here, and which are only noise. The correction is a logistic regression in which each outage counts the same, however long it was,
and which is drawn towards no correction: one outage moves little, thirty move much. How far it is trusted is tried out inside the
training part, on later outages than it was learnt from. Without a label the score is the forecaster's to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.events.contract import Forecast, Scores
from stormpetrel.events.counts.forecast import CountForecaster, calm_for_training, one_thread
from stormpetrel.events.counts.memory import Truth
from stormpetrel.events.surprise import MEMORY_HOURS, remember
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import ANOMALY, EventSeries

RIDGE: Final = 20.0
OUTAGE_WEIGHT: Final = 6.0  # an outage counts as much as so many calm buckets, whether it lasted one bucket or a hundred
HALF_TRUST: Final = 40.0  # outages at which the correction is trusted by half
FEWEST_TO_TRY: Final = 4  # outages: with fewer, nothing can be held back to try the correction on
SHARES: Final = (1.0, 0.5)  # of that trust, tried one after the other
HARM: Final = 0.01  # precision-recall area that a correction may cost in the trial: less is chance
ABOVE_CHANCE: Final = 3.0  # labels that neither score nor correction can find again are odd, and teach nothing
_CUTS: Final = (0.4, 0.55, 0.7, 0.85)  # of the outages: what is learnt from at each step; it is tried on those up to the next cut
_SLOPE: Final = 2.0  # log odds per unit of the score, before any label is seen
_SLOPE_WEIGHT: Final = 10.0
_SMALLEST_SLOPE: Final = 0.3
_ROUNDS: Final = 25


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """What labels taught: log odds of an outage = offset + slope × score + features · weights."""

    offset: float
    slope: float
    weights: Floats  # (1 + 4 × kinds,)

    def of(self, features: Floats) -> Floats:
        """(buckets,) what to add to the score, in its own unit."""
        return np.asarray((self.weights[0] + features @ self.weights[1:]) / self.slope, dtype=np.float64)


@dataclass
class Combined:
    """The forecaster's score, corrected by labels as far as they proved themselves."""

    base_: CountForecaster = field(default_factory=CountForecaster)
    correction_: Correction | None = None
    trust_: float = 0.0  # 0: as the forecaster says; 1: as the labels say
    outages_: int = 0  # labelled ones that were learnt from

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on."""
        return self.base_.history_buckets

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn the forecast from what is calm, and the correction from what is labelled."""
        self.base_ = CountForecaster(self.base_.ridge).fit(series, progress=lambda share, message: progress(0.9 * share, message))
        self.correction_, self.trust_, self.outages_ = None, 0.0, 0
        scores, oddness = self.base_.score_and_oddness(series)
        lesson = _Lesson.of(series, scores, oddness)
        self.outages_ = lesson.outages
        if self.outages_:
            progress(0.9, f"learning from {self.outages_} labelled outages")
            with one_thread():
                self.trust_ = lesson.trust()
                self.correction_ = lesson.learn(lesson.outages)
        progress(1.0, "learnt")
        return self

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) higher is more abnormal, in the unit of the forecaster's score; NaN where that is."""
        scores, oddness = self.base_.score_and_oddness(series, since=since)
        if self.correction_ is None or not self.trust_:
            return scores
        return np.asarray(scores + self.trust_ * self.correction_.of(features_of(oddness, series.bucket_s)), dtype=np.float64)

    def forecast(self, series: EventSeries, *, since: int = 0) -> Forecast:
        """What each bucket was expected to hold: the forecaster's."""
        return self.base_.forecast(series, since=since)

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet, whole or not at all."""
        from stormpetrel.events.counts.saving import save_combined

        save_combined(self, folder)

    @classmethod
    def load(cls, folder: Path) -> Combined:
        """Read a saved model; ModelFormatError says what is wrong with it."""
        from stormpetrel.events.counts.saving import load_combined

        return load_combined(folder)


def features_of(oddness: Floats, bucket_s: int) -> Floats:
    """(buckets, 4 × kinds): remembered normal scores with their sign, and by how much each is out of the ordinary."""
    signed = np.concatenate([remember(oddness, hours, bucket_s) for hours in MEMORY_HOURS], axis=1)
    return np.concatenate([signed, np.maximum(np.abs(signed) - 1.0, 0.0)], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Lesson:
    """Labelled buckets in the order of time; `outage` numbers the outages from 1 and is 0 where it is calm."""

    scores: Floats  # (rows,)
    features: Floats  # (rows, 4 × kinds)
    outage: npt.NDArray[np.int64]  # (rows,)
    outages: int

    @classmethod
    def of(cls, series: EventSeries, scores: Scores, oddness: Floats) -> _Lesson:
        anomalous = series.label == ANOMALY
        begins = anomalous & ~np.concatenate([[False], anomalous[:-1]])
        rows = np.flatnonzero(np.isfinite(scores) & (anomalous | calm_for_training(series)))
        outages, number = np.unique((np.cumsum(begins) * anomalous)[rows], return_inverse=True)
        calm_first = int(len(outages) > 0 and outages[0] == 0)
        outage = number.astype(np.int64) + (1 - calm_first)
        return cls(scores[rows], features_of(oddness, series.bucket_s)[rows], outage, len(outages) - calm_first)

    def learn(self, outages: int) -> Correction:
        """The correction that the first so many outages teach, with the calm up to the last of them."""
        rows = self._until(outages)
        outage = self.outage[rows]
        truth = (outage > 0).astype(np.float64)
        length = np.bincount(outage)[outage]
        weight = np.where(truth > 0, OUTAGE_WEIGHT / length, 1.0)  # (rows,)
        offset, slope = _fit_logistic(
            np.column_stack([np.ones(len(truth)), self.scores[rows]]),
            truth, weight, np.zeros(len(truth)), np.array([1e-6, _SLOPE_WEIGHT]), np.array([-4.0, _SLOPE]),
        )  # fmt: skip
        slope = max(float(slope), _SMALLEST_SLOPE)
        design = np.concatenate([np.ones((len(truth), 1)), self.features[rows]], axis=1)
        penalty = np.concatenate([[1.0], np.full(self.features.shape[1], RIDGE)])
        margin = offset + slope * self.scores[rows]
        weights = _fit_logistic(design, truth, weight, margin, penalty, np.zeros(len(penalty)))
        return Correction(float(offset), slope, weights)

    def trust(self) -> float:
        """How far to trust the correction: the more outages the further, and not at all if that would have done harm."""
        full = self.outages / (self.outages + HALF_TRUST)
        if self.outages < FEWEST_TO_TRY:
            return full / 2
        truth, scores, corrections = self._tried()
        alone, *corrected = (pr_auc(truth, scores + share * full * corrections) or 0.0 for share in (0.0, *SHARES))
        if max(alone, *corrected) < ABOVE_CHANCE * truth.mean():
            return 0.0
        return next((share * full for share, area in zip(SHARES, corrected, strict=True) if area > alone - HARM), 0.0)

    def _tried(self) -> tuple[Truth, Floats, Floats]:
        """Truth, score and correction of the later buckets, each corrected by what earlier outages had taught."""
        cuts = sorted({max(1, int(cut * self.outages)) for cut in _CUTS})
        parts = []
        for first, last in pairwise([*cuts, self.outages]):
            later = self._until(last) & ~self._until(first)
            parts.append((self.outage[later] > 0, self.scores[later], self.learn(first).of(self.features[later])))
        truth, scores, corrections = (np.concatenate(column) for column in zip(*parts, strict=True))
        return truth, scores, corrections

    def _until(self, outages: int) -> Truth:
        """(rows,) those up to the end of an outage."""
        last = np.flatnonzero(self.outage == outages)[-1] if outages < self.outages else len(self.outage) - 1
        return np.arange(len(self.outage)) <= last


def _fit_logistic(design: Floats, truth: Floats, weight: Floats, margin: Floats, penalty: Floats, towards: Floats) -> Floats:
    """Weights of a logistic regression on top of a margin, drawn towards given ones; Newton's method with bounded steps."""
    weights = towards.copy()
    for _ in range(_ROUNDS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(margin + design @ weights, -30.0, 30.0)))
        slope = design.T @ (weight * (truth - chance)) - penalty * (weights - towards)
        curve = (design * (weight * chance * (1.0 - chance))[:, None]).T @ design + np.diag(penalty)
        step = np.clip(np.linalg.solve(curve, slope), -1.0, 1.0)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(weights, dtype=np.float64)

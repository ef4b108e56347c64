"""Metrics of a yes-or-no forecast: truth and probability -> figures.

A higher score means more likely to fail. Areas are exact (ties count half); nothing here chooses a threshold on the rows
that it then judges: `best_f1_threshold` is for held-out rows of the training part.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Truth = npt.NDArray[np.bool_]

ECE_BINS: Final = 15


@dataclass(frozen=True, slots=True)
class Metrics:
    """How good a forecast was; `null` (None) where the rows cannot tell, for instance with one class only."""

    roc_auc: float | None
    pr_auc: float | None
    f1: float
    precision: float
    recall: float
    brier: float
    ece: float
    threshold: float
    n_train: int
    n_test: int
    failed_share: float

    def as_dict(self) -> dict[str, float | int | None]:
        """As a plain dictionary, for JSON."""
        return asdict(self)


def judge(truth: Truth, probability: Floats, *, threshold: float, n_train: int) -> Metrics:
    """All the figures of one forecast at a threshold that was chosen elsewhere."""
    truth = np.asarray(truth, dtype=bool)
    probability = np.asarray(probability, dtype=np.float64)
    precision, recall, f1 = scores_at(truth, probability, threshold)
    empty = truth.size == 0
    return Metrics(
        roc_auc=roc_auc(truth, probability),
        pr_auc=pr_auc(truth, probability),
        f1=f1,
        precision=precision,
        recall=recall,
        brier=float("nan") if empty else float(np.mean((probability - truth) ** 2)),
        ece=float("nan") if empty else expected_calibration_error(truth, probability),
        threshold=float(threshold),
        n_train=n_train,
        n_test=int(truth.size),
        failed_share=float("nan") if empty else float(truth.mean()),
    )


def scores_at(truth: Truth, probability: Floats, threshold: float) -> tuple[float, float, float]:
    """Precision, recall and F1 of the rule `probability >= threshold`; 0 where there is nothing to divide by."""
    flagged = probability >= threshold
    hits = float(np.sum(flagged & truth))
    precision = hits / float(flagged.sum()) if flagged.any() else 0.0
    recall = hits / float(truth.sum()) if truth.any() else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return precision, recall, f1


def roc_auc(truth: Truth, probability: Floats) -> float | None:
    """Area under the ROC curve: the chance that a failed job stands above one that did not fail, ties counting half."""
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0 or negatives == 0:
        return None
    _, inverse, counts = np.unique(probability, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2  # of each distinct value, from 1
    above = mean_rank[inverse[truth]].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def pr_auc(truth: Truth, probability: Floats) -> float | None:
    """Average precision: precision at each distinct score, weighted by the recall that it adds."""
    if not truth.any():
        return None
    precision, recall, _ = precision_recall_curve(truth, probability)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def precision_recall_curve(truth: Truth, probability: Floats) -> tuple[Floats, Floats, Floats]:
    """(precision, recall, threshold) at each distinct score, from the highest down."""
    order = np.argsort(-probability, kind="stable")
    sorted_scores = probability[order]
    last_of_score = np.flatnonzero(np.append(np.diff(sorted_scores) != 0, True))
    hits = np.cumsum(truth[order])[last_of_score].astype(np.float64)
    precision = hits / (last_of_score + 1)
    recall = hits / max(1, int(truth.sum()))
    return precision, recall, sorted_scores[last_of_score]


def roc_curve(truth: Truth, probability: Floats) -> tuple[Floats, Floats, Floats]:
    """(false-positive rate, true-positive rate, threshold) at each distinct score, beginning in the corner (0, 0)."""
    if not truth.size:
        return np.zeros(1), np.zeros(1), np.full(1, np.inf)
    order = np.argsort(-probability, kind="stable")
    sorted_scores = probability[order]
    last_of_score = np.flatnonzero(np.append(np.diff(sorted_scores) != 0, True))
    hits = np.cumsum(truth[order])[last_of_score]
    misses = last_of_score + 1 - hits
    true_rate = np.append(0.0, hits / max(1, int(truth.sum())))
    false_rate = np.append(0.0, misses / max(1, int((~truth).sum())))
    return false_rate, true_rate, np.append(np.inf, sorted_scores[last_of_score])


def best_f1_threshold(truth: Truth, probability: Floats) -> float:
    """The threshold with the highest F1 on these rows: only ever called on rows that the test part does not contain."""
    if not truth.any():
        return 0.5
    precision, recall, threshold = precision_recall_curve(truth, probability)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    return float(threshold[int(np.argmax(f1))])


def expected_calibration_error(truth: Truth, probability: Floats, bins: int = ECE_BINS) -> float:
    """Mean gap between forecast and frequency over bins of equal mass."""
    table = reliability(truth, probability, bins)
    return float(np.sum(table[:, 2] * np.abs(table[:, 0] - table[:, 1])) / truth.size)


def reliability(truth: Truth, probability: Floats, bins: int = ECE_BINS) -> Floats:
    """Rows of (mean forecast, frequency, jobs) over bins of equal mass, lowest forecasts first."""
    # Jobs with the same forecast are alike: each counts with their mean, so that their order does not matter.
    _, same, counts = np.unique(probability, return_inverse=True, return_counts=True)
    frequency = np.bincount(same, weights=truth, minlength=counts.size) / counts if truth.size else np.empty(0)
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, bins) if part.size]
    return np.array([[probability[part].mean(), frequency[same[part]].mean(), part.size] for part in parts]).reshape(-1, 3)


def reliability_slope(truth: Truth, probability: Floats, bins: int = ECE_BINS) -> float | None:
    """Slope of frequency against forecast over the bins, weighted by their jobs; 1 is ideal, below 1 is overconfident."""
    table = reliability(truth, probability, bins)
    if len(table) < 2 or np.ptp(table[:, 0]) < 1e-9:
        return None
    weights = table[:, 2]
    forecast = table[:, 0] - np.average(table[:, 0], weights=weights)
    frequency = table[:, 1] - np.average(table[:, 1], weights=weights)
    return float(np.sum(weights * forecast * frequency) / np.sum(weights * forecast**2))


def brier_skill(truth: Truth, probability: Floats, reference: Floats) -> float | None:
    """1 − Brier of the forecast ÷ Brier of the reference; above zero is better than the reference."""
    base = float(np.mean((reference - truth) ** 2)) if truth.size else 0.0
    return None if base == 0.0 else 1.0 - float(np.mean((probability - truth) ** 2)) / base

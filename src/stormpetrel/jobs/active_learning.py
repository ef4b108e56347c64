"""Active learning: train on few rows, chosen round by round for what they can teach.

pool and validation rows -> active_learning -> the model of the best round, and the history of all rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.engine import cores
from stormpetrel.errors import UsageError
from stormpetrel.jobs.exam.resampling import Truth, filled_with_medians, standardised
from stormpetrel.learn.metrics import scores_at
from stormpetrel.records.arrays import Floats, Matrix

THRESHOLD: Final = 0.5
HISTORY_SCHEMA: Final = pl.Schema(
    {
        "round": pl.Int64,
        "rows": pl.Int64,
        "failed": pl.Int64,
        "precision": pl.Float64,
        "recall": pl.Float64,
        "f1": pl.Float64,
        "best": pl.Boolean,
    }
)
_LANDMARKS: Final = 2_000
_NEIGHBOURS: Final = 10


class Classifier(Protocol):
    """What is asked of a model: scikit-learn's and XGBoost's classifiers keep it."""

    def fit(self, x: Matrix, y: Truth, /) -> object:
        """Learn from rows and whether they failed."""

    def predict_proba(self, x: Matrix, /) -> npt.NDArray[np.floating]:
        """Probabilities of (completed, failed), one row per job."""


class ActivelyLearned(NamedTuple):
    """The model of the best round, and one row per round: its training rows and its figures on the validation rows."""

    model: Classifier
    history: pl.DataFrame


def active_learning(
    x_pool: Matrix,
    y_pool: Truth,
    x_valid: Matrix,
    y_valid: Truth,
    *,
    start: int,
    top_n: int,
    rounds: int,
    make_model: Callable[[], Classifier],
    seed: int,
) -> ActivelyLearned:
    """Train on `start` rows, then `rounds` times on the `top_n` most informative rows more; keep the round with the best F1.

    A row is informative where the model is undecided and the region is populated: (1 − |2p − 1|) × density. F1 is that of
    the failed class at probability .5 on the validation rows; the first round that reaches the best value wins.
    """
    density = region_density(x_pool, seed)
    chosen = _stratified_start(y_pool, start, np.random.default_rng(seed))
    history: list[tuple[int, int, int, float, float, float]] = []
    best: tuple[float, Classifier] | None = None
    for number in range(rounds + 1):
        model = make_model()
        model.fit(x_pool[chosen], y_pool[chosen])
        precision, recall, f1 = scores_at(y_valid, failure_probability(model, x_valid), THRESHOLD)
        history.append((number, int(chosen.sum()), int(y_pool[chosen].sum()), precision, recall, f1))
        if best is None or f1 > best[0]:
            best = (f1, model)
        if chosen.all() or number == rounds:
            break
        rest = np.flatnonzero(~chosen)
        worth = informativeness(failure_probability(model, x_pool[rest]), density[rest])
        chosen[rest[np.argsort(-worth, kind="stable")[:top_n]]] = True
    assert best is not None
    steps = [(*row, row[-1] == best[0]) for row in history]
    frame = pl.DataFrame(steps, schema=HISTORY_SCHEMA, orient="row")
    return ActivelyLearned(best[1], frame.with_columns(best=pl.col("best") & pl.col("best").is_first_distinct()))


def informativeness(probability: Floats, density: Floats) -> Floats:
    """How much a row can teach: 0 where the model is certain, the density of its region where it is undecided."""
    return (1.0 - np.abs(2.0 * probability - 1.0)) * density


def region_density(x: Matrix, seed: int, landmarks: int = _LANDMARKS, neighbours: int = _NEIGHBOURS) -> Floats:
    """How populated the region of each row is, in (0, 1]: 1 ÷ (1 + mean distance to the nearest landmarks).

    Landmarks are randomly drawn rows, and distances are those of standardised columns, so the cost grows with the number of
    rows and not with its square: 250,000 rows take seconds. The 1 keeps rows that many others repeat exactly from dwarfing all.
    """
    from sklearn.neighbors import NearestNeighbors

    scaled = standardised(filled_with_medians(x))
    drawn = np.random.default_rng(seed).permutation(len(scaled))[:landmarks]
    search = NearestNeighbors(n_neighbors=min(neighbours, drawn.size), n_jobs=min(2, cores())).fit(scaled[drawn])
    distance, _ = search.kneighbors(scaled)  # (rows, neighbours)
    density: Floats = 1.0 / (1.0 + distance.mean(axis=1, dtype=np.float64))
    return density


def failure_probability(model: Classifier, x: Matrix) -> Floats:
    """The probability that each row failed."""
    return np.asarray(model.predict_proba(x)[:, 1], dtype=np.float64)


def _stratified_start(y: Truth, start: int, rng: np.random.Generator) -> Truth:
    """Random rows with the classes in proportion, at least one of each."""
    failed, others = rng.permutation(np.flatnonzero(y)), rng.permutation(np.flatnonzero(~y))
    if failed.size == 0 or others.size == 0:
        raise UsageError(
            "Active learning needs failed and completed jobs in its pool, and one of them is absent.",
            hint="Count other states as failures, or take more jobs.",
        )
    of_failed = min(failed.size, max(1, round(start * failed.size / y.size)))
    chosen = np.zeros(y.size, dtype=bool)
    chosen[failed[:of_failed]] = True
    chosen[others[: max(1, start - of_failed)]] = True
    return chosen

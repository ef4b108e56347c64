"""The seed's models: XGBoost, plain, weighted, oversampled and actively trained, and the usual peers.

training and validation rows -> Recipe.fit -> FittedRecipe -> failure_probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from stormpetrel.engine import cores
from stormpetrel.jobs.active_learning import Classifier, active_learning, failure_probability
from stormpetrel.jobs.exam.resampling import Truth, random_oversample, smote
from stormpetrel.learn.lean_imports import classifier_class
from stormpetrel.records.arrays import Floats, Matrix

# At most two threads, whatever the machine has: results depend on the number. Small tables get one: on a busy machine two
# threads that wait for each other after every node of a tree took a hundred times as long as one.
THREADS: Final = 2
SMALL: Final = 20_000  # rows


class TrainingRows(NamedTuple):
    """What a recipe learns from: the validation rows are part of training, apart for recipes that choose between models."""

    x: Matrix
    y: Truth
    x_valid: Matrix
    y_valid: Truth


@dataclass(frozen=True, slots=True)
class FittedRecipe:
    """A trained model; `history` has the rounds of active learning, None for other recipes."""

    model: Classifier
    history: pl.DataFrame | None = None

    def failure_probability(self, x: Matrix) -> Floats:
        """The probability that each row failed."""
        return failure_probability(self.model, x)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A named way from training rows to a model."""

    title: str
    fit: Callable[[TrainingRows, int], FittedRecipe]


@dataclass(frozen=True, slots=True)
class ActiveSettings:
    """How large the steps of active learning are, as shares of the pool."""

    start_share: float = 0.02
    top_share: float = 0.02
    rounds: int = 12
    fewest: int = 200  # rows of a step, for small pools


def fit_active(rows: TrainingRows, seed: int, settings: ActiveSettings = ActiveSettings()) -> FittedRecipe:
    """XGBoost trained by active learning: a few per cent of the training rows, chosen in rounds."""
    start = max(settings.fewest, round(settings.start_share * rows.y.size))
    top_n = max(settings.fewest, round(settings.top_share * rows.y.size))
    learned = active_learning(
        *rows, start=start, top_n=top_n, rounds=settings.rounds, make_model=lambda: xgboost_model(seed, rows.y.size), seed=seed
    )
    return FittedRecipe(learned.model, learned.history)


def threads(rows: int) -> int:
    """How many threads a model of so many rows is fitted with; one inside a worker of the engine."""
    return min(THREADS, cores()) if rows >= SMALL else 1


def xgboost_model(seed: int, rows: int, **others: Any) -> Classifier:
    """An untrained XGBoost classifier for so many rows: 200 trees of depth 8."""
    model: Classifier = classifier_class()(
        n_estimators=200, max_depth=8, learning_rate=0.1, tree_method="hist", n_jobs=threads(rows), random_state=seed, **others
    )
    return model


def _weighted_xgboost(y: Truth, seed: int) -> Classifier:
    """A failed job weighs as many times more as it is rarer."""
    return xgboost_model(seed, y.size, scale_pos_weight=float((~y).sum()) / max(1, int(y.sum())))


def _logistic_regression(_: Truth, seed: int) -> Classifier:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    filled = SimpleImputer(strategy="median", keep_empty_features=True)
    model: Classifier = make_pipeline(filled, StandardScaler(), LogisticRegression(max_iter=500, random_state=seed))
    return model


def _decision_tree(_: Truth, seed: int) -> Classifier:
    from sklearn.tree import DecisionTreeClassifier

    model: Classifier = DecisionTreeClassifier(min_samples_leaf=5, random_state=seed)
    return model


def _random_forest(y: Truth, seed: int) -> Classifier:
    from sklearn.ensemble import RandomForestClassifier

    model: Classifier = RandomForestClassifier(
        n_estimators=100, min_samples_leaf=3, max_samples=0.3, n_jobs=threads(y.size), random_state=seed
    )  # a tree of 30 % of the rows costs a quarter of the time, and the forest is as good
    return model


def _plain(make_model: Callable[[Truth, int], Classifier]) -> Callable[[TrainingRows, int], FittedRecipe]:
    return _resampled(make_model, lambda x, y, _: (x, y))


def _resampled(
    make_model: Callable[[Truth, int], Classifier], resample: Callable[[Matrix, Truth, int], tuple[Matrix, Truth]]
) -> Callable[[TrainingRows, int], FittedRecipe]:
    """Training on all rows, validation rows too: nothing is chosen by them."""

    def fit(rows: TrainingRows, seed: int) -> FittedRecipe:
        x, y = resample(np.concatenate([rows.x, rows.x_valid]), np.concatenate([rows.y, rows.y_valid]), seed)
        model = make_model(y, seed)
        model.fit(x, y)
        return FittedRecipe(model)

    return fit


def _xgboost(y: Truth, seed: int) -> Classifier:
    return xgboost_model(seed, y.size)


RECIPES: Final[dict[str, Recipe]] = {
    "xgboost": Recipe("XGBoost", _plain(_xgboost)),
    "xgboost_weighted": Recipe("XGBoost, failed jobs weighted", _plain(_weighted_xgboost)),
    "xgboost_random_oversampling": Recipe("XGBoost + random oversampling", _resampled(_xgboost, random_oversample)),
    "xgboost_smote": Recipe("XGBoost + SMOTE oversampling", _resampled(_xgboost, smote)),
    "xgboost_active_learning": Recipe("XGBoost + active learning", fit_active),
    "logistic_regression": Recipe("Logistic regression", _plain(_logistic_regression)),
    "decision_tree": Recipe("Decision tree", _plain(_decision_tree)),
    "random_forest": Recipe("Random forest", _plain(_random_forest)),
}

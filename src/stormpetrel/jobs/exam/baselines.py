"""Baselines: what a careful person would do without our model, judged on the same rows.

`last_outcome`: as this user's last ended job. `user_rate`: this user's failure rate so far. `xgboost`: untuned trees on the
request, the calendar and the user's rolling rates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.learn.lean_imports import classifier_class
from stormpetrel.learn.threads import threads

_XGBOOST_COLUMNS: Final = (
    "request.cpus",
    "request.nodes",
    "request.gpus",
    "request.memory",
    "request.time_limit",
    "calendar.hour",
    "calendar.day_of_week",
    "user.failed_rate_ever",
    "user.failed_rate_30d",
    "user.failed_rate_4d",
    "user.failed_rate_12jobs",
    "user.failed_rate_2jobs",
    "user.failure_streak",
    "user.ended_total",
    "user.since_end",
)
Baseline = Callable[[FeatureMatrix, NDArray[np.bool_], FeatureMatrix], NDArray[np.float64]]


def last_outcome(train: FeatureMatrix, failed: NDArray[np.bool_], test: FeatureMatrix) -> NDArray[np.float64]:
    """1 where the user's last ended job failed, 0 where it did not or where there is none."""
    return (_column(test, "user.failure_streak") > 0).astype(np.float64)


def user_rate(train: FeatureMatrix, failed: NDArray[np.bool_], test: FeatureMatrix) -> NDArray[np.float64]:
    """The share of the user's ended jobs that failed, leaning on the site's rate while there are few."""
    rate = _column(test, "user.failed_rate_ever").astype(np.float64)
    return np.where(np.isnan(rate), float(failed.mean()) if failed.size else 0.0, rate)


def xgboost_untuned(train: FeatureMatrix, failed: NDArray[np.bool_], test: FeatureMatrix) -> NDArray[np.float64]:
    """Gradient-boosted trees with everyday settings (300 trees of depth 6 at rate .05) on request, calendar and user rates."""
    if not failed.any() or failed.all():
        raise NotEnoughJobsError("The training part holds one outcome only.", hint="Use a longer log.")
    columns = [train.names.index(name) for name in _XGBOOST_COLUMNS]
    model = classifier_class()(n_estimators=300, max_depth=6, learning_rate=0.05, n_jobs=threads())
    model.fit(train.values[:, columns], failed)
    return np.asarray(model.predict_proba(test.values[:, columns])[:, 1], dtype=np.float64)


BASELINES: Final[dict[str, Baseline]] = {"last_outcome": last_outcome, "user_rate": user_rate, "xgboost": xgboost_untuned}


def _column(features: FeatureMatrix, name: str) -> NDArray[np.float32]:
    return features.values[:, features.names.index(name)]

"""C2ST, the classifier two-sample test: can trees tell synthetic jobs from real ones.

real and synthetic Workload -> c2st -> area under the ROC: 0.5 is "no", 1 is "always", below 0.5 means copying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.synth.score.fidelity import CORES, HOUR_S, RUNTIME, same_user
from stormpetrel.synth.workload import Workload

BLOCKS: Final = 5
PREVIOUS: Final = 2  # rows before a row that the sequence test sees as well
FEWEST: Final = 4 * BLOCKS  # rows of each side; below that a fold has next to nothing to learn from
MOST: Final = 200_000  # rows of each side; of a longer trace each block keeps its first fifth of this
_TREES: Final = {"n_estimators": 120, "max_depth": 5, "learning_rate": 0.15, "subsample": 0.8, "tree_method": "hist"}
# One thread: 200,000 rows take 8 s of CPU with one, and on a busy machine two that wait for each other took five times as much.
_THREADS: Final = 1


def c2st(real: Workload, synthetic: Workload, *, sequence: bool = False, seed: int = 0) -> float | None:
    """Area under the ROC of trees that tell synthetic from real rows, out of fold on five contiguous blocks.

    Block k of the real and block k of the synthetic trace are the test rows of fold k; the predictions of all folds are pooled.
    The trees see log(1 + interval), log(1 + run time), cores, requested time, hour of day (0 to 23), and whether the user is
    that of the job before; with `sequence` also those of the two jobs before. A column that either side lacks is left out.
    Rows begin where all of this is known: at the second job, with `sequence` at the fourth. None where a side has fewer than 20.

    A trace of more than 200,000 rows is thinned to the first 40,000 of each of its five blocks.
    """
    columns = _shared_columns(real, synthetic)
    sides = [_rows(workload, columns, PREVIOUS if sequence else 0) for workload in (real, synthetic)]
    if min(len(x) for x, _ in sides) < FEWEST:
        return None
    x = np.concatenate([x for x, _ in sides])  # (rows of both, columns)
    fold = np.concatenate([fold for _, fold in sides])
    is_synthetic = np.repeat([False, True], [len(x) for x, _ in sides])
    return roc_auc(is_synthetic, _out_of_fold(x, is_synthetic, fold, seed))


def _out_of_fold(x: Matrix, is_synthetic: npt.NDArray[np.bool_], fold: npt.NDArray[np.int64], seed: int) -> Floats:
    from xgboost import XGBClassifier

    scores = np.empty(len(x))
    for block in range(BLOCKS):
        test = fold == block
        trees: Any = XGBClassifier(**_TREES, n_jobs=_THREADS, random_state=seed)
        trees.fit(x[~test], is_synthetic[~test])
        scores[test] = trees.predict_proba(x[test])[:, 1]
    return scores


def _rows(workload: Workload, columns: tuple[str, ...], previous: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """(rows, columns × (1 + previous)) features and (rows,) the block each belongs to."""
    if workload.height < 2:
        return np.empty((0, 0), np.float32), np.empty(0, np.int64)
    single = np.column_stack([_COLUMNS[name](workload) for name in columns]).astype(np.float32)  # (jobs - 1, columns)
    rows = max(0, len(single) - previous)
    x = np.hstack([single[previous - back : previous - back + rows] for back in range(previous + 1)])
    blocks = np.array_split(np.arange(rows), BLOCKS)
    kept = [block[: MOST // BLOCKS] if rows > MOST else block for block in blocks]
    fold = np.repeat(np.arange(BLOCKS), [len(block) for block in kept])
    return x[np.concatenate(kept)], fold


def _shared_columns(real: Workload, synthetic: Workload) -> tuple[str, ...]:
    needs = {"runtime": RUNTIME, "cores": CORES, "requested_time": "time_limit_s", "same_user": "user"}
    both = set(real.jobs.columns) & set(synthetic.jobs.columns)
    return tuple(name for name in _COLUMNS if name not in needs or needs[name] in both)


def _values(workload: Workload, name: str) -> Floats:
    """(jobs - 1,) values of a column from the second job on, NaN where empty."""
    return workload.jobs[name].slice(1).cast(pl.Float64).to_numpy().astype(np.float64)


def _same_user(workload: Workload) -> Floats:
    same = same_user(workload)
    assert same is not None  # both sides have users, or this column is left out
    return same


# Each gives (jobs - 1,) numbers, from the second job on: the first has no interval.
_COLUMNS: Final[dict[str, Callable[[Workload], Floats]]] = {
    "interval": lambda workload: np.log1p(np.maximum(workload.interval_s(), 0.0)),
    "runtime": lambda workload: np.log1p(np.maximum(_values(workload, RUNTIME), 0.0)),
    "cores": lambda workload: _values(workload, CORES),
    "requested_time": lambda workload: _values(workload, "time_limit_s"),
    "hour_of_day": lambda workload: np.floor(workload.submit_s()[1:] / HOUR_S) % 24,
    "same_user": _same_user,
}

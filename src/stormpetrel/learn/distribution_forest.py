"""A forest that forecasts a distribution: random trees grown by XGBoost, each leaf with the counts of what fell into it.

features, target -> DistributionForest.fit -> chance -> (row, step) probabilities of the target. Where a use was cut off at its
limit, the leaf counts it among the larger ones. Asking needs no XGBoost: the trees are arrays, walked by compiled code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import ModelFormatError
from stormpetrel.learn.threads import threads, wait_politely
from stormpetrel.records.arrays import Floats, Matrix

TREES: Final = 24
DEEPEST: Final = 14
STEPS: Final = 120  # at most, of the target
NEAREST_STEPS: Final = 0.02  # steps are at least so far apart: two per cent of an amount, as the target is a log
FEWEST_IN_LEAF: Final = 15  # rows; of a small table six
_CLIPPED: Final = 6.0  # trees are grown on targets within this: one absurd value must not shape them
_FAREST: Final = 40.0  # no log of an amount relative to another is larger
_TREES: Final = {
    "objective": "reg:squarederror", "num_parallel_tree": TREES, "max_depth": DEEPEST, "subsample": 0.6, "colsample_bynode": 0.4,
    "eta": 1.0, "tree_method": "hist", "max_bin": 128, "reg_lambda": 0.0, "base_score": 0.0,
}  # fmt: skip
_SMALL_TABLE: Final = 5_000  # rows
_AGAIN: Final = "Train the model again."


@dataclass(frozen=True, slots=True, eq=False)
class DistributionForest:
    """Trees one behind the other as arrays, the steps of the target, and what each leaf has counted on them."""

    left: NDArray[np.int32]  # (node,), -1 at a leaf
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]
    roots: NDArray[np.int64]  # (tree,)
    leaf_row: NDArray[np.int32]  # (node,): its row of counts, -1 at an inner node
    steps: Floats  # (step,) ascending
    counts: Matrix  # (leaf, step)

    @classmethod
    def fit(cls, values: Matrix, target: Floats, cut_off: NDArray[np.bool_], *, seed: int = 0) -> Self:
        """Grow the trees on the target and count it in their leaves."""
        wait_politely()
        import xgboost

        table = xgboost.QuantileDMatrix(values, np.clip(target, -_CLIPPED, _CLIPPED), max_bin=128, nthread=threads())
        fewest = FEWEST_IN_LEAF if len(target) >= _SMALL_TABLE else min(6, max(2, len(target) // 40))
        settings = {**_TREES, "min_child_weight": fewest, "seed": seed, "nthread": threads()}
        trees = xgboost.train(settings, table, 1)
        arrays, steps = _arrays(json.loads(trees.save_raw("json"))), _steps(target)
        leaves = int((arrays["left"] < 0).sum())
        forest = cls(**arrays, steps=steps, counts=np.zeros((leaves, len(steps)), np.float32))
        forest.count(values, target, cut_off)
        return forest

    def count(self, values: Matrix, target: Floats, cut_off: NDArray[np.bool_]) -> None:
        """Count further targets in the leaves they belong to; the trees stay as they are."""
        from stormpetrel.learn.distribution_forest_kernel import count_in_leaves

        step = np.minimum(np.searchsorted(self.steps, target - 1e-9), len(self.steps) - 1)
        count_in_leaves(self._leaves(values), self.leaf_row, step, cut_off, self.counts)

    def chance(self, values: Matrix) -> Matrix:
        """The probability of each step of the target for each row."""
        from stormpetrel.learn.distribution_forest_kernel import mean_chance

        out = np.zeros((len(values), len(self.steps)), np.float32)
        mean_chance(self._leaves(values), self.leaf_row, self.counts, out)
        return out

    def _leaves(self, values: Matrix) -> NDArray[np.int32]:
        from stormpetrel.learn.distribution_forest_kernel import find_leaves

        out = np.empty((len(values), len(self.roots)), np.int32)
        values = np.ascontiguousarray(values, np.float32)
        find_leaves(values, self.left, self.right, self.feature, self.threshold, self.missing_left, self.roots, out)
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Its arrays by the names they have in a file."""
        return {f"{prefix}.{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, stored: Mapping[str, NDArray[Any]], prefix: str, *, features: int) -> Self:
        """The forest out of a file's arrays; ModelFormatError where they cannot be one."""
        try:
            forest = cls(**{f.name: _typed(stored[f"{prefix}.{f.name}"], f.name) for f in fields(cls)})
            forest._refuse_absurd(features)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError(f"A forest is damaged: {error}.", hint=_AGAIN) from None
        return forest

    def _refuse_absurd(self, features: int) -> None:
        """Raise ValueError where an index leads out of the arrays: the file comes from somewhere."""
        nodes = len(self.left)
        per_node = (self.right, self.feature, self.threshold, self.missing_left, self.leaf_row)
        good = nodes > 0 and all(len(array) == nodes for array in per_node) and len(self.roots) > 0
        if not good:
            raise ValueError("its arrays have different lengths")
        inner, at = self.left >= 0, np.arange(nodes)
        for child in (self.left, self.right):  # a child lies behind its parent: no walk can be endless
            good &= bool(np.all((child[inner] > at[inner]) & (child[inner] < nodes)))
        good &= bool(np.all((self.feature[inner] >= 0) & (self.feature[inner] < features)))
        good &= bool(np.all((self.roots >= 0) & (self.roots < nodes)))
        good &= bool(np.all((self.leaf_row[~inner] >= 0) & (self.leaf_row[~inner] < len(self.counts))))
        if not good:
            raise ValueError("an index leads out of its arrays")
        good = self.counts.shape[1] == len(self.steps) > 0 and bool(np.all(np.diff(self.steps) > 0))
        if not (good and np.all(np.abs(self.steps) <= _FAREST) and np.all(np.isfinite(self.counts)) and np.all(self.counts >= 0)):
            raise ValueError("its counts make no sense")


_DTYPES: Final[dict[str, Any]] = {
    "left": np.int32, "right": np.int32, "feature": np.int32, "threshold": np.float32, "missing_left": np.bool_,
    "roots": np.int64, "leaf_row": np.int32, "steps": np.float64, "counts": np.float32,
}  # fmt: skip


def _typed(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.ndim != (2 if name == "counts" else 1) or array.dtype != _DTYPES[name]:
        raise TypeError(f"{name} is {array.dtype} of {array.ndim} dimensions")
    return np.ascontiguousarray(array)


def _arrays(saved: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """XGBoost's trees as flat arrays."""
    trees = saved["learner"]["gradient_booster"]["model"]["trees"]
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("left", "right", "feature", "threshold", "missing_left")}
    roots, behind = [], 0
    for tree in trees:
        left, right = (np.array(tree[f"{side}_children"], np.int32) for side in ("left", "right"))
        roots.append(behind)
        parts["left"].append(np.where(left >= 0, left + behind, -1).astype(np.int32))
        parts["right"].append(np.where(right >= 0, right + behind, -1).astype(np.int32))
        parts["feature"].append(np.array(tree["split_indices"], np.int32))
        parts["threshold"].append(np.array(tree["split_conditions"], np.float32))
        parts["missing_left"].append(np.array(tree["default_left"], np.bool_))
        behind += len(left)
    arrays = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    is_leaf = arrays["left"] < 0
    rows = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1).astype(np.int32)
    return {**arrays, "roots": np.array(roots, np.int64), "leaf_row": rows}


def _steps(target: Floats) -> Floats:
    """Steps at quantiles of the target, not too near to each other; the last one is its largest value."""
    places = np.quantile(target, np.linspace(0.0, 1.0, STEPS))
    steps = [float(places[0])]
    for place in places[1:]:
        if place >= steps[-1] + NEAREST_STEPS:
            steps.append(float(place))
    steps[-1] = float(places[-1])
    return np.array(steps)

"""Leaf tables: the forecasts and exact TreeSHAP contributions of boosted trees for a few rows, in numpy alone.

checked XGBoost JSON -> LeafTable -> margins, contributions. A leaf is reached where each feature on its path lies in one
interval, so a table of leaves and intervals says what the trees say. Importing XGBoost takes longer than
all else that one forecast needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LeafTable:
    """Every leaf of a forest: (leaf,) what it adds to which output, and (leaf, step) the features that lead to it.

    A step is one feature of the path, however often it is split there: passed where `low` ≤ value < `high`, or where the value
    is missing and `missing` says so. `share` is the part of the training rows that passed. Paths are filled up with steps
    of feature −1, which all rows pass.
    """

    features: int
    outputs: int
    base: Floats  # (output,) the margin before any tree
    output: NDArray[np.int64]
    value: Floats
    feature: NDArray[np.int64]
    low: Matrix
    high: Matrix
    missing: NDArray[np.bool_]
    share: Floats

    @classmethod
    def of(cls, trees: Sequence[Mapping[str, Any]], *, features: int, base: Sequence[float]) -> Self:
        """The leaves of trees as XGBoost writes them, one output after the other; `base` are the margins before them."""
        paths: list[dict[int, list[Any]]] = []
        values: list[float] = []
        outputs: list[int] = []
        for place, tree in enumerate(trees):
            for path, value in _leaves(tree):
                paths.append(path)
                values.append(value)
                outputs.append(place % len(base))
        deepest = max(1, *map(len, paths))
        shape = (len(paths), deepest)
        table = cls(
            features=features,
            outputs=len(base),
            base=np.array(base, dtype=np.float64),
            output=np.array(outputs),
            value=np.array(values, dtype=np.float32).astype(np.float64),
            feature=np.full(shape, -1),
            low=np.full(shape, -np.inf, np.float32),
            high=np.full(shape, np.inf, np.float32),
            missing=np.ones(shape, bool),
            share=np.ones(shape),
        )
        for leaf, path in enumerate(paths):
            for step, (feature, (low, high, missing, share)) in enumerate(path.items()):
                table.feature[leaf, step] = feature
                table.low[leaf, step], table.high[leaf, step] = low, high
                table.missing[leaf, step], table.share[leaf, step] = missing, share
        return table

    def margins(self, values: Matrix) -> Floats:
        """What the trees say before the link function: (row, output)."""
        out = np.tile(self.base, (len(values), 1))
        for row, passed in enumerate(map(self._passed, values)):
            reached = passed.all(axis=1)
            out[row] += np.bincount(self.output[reached], self.value[reached], self.outputs)
        return out

    def contributions(self, values: Matrix) -> tuple[Floats, float]:
        """What each feature adds to the first output, and what that is before any is known: exact TreeSHAP."""
        expected = float(self.base[0] + (self.value * self.share.prod(axis=1))[self.output == 0].sum())
        out = np.zeros((len(values), self.features + 1))  # the last column takes the empty steps
        for row, passed in enumerate(map(self._passed, values)):
            reached = passed.astype(np.float64)
            steps = reached.shape[1]
            for step in range(steps):
                weight = self._subset_weights(reached, step)
                gain = self.value * (reached[:, step] - self.share[:, step]) * weight
                out[row] += np.bincount(self.feature[:, step] % (self.features + 1), gain, self.features + 1)
        return out[:, :-1], expected

    def _passed(self, row: Matrix) -> NDArray[np.bool_]:
        values = np.append(row, np.float32(0.0))[self.feature]  # (leaf, step)
        inside = (values >= self.low) & (values < self.high)
        return np.where(np.isnan(values), self.missing, inside) | (self.feature < 0)

    def _subset_weights(self, reached: Floats, left_out: int) -> Floats:
        """Shapley's mean over all orders of the other steps: of each leaf, the share that reaches it through those before."""
        # An empty step is passed by all (1 and 1): it changes no mean, so that all paths may count as equally long.
        size = reached.shape[1]
        polynomial = np.zeros((len(reached), size))
        polynomial[:, 0] = 1.0
        for step in (other for other in range(size) if other != left_out):
            higher = polynomial[:, :-1] * reached[:, step, None]
            polynomial *= self.share[:, step, None]
            polynomial[:, 1:] += higher
        means = [factorial(k) * factorial(size - 1 - k) / factorial(size) for k in range(size)]
        return np.asarray(polynomial @ np.array(means))


def _leaves(tree: Mapping[str, Any]) -> list[tuple[dict[int, list[Any]], float]]:
    """Each leaf's path, feature -> [low, high, missing, share], and its value."""
    left, right, feature = tree["left_children"], tree["right_children"], tree["split_indices"]
    condition, default_left, cover = tree["split_conditions"], tree["default_left"], tree["sum_hessian"]
    leaves = []
    stack: list[tuple[int, dict[int, list[Any]]]] = [(0, {})]
    while stack:
        node, path = stack.pop()
        if left[node] == -1:
            leaves.append((path, condition[node]))
            continue
        total = cover[node]
        for child, is_left in ((left[node], True), (right[node], False)):
            low, high, missing, share = path.get(feature[node], (-np.inf, np.inf, True, 1.0))
            if is_left:
                high = min(high, condition[node])
            else:
                low = max(low, condition[node])
            share *= cover[child] / total if total > 0 else 0.0
            stack.append((child, {**path, feature[node]: [low, high, missing and bool(default_left[node]) == is_left, share]}))
    return leaves

"""Leaf tables: the forecasts and exact TreeSHAP contributions of boosted trees for a few rows, in numpy alone.

checked XGBoost JSON -> LeafTable -> margins, contributions. A leaf is reached where each feature on its path lies in one
interval, so a table of leaves and intervals says what the trees say. Importing XGBoost takes longer than
all else that one forecast needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import factorial
from typing import Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """The nodes of trees, one tree behind the other: (node,), children by their place among all, −1 where a node is a leaf."""

    roots: NDArray[np.int64]  # (tree,)
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    feature: NDArray[np.int64]
    condition: Floats  # of a leaf: its value
    missing_left: NDArray[np.bool_]
    cover: Floats  # the part of the training rows that came by


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
    def of(cls, trees: TreeNodes, *, features: int, base: Sequence[float]) -> Self:
        """The leaves of trees, which belong to one output after the other; `base` are the margins before them."""
        paths = _Paths.beginning(len(trees.roots))
        at, tree = trees.roots, np.arange(len(trees.roots))
        leaves: list[tuple[NDArray[np.int64], NDArray[np.int64], _Paths]] = []
        while at.size:  # level by level, all trees at once
            over = trees.left[at] < 0
            leaves.append((tree[over], at[over], paths.of(over)))
            at, tree, paths = at[~over], tree[~over], paths.of(~over)
            sides = [paths.through(trees, at, to_left=to_left) for to_left in (True, False)]
            at, tree = np.concatenate([trees.left[at], trees.right[at]]), np.concatenate([tree, tree])
            paths = _Paths.joined(sides)
        deepest = max(1, max(each.feature.shape[1] for _, _, each in leaves))
        whole = _Paths.joined([each.padded(deepest) for _, _, each in leaves])
        nodes = np.concatenate([nodes for _, nodes, _ in leaves])
        return cls(
            features=features,
            outputs=len(base),
            base=np.array(base, dtype=np.float64),
            output=np.concatenate([places for places, _, _ in leaves]) % len(base),
            value=trees.condition[nodes].astype(np.float32).astype(np.float64),
            feature=whole.feature,
            low=whole.low.astype(np.float32),
            high=whole.high.astype(np.float32),
            missing=whole.missing,
            share=whole.share,
        )

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


@dataclass(frozen=True, slots=True)
class _Paths:
    """The ways from roots to nodes: (node, step), filled up at their ends with steps of feature −1, which all rows pass."""

    feature: NDArray[np.int64]
    low: Floats
    high: Floats
    missing: NDArray[np.bool_]
    share: Floats

    @classmethod
    def beginning(cls, count: int) -> Self:
        """Ways without a step."""
        nothing = np.empty((count, 0))
        return cls(nothing.astype(np.int64), nothing, nothing, nothing.astype(np.bool_), nothing)

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Ways of the same number of steps, one part behind the other."""
        return cls(*(np.concatenate([getattr(each, name.name) for each in several]) for name in fields(cls)))

    def of(self, which: NDArray[np.bool_]) -> Self:
        """Those of some nodes."""
        return type(self)(*(getattr(self, name.name)[which] for name in fields(self)))

    def padded(self, steps: int) -> Self:
        """The same with so many steps."""
        more = ((0, 0), (0, steps - self.feature.shape[1]))
        return type(self)(
            np.pad(self.feature, more, constant_values=-1),
            np.pad(self.low, more, constant_values=-np.inf),
            np.pad(self.high, more, constant_values=np.inf),
            np.pad(self.missing, more, constant_values=True),
            np.pad(self.share, more, constant_values=1.0),
        )

    def through(self, trees: TreeNodes, at: NDArray[np.int64], *, to_left: bool) -> Self:
        """The ways from nodes on to one of their children: a feature that was asked before narrows its step."""
        longer = self.padded(self.feature.shape[1] + 1)
        feature = trees.feature[at]
        known = longer.feature == feature[:, None]
        rows, step = np.arange(at.size), np.where(known.any(axis=1), known.argmax(axis=1), (self.feature >= 0).sum(axis=1))
        longer.feature[rows, step] = feature
        if to_left:
            longer.high[rows, step] = np.minimum(longer.high[rows, step], trees.condition[at])
        else:
            longer.low[rows, step] = np.maximum(longer.low[rows, step], trees.condition[at])
        longer.missing[rows, step] &= trees.missing_left[at] == to_left
        total, part = trees.cover[at], trees.cover[(trees.left if to_left else trees.right)[at]]
        longer.share[rows, step] *= np.divide(part, total, out=np.zeros(at.size), where=total > 0)
        return longer

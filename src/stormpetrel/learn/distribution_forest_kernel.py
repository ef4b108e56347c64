"""The compiled core of the forest: walk a job down every tree, and average what its leaves have seen.

Trees lie one behind the other in flat arrays; a leaf has one row of counts over the steps of the target.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def find_leaves(
    values: NDArray[np.float32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    missing_left: NDArray[np.bool_],
    roots: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Write the leaf of each row in each tree to `out` (row, tree)."""
    for row in range(values.shape[0]):
        for tree in range(roots.size):
            node = roots[tree]
            while left[node] >= 0:
                value = values[row, feature[node]]
                goes_left = missing_left[node] if np.isnan(value) else value < threshold[node]
                node = left[node] if goes_left else right[node]
            out[row, tree] = node


@njit(cache=True)
def count_in_leaves(
    leaves: NDArray[np.int32],
    leaf_row: NDArray[np.int32],
    step: NDArray[np.int64],
    cut_off: NDArray[np.bool_],
    counts: NDArray[np.float32],
) -> None:
    """Count each row's step in its leaf of every tree; one that was cut off needed more, and goes to the steps above it.

    Rows that were not cut off come first: those that were are shared out like them, above their own step (Efron's
    redistribution to the right).
    """
    steps = counts.shape[1]
    for row in range(leaves.shape[0]):
        if not cut_off[row]:
            for tree in range(leaves.shape[1]):
                counts[leaf_row[leaves[row, tree]], step[row]] += 1.0
    shares = counts.copy()
    for row in range(leaves.shape[0]):
        if cut_off[row]:
            for tree in range(leaves.shape[1]):
                leaf = leaf_row[leaves[row, tree]]
                above = 0.0
                for place in range(step[row], steps):
                    above += shares[leaf, place]
                if above < 1.0:
                    counts[leaf, step[row]] += 1.0
                    continue
                for place in range(step[row], steps):
                    counts[leaf, place] += shares[leaf, place] / above


@njit(cache=True)
def mean_chance(
    leaves: NDArray[np.int32], leaf_row: NDArray[np.int32], counts: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Write the mean over the trees of what each row's leaves have seen to `out` (row, step): rows sum to one."""
    trees = leaves.shape[1]
    for row in range(leaves.shape[0]):
        for tree in range(trees):
            leaf = leaf_row[leaves[row, tree]]
            total = 0.0
            for place in range(counts.shape[1]):
                total += counts[leaf, place]
            if total <= 0.0:
                continue
            for place in range(counts.shape[1]):
                out[row, place] += counts[leaf, place] / (total * trees)

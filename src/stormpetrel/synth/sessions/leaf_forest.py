"""Forests that draw: a few random trees; a leaf keeps the values of the rows that fell into it, and gives one of them at random.

features, targets -> grow -> LeafForest. A draw goes down one tree, chosen at random, and takes one value of its leaf: always a
value that was seen, of a row in like circumstances. A tree is grown on at most `MOST_ROWS` rows: fitting has a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelFormatError

Array = npt.NDArray[Any]
MOST_ROWS: Final = 120_000  # per tree
_FEATURES_TRIED: Final = 0.6


@dataclass(frozen=True, slots=True, eq=False)
class LeafForest:
    """Trees one behind the other, as arrays; `rows` says which training rows lie in the leaves (of one tree each once)."""

    left: Array  # (nodes,) int32, -1 at a leaf
    right: Array
    feature: Array
    threshold: Array  # (nodes,) float32
    roots: Array  # (trees,)
    first: Array  # (nodes,) where the values of a leaf begin
    count: Array  # (nodes,) how many it has

    def arrays(self) -> tuple[Array, ...]:
        """What the compiled draw needs, in its order."""
        return (self.left, self.right, self.feature, self.threshold, self.roots, self.first, self.count)

    def check(self, features: int, values: int) -> None:
        """ModelFormatError where an index leads out of the arrays: the file comes from somewhere."""
        nodes = len(self.left)
        sizes_fit = all(len(getattr(self, f.name)) == nodes for f in fields(self) if f.name != "roots") and len(self.roots) > 0
        if not sizes_fit or not nodes:
            raise ModelFormatError("A forest of the generator has arrays of different lengths.", hint=_AGAIN)
        inner = self.left >= 0
        at = np.arange(nodes)
        # A child lies behind its parent: no walk can be endless.
        good = np.all((self.left[inner] > at[inner]) & (self.left[inner] < nodes))
        good &= np.all((self.right[inner] > at[inner]) & (self.right[inner] < nodes))
        good &= np.all((self.feature[inner] >= 0) & (self.feature[inner] < features))
        good &= np.all((self.roots >= 0) & (self.roots < nodes)) and np.all(self.count[~inner] > 0)
        good &= np.all((self.first[~inner] >= 0) & (self.first[~inner] <= values - self.count[~inner]))  # no sum: it may overflow
        if not good:
            raise ModelFormatError("A forest of the generator leads out of its own arrays.", hint=_AGAIN)

    @classmethod
    def from_arrays(cls, stored: Mapping[str, Array], prefix: str) -> LeafForest:
        """The forest out of a file's arrays."""
        try:
            return cls(*(_typed(stored[f"{prefix}.{f.name}"], _DTYPES[f.name]) for f in fields(cls)))
        except (KeyError, ValueError, TypeError) as error:
            raise ModelFormatError(f"The generator's file lacks a forest: {error}.", hint=_AGAIN) from None

    def to_arrays(self, prefix: str) -> dict[str, Array]:
        """Its arrays by the names they have in a file."""
        return {f"{prefix}.{f.name}": getattr(self, f.name) for f in fields(self)}


_AGAIN: Final = "Fit it again: stormpetrel synth fit"
_DTYPES: Final[dict[str, Any]] = {
    "left": np.int32, "right": np.int32, "feature": np.int32, "threshold": np.float32,
    "roots": np.int64, "first": np.int64, "count": np.int32,
}  # fmt: skip


def _typed(array: Array, dtype: Any) -> Array:
    if array.ndim != 1 or array.dtype != dtype:
        raise TypeError(f"an array of {array.dtype} where {np.dtype(dtype)} was expected")
    return np.ascontiguousarray(array)


def grow(x: Array, y: Array, *, trees: int, leaf: int, seed: int) -> tuple[LeafForest, Array]:
    """A forest, and the training rows in the order of its leaves (trees one behind the other).

    x: (rows, features), y: (rows, targets), standardised. Splits are drawn at random (extremely randomised trees) and chosen by
    how well they explain all targets together.
    """
    from sklearn.tree import ExtraTreeRegressor

    rng = np.random.default_rng(seed)
    x = np.ascontiguousarray(x, dtype=np.float32)
    parts: list[dict[str, Array]] = []
    nodes = values = 0
    for _ in range(trees):
        rows = np.arange(len(x)) if len(x) <= MOST_ROWS else np.sort(rng.choice(len(x), MOST_ROWS, replace=False))
        least = max(1, min(leaf, len(rows) // 2))
        grown = ExtraTreeRegressor(min_samples_leaf=least, max_features=_FEATURES_TRIED, random_state=int(rng.integers(2**31)))
        tree = grown.fit(x[rows], y[rows]).tree_
        parts.append(_part(tree, x, rows, nodes, values))
        nodes += tree.node_count
        values += len(rows)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows_in_leaves = joined.pop("rows")
    return LeafForest(**{name: joined[name].astype(_DTYPES[name]) for name in joined}), rows_in_leaves


def _part(tree: Any, x: Array, rows: Array, nodes: int, values: int) -> dict[str, Array]:
    """One tree's arrays, its numbers moved behind those of the trees before it."""
    leaf_of = tree.apply(x[rows])
    count = np.bincount(leaf_of, minlength=tree.node_count)
    inner = tree.children_left >= 0
    return {
        "left": np.where(inner, tree.children_left + nodes, -1),
        "right": np.where(inner, tree.children_right + nodes, -1),
        "feature": tree.feature,
        "threshold": tree.threshold,
        "roots": np.array([nodes]),
        "first": np.concatenate([[0], np.cumsum(count)[:-1]]) + values,
        "count": count,
        "rows": rows[np.argsort(leaf_of, kind="stable")],
    }

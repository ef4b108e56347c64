"""Files of trees: what XGBoost may be shown.

text of an XGBoost JSON file -> checked_trees -> the same model, written anew from what was checked. XGBoost believes its files:
a child or a feature that is not there makes it read memory that is not its own. So the file is read here, every number of it
examined, and only what is known is passed on; whatever else the file says never reaches XGBoost.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.learn.leaf_tables import LeafTable, TreeNodes

RISK: Final = "binary:logistic"
KINDS: Final = "multi:softprob"
_NO_PARENT: Final = 2147483647
_MOST_TREES: Final = 100_000
_DEEPEST: Final = 64  # ours grow to 6
_LARGEST: Final = 3.4e38  # of a 32-bit float
_WHOLE: Final = ("left_children", "right_children", "parents", "split_indices", "split_type", "default_left")
_FLOATS: Final = ("split_conditions", "base_weights", "loss_changes", "sum_hessian")
_CATEGORIES: Final = ("categories", "categories_nodes", "categories_segments", "categories_sizes")


def checked_trees(text: str, *, features: int, outputs: int) -> str:
    """The file, checked and written anew; ValueError or KeyError says what is wrong with it.

    `outputs` is 1 for trees that tell a risk, and the number of outcomes for trees that tell outcomes apart.
    """
    return json.dumps(_checked(text, features, outputs), allow_nan=False)


def leaf_table(text: str, *, features: int, outputs: int) -> LeafTable:
    """The trees of a file, checked, as a table of their leaves: says what XGBoost says, for a few rows and without it."""
    saved = json.loads(text)
    learner = saved["learner"]
    _version(saved["version"])
    _refuse_other_learner(learner, outputs)
    numbers = _numbers(learner["learner_model_param"], features, outputs)
    trees = _checked_forest(learner["gradient_booster"]["model"], features, outputs)
    first = [float(part) for part in numbers["base_score"].strip("[]").split(",")]
    base = first * (outputs // len(first)) if outputs > 1 else [math.log(first[0] / (1.0 - first[0]))]
    return LeafTable.of(trees.nodes(), features=features, base=base)


def _checked(text: str, features: int, outputs: int) -> dict[str, Any]:
    saved = json.loads(text)
    learner = saved["learner"]
    _refuse_other_learner(learner, outputs)
    objective = KINDS if outputs > 1 else RISK
    return {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {"model": _forest(learner["gradient_booster"]["model"], features, outputs), "name": "gbtree"},
            "learner_model_param": _numbers(learner["learner_model_param"], features, outputs),
            "objective": _objective(objective, outputs),
        },
        "version": _version(saved["version"]),
    }


def _refuse_other_learner(learner: dict[str, Any], outputs: int) -> None:
    objective = KINDS if outputs > 1 else RISK
    _refuse_unless(learner["objective"]["name"] == objective, f"its trees are not made for {objective}")
    _refuse_unless(learner["gradient_booster"]["name"] == "gbtree", "it holds something else than trees")


def _refuse_unless(sound: bool, problem: str) -> None:
    if not sound:
        raise ValueError(problem)


def _whole(text: Any) -> int:
    """A whole number as XGBoost writes those of its parameters: as text."""
    _refuse_unless(isinstance(text, str) and len(text) < 12, "a parameter of its trees is no number")
    return int(text)


def _version(numbers: Any) -> list[int]:
    sound = isinstance(numbers, list) and len(numbers) == 3 and all(type(part) is int and 0 <= part < 10_000 for part in numbers)
    _refuse_unless(sound, "it does not tell the version of XGBoost that wrote it")
    return list(numbers)


def _objective(name: str, outputs: int) -> dict[str, Any]:
    if name == KINDS:
        return {"name": name, "softmax_multiclass_param": {"num_class": str(outputs)}}
    return {"name": name, "reg_loss_param": {"scale_pos_weight": "1"}}


def _numbers(parameters: dict[str, Any], features: int, outputs: int) -> dict[str, str]:
    """The learner's numbers: how many features and outcomes there are, and from where a prediction starts."""
    columns, kinds = _whole(parameters["num_feature"]), _whole(parameters["num_class"])
    _refuse_unless(columns == features, f"its trees know {columns} features, its record {features}")
    _refuse_unless(
        kinds == (outputs if outputs > 1 else 0), f"its trees tell {max(1, kinds)} outcomes apart, its record names {outputs}"
    )
    _refuse_unless(_whole(parameters.get("num_target", "1")) == 1, "its trees have several targets")
    return {
        "base_score": _base_score(parameters["base_score"], outputs),
        "boost_from_average": "1",
        "num_class": str(kinds),
        "num_feature": str(features),
        "num_target": "1",
    }


def _base_score(text: Any, outputs: int) -> str:
    """`5E-1`, or `[a,b]` with one number per outcome as XGBoost writes it since 3.1; kept in the form that it has."""
    _refuse_unless(isinstance(text, str) and len(text) < 64 * (outputs + 1), "its first guess is no number")
    scores = [float(part) for part in text.strip("[]").split(",")]
    _refuse_unless(len(scores) in (1, outputs) and all(map(_is_sound, scores)), "its first guess is no number")
    _refuse_unless(outputs > 1 or 0.0 < scores[0] < 1.0, "its first guess is no probability")
    return "[" + ",".join(map(repr, scores)) + "]" if text.startswith("[") else repr(scores[0])


def _is_sound(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _LARGEST


@dataclass(frozen=True, slots=True)
class _Forest:
    """The checked nodes of all trees, one tree behind the other: what XGBoost writes of each node, by name."""

    counts: NDArray[np.int64]  # (tree,) nodes
    leaf_vectors: tuple[str, ...]  # (tree,) as the file says it
    arrays: dict[str, NDArray[Any]]  # (node,) children and parents count from the first node of their tree

    @property
    def roots(self) -> NDArray[np.int64]:
        """The first node of each tree."""
        return np.cumsum(self.counts) - self.counts

    def nodes(self) -> TreeNodes:
        """The nodes as a table of leaves reads them."""
        first = np.repeat(self.roots, self.counts)
        left, right = self.arrays["left_children"], self.arrays["right_children"]
        return TreeNodes(
            roots=self.roots,
            left=np.where(left < 0, -1, left + first),
            right=np.where(right < 0, -1, right + first),
            feature=self.arrays["split_indices"],
            condition=self.arrays["split_conditions"],
            missing_left=self.arrays["default_left"].astype(np.bool_),
            cover=self.arrays["sum_hessian"],
        )

    def tree(self, place: int, features: int) -> dict[str, Any]:
        """One tree as XGBoost reads it."""
        begin, count = int(self.roots[place]), int(self.counts[place])
        return {
            **{name: values[begin : begin + count].tolist() for name, values in self.arrays.items()},
            **{name: [] for name in _CATEGORIES},
            "id": place,
            "tree_param": {
                "num_deleted": "0",
                "num_feature": str(features),
                "num_nodes": str(count),
                "size_leaf_vector": self.leaf_vectors[place],
            },
        }


def _forest(booster: dict[str, Any], features: int, outputs: int) -> dict[str, Any]:
    checked = _checked_forest(booster, features, outputs)
    size = len(checked.counts)
    forest: dict[str, Any] = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(size)},
        "tree_info": [place % outputs for place in range(size)],
        "trees": [checked.tree(place, features) for place in range(size)],
    }
    if "iteration_indptr" in booster:  # since 2.0
        forest["iteration_indptr"] = [place * outputs for place in range(size // outputs + 1)]
    if "cats" in booster:  # since 3.1; none of our features is a category
        forest["cats"] = {"enc": [], "feature_segments": [], "sorted_idx": []}
    return forest


def _checked_forest(booster: dict[str, Any], features: int, outputs: int) -> _Forest:
    trees = booster["trees"]
    _refuse_unless(isinstance(trees, list) and 0 < len(trees) <= _MOST_TREES, "it holds no trees, or too many")
    parameters = booster["gbtree_model_param"]
    _refuse_unless(_whole(parameters["num_trees"]) == len(trees), "it does not hold as many trees as it says")
    _refuse_unless(_whole(parameters.get("num_parallel_tree", "1")) == 1, "its trees are a forest of another kind")
    belongs = _array(booster["tree_info"], len(trees), whole=True)
    _refuse_unless(bool((belongs == np.arange(len(trees)) % outputs).all()), "its trees belong to outcomes that are not there")
    _refuse_unless(len(trees) % outputs == 0, "its last round is not whole")
    if "iteration_indptr" in booster:
        rounds = _array(booster["iteration_indptr"], len(trees) // outputs + 1, whole=True)
        _refuse_unless(bool((rounds == np.arange(rounds.size) * outputs).all()), "its rounds are not one after the other")
    counts = np.array([_checked_count(tree, features) for tree in trees], np.int64)
    # All trees at once: looking at each on its own takes five times as long, and a cold `why` reads three models.
    arrays = {name: _joined(trees, name, counts, whole=name in _WHOLE) for name in (*_WHOLE, *_FLOATS)}
    _refuse_unless(_in_range(arrays["split_indices"], 0, features), "a tree asks for a feature that is not there")
    _refuse_unless(not arrays["split_type"].any(), "a tree splits by categories")
    _refuse_unless(_in_range(arrays["default_left"], 0, 2), "a tree does not say where missing values go")
    _refuse_unless(bool((arrays["sum_hessian"] >= 0).all()), "a tree has weights below zero")
    _refuse_odd_shape(arrays["left_children"], arrays["right_children"], arrays["parents"], counts)
    return _Forest(counts, tuple(str(tree["tree_param"].get("size_leaf_vector", "1")) for tree in trees), arrays)


def _checked_count(tree: dict[str, Any], features: int) -> int:
    """How many nodes a tree has, where its parameters are those of ours."""
    parameters = tree["tree_param"]
    nodes = _whole(parameters["num_nodes"])
    _refuse_unless(0 < nodes <= 2 ** (_DEEPEST // 2), "a tree has no nodes, or too many")
    _refuse_unless(_whole(parameters["num_feature"]) == features, "a tree knows other features than the rest")
    _refuse_unless(_whole(parameters.get("size_leaf_vector", "1")) in (0, 1), "a tree has several answers per leaf")
    _refuse_unless(_whole(parameters.get("num_deleted", "0")) == 0, "a tree has nodes that were deleted")
    _refuse_unless(not any(tree.get(name) for name in _CATEGORIES), "a tree splits by categories")
    return nodes


def _joined(trees: list[dict[str, Any]], name: str, counts: NDArray[np.int64], *, whole: bool) -> NDArray[Any]:
    """What all trees say under a name, one tree behind the other."""
    lists = [tree[name] for tree in trees]
    sound = all(isinstance(items, list) for items in lists) and list(map(len, lists)) == counts.tolist()
    _refuse_unless(sound, "a list of numbers in its trees has another length")
    return _array(list(chain.from_iterable(lists)), int(counts.sum()), whole=whole)


def _array(items: Any, size: int, *, whole: bool) -> NDArray[Any]:
    """A list of so many numbers, all of them 32-bit ones."""
    _refuse_unless(isinstance(items, list) and len(items) == size, "a list of numbers in its trees has another length")
    _refuse_unless(set(map(type, items)) <= ({int} if whole else {int, float}), "its trees hold something that is no number")
    values = np.array(items, dtype=np.int64 if whole else np.float64)
    low, high = (-1, _NO_PARENT) if whole else (-_LARGEST, _LARGEST)
    _refuse_unless(bool(((values >= low) & (values <= high)).all()), "its trees hold a number that none of ours has")  # NaN, too
    return values


def _in_range(values: NDArray[Any], low: int, high: int) -> bool:
    return bool(((values >= low) & (values < high)).all())


def _refuse_odd_shape(left: NDArray[Any], right: NDArray[Any], parents: NDArray[Any], counts: NDArray[np.int64]) -> None:
    """One root per tree, every other node the child of just one, and none so deep that it could be its own ancestor."""
    roots = np.cumsum(counts) - counts
    first, size = np.repeat(roots, counts), np.repeat(counts, counts)  # of each node: where its tree begins, and how large it is
    leaves = left == -1
    _refuse_unless(bool((leaves == (right == -1)).all()), "a tree has a node with one child")
    inner = np.flatnonzero(~leaves)
    for child in (left, right):
        _refuse_unless(bool(((child[inner] >= 1) & (child[inner] < size[inner])).all()), "a tree has a child that is not there")
    children = np.concatenate([left[inner] + first[inner], right[inner] + first[inner]])
    alone = np.unique(children).size == children.size == left.size - counts.size
    _refuse_unless(alone, "a tree has nodes that do not hang together")
    _refuse_unless(bool((parents[roots] == _NO_PARENT).all()), "a tree has no root")
    own = np.concatenate([inner, inner]) - first[children]
    _refuse_unless(bool((parents[children] == own).all()), "a tree has a node with another parent")
    seen, level = counts.size, roots
    for _ in range(_DEEPEST):
        level = level[~leaves[level]]
        level = np.concatenate([left[level] + first[level], right[level] + first[level]])
        seen += level.size
        if not level.size:
            break
    _refuse_unless(seen == left.size and not level.size, "a tree goes round in a circle, or is too deep")

"""Trees of one model in another: over other features, and with further trees after them, whose answers are scaled down.

text of an XGBoost JSON file -> trees_over -> the same trees over other features; two texts -> joined_trees -> one model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def trees_over(text: str, names: Sequence[str], wanted: Sequence[str]) -> str:
    """The trees of a model of the features `names`, as a model of the features `wanted`, which hold all of these."""
    if tuple(names) == tuple(wanted):
        return text
    saved: dict[str, Any] = json.loads(text)
    place = [wanted.index(name) for name in names]
    learner = saved["learner"]
    learner["learner_model_param"]["num_feature"] = str(len(wanted))
    for tree in _trees(saved):
        tree["tree_param"]["num_feature"] = str(len(wanted))
        tree["split_indices"] = [place[feature] for feature in tree["split_indices"]]
    return json.dumps(saved)


def joined_trees(begin: str, more: str, *, weight: float) -> str:
    """A model that begins as `begin` does and adds `weight` times what the trees of `more` say."""
    saved: dict[str, Any] = json.loads(begin)
    added = _trees(json.loads(more))
    for tree in added:
        leaves = [child == -1 for child in tree["left_children"]]
        tree["base_weights"] = [weight * value for value in tree["base_weights"]]
        tree["split_conditions"] = [
            weight * value if leaf else value for value, leaf in zip(tree["split_conditions"], leaves, strict=True)
        ]
    trees = _trees(saved)
    trees += added
    for place, tree in enumerate(trees):
        tree["id"] = place
    model = saved["learner"]["gradient_booster"]["model"]
    model["tree_info"] = [0] * len(trees)
    model["gbtree_model_param"]["num_trees"] = str(len(trees))
    if "iteration_indptr" in model:  # since XGBoost 2.0
        model["iteration_indptr"] = list(range(len(trees) + 1))
    return json.dumps(saved)


def _trees(saved: dict[str, Any]) -> list[dict[str, Any]]:
    trees: list[dict[str, Any]] = saved["learner"]["gradient_booster"]["model"]["trees"]
    return trees

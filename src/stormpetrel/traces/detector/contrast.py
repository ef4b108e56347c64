"""Contrast: trees that tell calm node windows of this site from the same windows with a change in them.

features of calm and of disturbed node windows -> Contrast.fit -> margin (groups,): higher is more like a disturbed one. A
distance counts every feature by how little it moves on calm nodes; which movements of many features belong together when
something changes, it cannot know. Trees learn it from changes made by lot (disturbance.py), without any fault that has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.disturbance import disturbed
from stormpetrel.traces.detector.layout import Layout
from stormpetrel.traces.detector.node_level import NodeLevel
from stormpetrel.traces.detector.observation import Observation, node_features
from stormpetrel.traces.detector.statistics import rows_by_size
from stormpetrel.traces.detector.thread_level import ThreadLevel

Groups = npt.NDArray[np.intp]
Change = Callable[[Observation, npt.NDArray[np.float32], Groups], Observation]  # some rows of windows with other rates

FEWEST: Final = 12  # calm node windows to learn from; each is disturbed many times
_MOST_CALM: Final = 1_500  # node windows that are disturbed; more take longer and teach little
_MOST_ROUNDS: Final = 12  # times that each is disturbed
_WANTED: Final = 3_000  # disturbed node windows
_TREES: Final = 400
_HOW: Final[dict[str, Any]] = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 4,
    "learning_rate": 0.08,
    "subsample": 0.7,
    "colsample_bynode": 0.04,  # there are about as many features as calm windows
    "nthread": 1,  # the same trees on any machine
    "verbosity": 0,
}
_NAME: Final = "contrast.trees"


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Trees, as the bytes of XGBoost's own JSON; none where there was too little to learn from."""

    trees: Any = None  # xgboost.Booster

    @classmethod
    def fit(cls, calm: Floats, changed: Floats, seed: int) -> Self:
        """Learn from features (groups, columns); both sides weigh the same."""
        if len(calm) < FEWEST or not len(changed):
            return cls()
        import xgboost

        weight = np.repeat([1.0, len(calm) / len(changed)], [len(calm), len(changed)])
        label = np.repeat([0.0, 1.0], [len(calm), len(changed)])
        table = xgboost.DMatrix(np.concatenate([calm, changed]).astype(np.float32), label, weight=weight, nthread=1)
        return cls(xgboost.train({**_HOW, "seed": seed}, table, _TREES))

    def margin(self, features: Floats) -> Floats:
        """The logarithm of the odds that something was changed, (groups,); 0 where nothing was learnt."""
        if self.trees is None or not len(features):
            return np.zeros(len(features))
        import xgboost

        table = xgboost.DMatrix(features.astype(np.float32), nthread=1)
        return np.asarray(self.trees.predict(table, output_margin=True), dtype=np.float64)

    def arrays(self) -> dict[str, npt.NDArray[np.uint8]]:
        """As they are saved."""
        return {} if self.trees is None else {_NAME: np.frombuffer(bytes(self.trees.save_raw("json")), dtype=np.uint8)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """As they were saved; ValueError where they are damaged."""
        if _NAME not in arrays:
            return cls()
        import xgboost

        trees = xgboost.Booster({"nthread": 1})
        try:
            trees.load_model(bytearray(arrays[_NAME].tobytes()))
        except xgboost.core.XGBoostError:
            raise ValueError("its trees cannot be read") from None
        return cls(trees)


@dataclass(frozen=True, slots=True, eq=False)
class Disturbed:
    """Some node groups with a change in each, the rows of their windows, and their numbers."""

    part: Observation
    rows: Groups
    some: Groups


def learnt_contrast(
    thread: ThreadLevel,
    node: NodeLevel,
    seen: Observation,
    past: Floats,
    changed: list[Disturbed],
    learn: npt.NDArray[np.bool_],
    seed: int,
) -> tuple[Contrast, Floats]:
    """Trees that learn from the node groups that `learn` names, beside these with a change in them; and their margins of all."""
    features = node_features(thread, seen, past)
    expected = node.expected(features, seen.layout)
    left = node.left(features, expected)
    spread = node.spread(left, seen.layout)
    calm = contrast_features(node, left, spread, seen.layout)
    if not changed:
        return Contrast(), np.zeros(len(calm))
    rows = []
    for windows in changed:
        of_changed = node.left(node_features(thread, windows.part, past[windows.rows]), expected[windows.some])
        rows.append(contrast_features(node, of_changed, spread[windows.some], windows.part.layout)[learn[windows.some]])
    some = changed[0].some
    contrast = Contrast.fit(calm[some[learn[some]]], np.concatenate(rows), seed)
    return contrast, contrast.margin(calm)


def contrast_features(node: NodeLevel, left: Floats, spread: Floats, layout: Layout) -> Floats:
    """What is left of node features, in units of the node's own spread and of that of the hour: (groups, 2 × columns)."""
    usual = left if node.habit is None else left / node.habit.ratio(layout.node_start_s)
    return np.concatenate([left / spread, usual], axis=1)


def disturbances(seen: Observation, change: Change, seed: int) -> list[Disturbed]:
    """Calm node windows with changes in them, each of them several times."""
    rng = np.random.default_rng([seed, 31])
    threads = np.bincount(seen.layout.node[seen.layout.node >= 0], minlength=seen.layout.nodes)
    some = np.flatnonzero(threads)
    if some.size > _MOST_CALM:
        some = np.sort(rng.choice(some, _MOST_CALM, replace=False))
    part, rows = seen.of_nodes(some)
    of_node = [at for many, _ in rows_by_size(part.layout.node) for at in many]
    rounds = []
    for _ in range(_rounds_of(some.size)):
        rates = part.windows.rates.copy()
        for at in of_node:
            rates[at] = disturbed(rates[at].transpose(1, 0, 2), rng).transpose(1, 0, 2)
        rounds.append(Disturbed(change(part, rates, rows), rows, some))
    return rounds


def _rounds_of(nodes: int) -> int:
    """How often each of so many calm node windows is disturbed."""
    return int(np.clip(round(_WANTED / max(1, nodes)), 1, _MOST_ROUNDS))

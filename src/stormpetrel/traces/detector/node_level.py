"""Nodes: how the threads of a node differ from what they did before, from each other, and from the job's other nodes.

features of node groups (groups, columns), Layout -> NodeLevel.fit -> surprise (groups,). What is usual is learnt from calm nodes;
where the nodes of one job do not move together there, or no job has several nodes, the other nodes count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.day import DayHabit
from stormpetrel.traces.detector.distance import Distance
from stormpetrel.traces.detector.layout import FORGETS, Layout, Past
from stormpetrel.traces.detector.normal_scores import NormalScores
from stormpetrel.traces.detector.statistics import others_median

Mask = npt.NDArray[np.bool_]

_RIDGE: Final = 10.0
_SPREAD_WEIGHT: Final = 4.0  # windows that the usual spread counts for beside a node's own
_LEAST_SPREAD: Final = 0.3  # of the usual one
_OWN_WEIGHT: Final = 3.0
_FEWEST_WITH_PEERS: Final = 40  # calm node windows beside others of their job
_LEAST_EXPLAINED: Final = 0.05  # of a feature's variance on calm nodes, by the job's other nodes, for them to count
_LEAST_FEATURE: Final = 0.1  # spread of a feature that stood still; features are made of normal scores


@dataclass(frozen=True, slots=True, eq=False)
class NodeLevel:
    """What is usual for nodes."""

    scores: NormalScores
    own: Floats  # (columns,) how much of its own past a node repeats
    peer: Floats  # (columns,) how much a node does of what its job's other nodes do
    variance: Floats  # (columns,) of what is left
    distance: Distance
    usual: Floats  # (2,) mean surprise with and without a past
    habit: DayHabit | None = None  # of the hours; None where they are not known

    @classmethod
    def fit(cls, features: Floats, layout: Layout, learn: Mask, *, by_hour: bool = False, with_peers: bool = True) -> Self:
        """Learn from the groups that `learn` names."""
        past = layout.node_past
        scores = NormalScores.fit(features[learn], _LEAST_FEATURE)
        normal = scores.transform(features)
        before = past.mean(normal, forgets=FORGETS)
        both = learn & past.known
        own = np.clip((normal[both] * before[both]).sum(0) / ((before[both] ** 2).sum(0) + _RIDGE), 0, 1)
        left = normal - own * before
        peer = np.zeros(left.shape[1])
        if with_peers and (layout.peers >= 0).any():
            near = others_median(left, layout.peers)
            peer = _peer_weights(left, near, learn & (layout.peers >= 0))
            left = left - peer * near
        variance = (left[both] if both.sum() > 1 else left[learn]).var(axis=0) + 1e-2
        empty = cls(scores, own, peer, variance, Distance.fit(np.zeros((0, normal.shape[1]))), np.zeros(2))
        scaled = left / empty.spread(left, layout)
        habit = DayHabit.fit(scaled, layout.node_start_s, learn) if by_hour else None
        scaled = scaled if habit is None else scaled / habit.ratio(layout.node_start_s)
        distance = Distance.fit(scaled[both] if both.sum() > 30 else scaled[learn])
        surprise = distance.log_distance(scaled)
        fallback = float(surprise[learn].mean())
        parts = (surprise[learn & past.known], surprise[learn & ~past.known])
        usual = np.array([part.mean() if part.size else fallback for part in parts])
        return cls(scores, own, peer, variance, distance, usual, habit)

    def expected(self, features: Floats, layout: Layout) -> Floats:
        """What each node's past and its job's other nodes let expect, as normal scores, (groups, columns)."""
        normal = self.scores.transform(features)
        of_past = np.asarray(self.own * layout.node_past.mean(normal, forgets=FORGETS))
        if not self.peer.any() or not (layout.peers >= 0).any():
            return of_past
        return np.asarray(of_past + self.peer * others_median(normal - of_past, layout.peers))

    def left(self, features: Floats, expected: Floats) -> Floats:
        """What is left of the features after that, (groups, columns)."""
        return np.asarray(self.scores.transform(features) - expected)

    def spread(self, left: Floats, layout: Layout) -> Floats:
        """How much each column usually moves on this node at this hour, as a multiple of what is usual, (groups, columns)."""
        squares = np.minimum(left**2, 9 * self.variance)
        own = layout.node_past.mean(squares, prior=self.variance, weight=_SPREAD_WEIGHT) / self.variance
        spread = np.asarray(np.maximum(np.sqrt(own), _LEAST_SPREAD))
        return spread if self.habit is None else spread * self.habit.ratio(layout.node_start_s)

    def surprise(self, scaled: Floats, past: Past) -> Floats:
        """How unusual each group is, before the node's own habit of surprising is taken off; about 0 is usual."""
        return np.asarray(self.distance.log_distance(scaled) - np.where(past.known, self.usual[0], self.usual[1]))

    def own_surprise(self, surprise: Floats, past: Past) -> Floats:
        """How unusual each node's windows were before."""
        return self.own_surprise_of(surprise, past)

    @staticmethod
    def own_surprise_of(surprise: Floats, past: Past) -> Floats:
        """The same, whatever was learnt."""
        return past.mean(surprise, prior=0.0, weight=_OWN_WEIGHT)

    def arrays(self) -> dict[str, Floats]:
        """As they are saved."""
        return {
            **self.scores.arrays("node.scores"),
            **self.distance.arrays("node.distance"),
            "node.own": self.own,
            "node.peer": self.peer,
            "node.variance": self.variance,
            "node.usual": self.usual,
            **({} if self.habit is None else {"node.habit": self.habit.ratios}),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        return cls(
            NormalScores.of_arrays("node.scores", arrays),
            arrays["node.own"],
            arrays["node.peer"],
            arrays["node.variance"],
            Distance.of_arrays("node.distance", arrays),
            arrays["node.usual"],
            DayHabit(arrays["node.habit"]) if "node.habit" in arrays else None,
        )


def _peer_weights(left: Floats, near: Floats, rows: Mask) -> Floats:
    """How much of what the other nodes do each column takes, (columns,); 0 where that explains too little on calm nodes."""
    if rows.sum() < _FEWEST_WITH_PEERS:
        return np.zeros(left.shape[1])
    own, other = left[rows], near[rows]
    weights = np.clip((own * other).sum(0) / ((other**2).sum(0) + _RIDGE), 0, 1)
    explained = 1 - ((own - weights * other) ** 2).mean(axis=0) / np.maximum((own**2).mean(axis=0), 1e-9)
    return np.asarray(np.where(explained >= _LEAST_EXPLAINED, weights, 0.0))

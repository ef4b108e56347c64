"""Nodes: how the threads of a node differ from what they did before, and from each other, more than on calm nodes.

features of node groups (groups, columns) and their past -> NodeLevel.fit -> surprise (groups,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.distance import Distance
from stormpetrel.traces.detector.layout import FORGETS, Past
from stormpetrel.traces.detector.normal_scores import NormalScores

Mask = npt.NDArray[np.bool_]

_RIDGE: Final = 10.0
_SPREAD_WEIGHT: Final = 4.0  # windows that the usual spread counts for beside a node's own
_LEAST_SPREAD: Final = 0.3  # of the usual one
_OWN_WEIGHT: Final = 3.0
_LEAST_FEATURE: Final = 0.1  # spread of a feature that stood still; features are made of normal scores


@dataclass(frozen=True, slots=True, eq=False)
class NodeLevel:
    """What is usual for nodes."""

    scores: NormalScores
    own: Floats  # (columns,) how much of its own past a node repeats
    variance: Floats  # (columns,) of what is left
    distance: Distance
    usual: Floats  # (2,) mean surprise with and without a past

    @classmethod
    def fit(cls, features: Floats, past: Past, learn: Mask) -> Self:
        """Learn from the groups that `learn` names."""
        scores = NormalScores.fit(features[learn], _LEAST_FEATURE)
        normal = scores.transform(features)
        before = past.mean(normal, forgets=FORGETS)
        both = learn & past.known
        own = np.clip((normal[both] * before[both]).sum(0) / ((before[both] ** 2).sum(0) + _RIDGE), 0, 1)
        left = normal - own * before
        variance = (left[both] if both.sum() > 1 else left[learn]).var(axis=0) + 1e-2
        empty = cls(scores, own, variance, Distance.fit(np.zeros((0, normal.shape[1]))), np.zeros(2))
        scaled = left / empty.spread(left, past)
        distance = Distance.fit(scaled[both] if both.sum() > 30 else scaled[learn])
        surprise = distance.log_distance(scaled)
        fallback = float(surprise[learn].mean())
        parts = (surprise[learn & past.known], surprise[learn & ~past.known])
        return cls(scores, own, variance, distance, np.array([part.mean() if part.size else fallback for part in parts]))

    def expected(self, features: Floats, past: Past) -> Floats:
        """What each node's past lets expect, as normal scores, (groups, columns)."""
        return np.asarray(self.own * past.mean(self.scores.transform(features), forgets=FORGETS))

    def left(self, features: Floats, expected: Floats) -> Floats:
        """What is left of the features after that, (groups, columns)."""
        return np.asarray(self.scores.transform(features) - expected)

    def spread(self, left: Floats, past: Past) -> Floats:
        """How much each column usually moves on this node, as a multiple of what is usual anywhere, (groups, columns)."""
        squares = np.minimum(left**2, 9 * self.variance)
        own = past.mean(squares, prior=self.variance, weight=_SPREAD_WEIGHT) / self.variance
        return np.asarray(np.maximum(np.sqrt(own), _LEAST_SPREAD))

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
            "node.variance": self.variance,
            "node.usual": self.usual,
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved."""
        return cls(
            NormalScores.of_arrays("node.scores", arrays),
            arrays["node.own"],
            arrays["node.variance"],
            Distance.of_arrays("node.distance", arrays),
            arrays["node.usual"],
        )

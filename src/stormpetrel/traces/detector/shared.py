"""Shared surprise: how much of a node's surprise the other nodes show at the same moment, so that it is not the node's own.

surprise of calm node windows that were kept aside, Layout -> SharedSurprise.fit -> expected (groups,). A job that begins on all
nodes at once surprises on each. What is taken off is learnt from calm moments, 0 where nodes do not surprise together there, and
never more than calm moments have shared: trouble that everybody feels is far above that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.layout import Groups, Layout
from stormpetrel.traces.detector.statistics import others_median

_FEWEST: Final = 40  # calm node windows beside two others or more
_LEAST_EXPLAINED: Final = 0.05  # of the variance of calm surprises
_MOST_SHARED: Final = 0.99  # quantile of what calm moments share
_FEWEST_NODES: Final = 3  # at one moment


@dataclass(frozen=True, slots=True)
class SharedSurprise:
    """The share of the others' surprise that is expected of a node, and the most that counts of it."""

    weight: float
    most: float

    @classmethod
    def fit(cls, surprise: Floats, layout: Layout) -> Self:
        """Learn from calm node windows (groups,); NaN where a window tells nothing."""
        others = _of_others(surprise, layout)
        known = np.isfinite(surprise) & np.isfinite(others)
        if known.sum() < _FEWEST:
            return cls(0.0, 0.0)
        own, other = surprise[known], np.maximum(others[known], 0.0)
        weight = float(np.clip((own * other).sum() / max(float((other**2).sum()), 1e-9), 0.0, 1.0))
        explained = 1 - float(np.var(own - weight * other)) / max(float(np.var(own)), 1e-9)
        return cls(weight, float(np.quantile(other, _MOST_SHARED))) if explained >= _LEAST_EXPLAINED else cls(0.0, 0.0)

    def expected(self, surprise: Floats, layout: Layout) -> Floats:
        """What the other nodes of the moment let expect of each node, (groups,), 0 or more."""
        if not self.weight:
            return np.zeros(layout.nodes)
        return np.asarray(self.weight * np.clip(np.nan_to_num(_of_others(surprise, layout)), 0.0, self.most))

    def arrays(self) -> dict[str, Floats]:
        """As they are saved."""
        return {"shared": np.array([self.weight, self.most])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved; nothing is shared in a detector from before."""
        weight, most = arrays["shared"].tolist() if "shared" in arrays else (0.0, 0.0)
        return cls(float(weight), float(most))


def _of_others(surprise: Floats, layout: Layout) -> Floats:
    """The median surprise of the other nodes at the same moment; NaN with fewer than two others."""
    known = np.isfinite(surprise)
    moment = _moments(layout, known)
    crowd = np.bincount(moment[known], minlength=1)
    median = others_median(np.nan_to_num(surprise)[:, None], moment)[:, 0]
    return np.where(known & (crowd[np.maximum(moment, 0)] >= _FEWEST_NODES), median, np.nan)


def _moments(layout: Layout, known: Groups) -> Groups:
    """A number for the nodes of one campaign and moment; -1 for those without a surprise."""
    key = np.stack([layout.node_trace.astype(np.float64), layout.node_start_s], axis=1)
    number = np.unique(key, axis=0, return_inverse=True)[1].ravel() if layout.nodes else np.empty(0, dtype=np.intp)
    return np.where(known, number, -1)

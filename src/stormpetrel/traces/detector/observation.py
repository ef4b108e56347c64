"""Observations: what a detector sees of windows, what their past lets it expect, and how odd it finds them.

Windows with their statistics and their layout -> Observation; Expectation is the same whatever a window itself shows, so that a
window can be changed beside the same past. ThreadLevel, Observation -> node_features (groups, columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.windows import Windows
from stormpetrel.traces.detector.layout import Layout
from stormpetrel.traces.detector.statistics import over_threads
from stormpetrel.traces.detector.thread_level import ThreadLevel

Groups = npt.NDArray[np.intp]
Level = Literal["thread", "job", "node"]


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Windows with their statistics, who stands beside whom, and what the past lets expect of each."""

    windows: Windows
    layout: Layout
    statistics: Floats  # (windows, statistics)
    movement: Floats  # (node groups, movement)

    def of_nodes(self, some: npt.NDArray[np.intp]) -> tuple[Observation, npt.NDArray[np.intp]]:
        """Some node groups alone, and the rows of their windows."""
        layout, rows = self.layout.of_nodes(some)
        return Observation(self.windows.take(rows), layout, self.statistics[rows], self.movement[some]), rows


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What the past of threads and nodes lets expect: the same whatever a window itself shows."""

    thread_past: Floats  # (windows, statistics)
    thread_own: Floats  # (windows,) surprise before
    node_expected: Floats  # (groups, columns)
    node_spread: Floats  # (groups, columns)
    node_own: Floats  # (groups,) surprise before
    node_unit: Floats  # (groups, 3, 2) median and spread of late: of node features, of the oddest threads, of the contrast
    node_shared: Floats  # (groups,) surprise of the other nodes of the moment, as far as it is expected of this one

    def take(self, rows: npt.NDArray[np.intp], some: npt.NDArray[np.intp]) -> Expectation:
        """What is expected of some windows and node groups."""
        of_nodes = (self.node_expected, self.node_spread, self.node_own, self.node_unit, self.node_shared)
        return Expectation(self.thread_past[rows], self.thread_own[rows], *(values[some] for values in of_nodes))


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """How odd windows, jobs and nodes are; not calibrated yet. `job` and `node` are by the numbers of the layout."""

    thread: Floats
    job: Floats
    node: Floats
    node_features: Floats  # (groups,) of the node level alone
    node_top: Floats  # (groups,) of the oddest threads alone
    node_contrast: Floats  # (groups,) what trees say that tell calm from disturbed
    seen_for: dict[Level, Groups]  # how long each has been seen, as _SEEN_FOR counts


def node_features(thread: ThreadLevel, seen: Observation, past: Floats) -> Floats:
    """What the node level looks at: how its threads have changed, over its threads, and how their mean moves."""
    changed = thread.changed(thread.away(seen.statistics, seen.layout), past, seen.layout)
    return np.concatenate([over_threads(changed, seen.layout.node, seen.layout.nodes), seen.movement], axis=1)

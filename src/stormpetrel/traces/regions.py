"""Known regions: parts of the embedding space that have the name of a trouble, because its windows lay there.

example windows of one trouble, calm windows -> fit_region -> Region; Regions.names_of(embeddings) -> Inside.

A window lies in a region if its distance to the nearest example is at most the region's radius. The radius reaches as far as the
examples lie from each other (those of one moment resemble each other too much to say it), and ends where calm windows begin: at
most one calm window in a thousand may lie inside. Where both cannot be had, `coverage` says which share of the trouble itself the
region still finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.traces.vector_index import ExactIndex

Embeddings = npt.NDArray[np.float32]
Distances = npt.NDArray[np.float64]

CALM_SHARE: Final = 0.001  # of calm windows may lie in a region
REACH_SHARE: Final = 0.95  # of the examples have another one as near as this
REACH_FACTOR: Final = 1.5  # the next window of the same trouble may lie a little farther out than those that are known
LONELY_FACTOR: Final = 0.5  # of the way to the calm windows, where one example, or one moment, says nothing of the reach


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A named part of the embedding space."""

    name: str
    examples: Embeddings  # (examples, embedding)
    radius: float  # 0: it holds nothing, since calm windows lie where its examples do
    coverage: float | None  # share of the examples within the radius of one of another moment; None: there is one moment only
    calm_inside: float  # share of the calm windows at hand that lie inside

    def distance(self, embeddings: Embeddings) -> Distances:
        """The distance of each window to the nearest example."""
        if not len(embeddings):
            return np.zeros(0)
        return ExactIndex(self.examples).search(embeddings, 1).distance[:, 0].astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """Where each window lies among the regions."""

    name: npt.NDArray[np.str_]  # of the region; empty: in none
    distance: Distances  # to the nearest example of that region; NaN in none


@dataclass(frozen=True, slots=True)
class Regions:
    """All regions that a model knows."""

    all: tuple[Region, ...] = ()

    def __len__(self) -> int:
        return len(self.all)

    def names_of(self, embeddings: Embeddings) -> Inside:
        """The region that each window lies in; of several, the one that it lies deepest in, in units of the radius."""
        name = np.full(len(embeddings), "", dtype=np.str_ if not self.all else f"U{max(len(region.name) for region in self.all)}")
        best, distance = np.full(len(embeddings), np.inf), np.full(len(embeddings), np.nan)
        for region in self.all:
            apart = region.distance(embeddings)
            depth = apart / region.radius if region.radius > 0 else np.full_like(apart, np.inf)
            deeper = (depth <= 1) & (depth < best)
            name[deeper], best[deeper], distance[deeper] = region.name, depth[deeper], apart[deeper]
        return Inside(name, distance)


def fit_region(name: str, examples: Embeddings, moments: Sequence[object], calm: Embeddings) -> Region:
    """The region of a trouble out of its windows, `moments` saying which of them were seen at the same time, and calm windows.

    Without calm windows the examples alone say how far it reaches.
    """
    reach = _reach(examples, moments)
    border = _calm_border(examples, calm)
    if reach is None:
        radius = 0.0 if border is None else LONELY_FACTOR * border
    else:
        farthest = REACH_FACTOR * float(np.quantile(reach, REACH_SHARE))
        radius = farthest if border is None else min(farthest, border)
    holds = radius > 0
    region = Region(name, examples, radius, None if reach is None else float((reach <= radius).mean() * holds), 0.0)
    inside = float((region.distance(calm) <= radius).mean()) if len(calm) and holds else 0.0
    return Region(name, examples, radius, region.coverage, inside)


def _reach(examples: Embeddings, moments: Sequence[object]) -> Distances | None:
    """How far each example lies from the nearest of another moment; None where all are of one."""
    numbers = {moment: number for number, moment in enumerate(dict.fromkeys(moments))}
    if len(numbers) < 2:
        return None
    moment = np.array([numbers[each] for each in moments])
    reach = np.empty(len(examples))
    for number in range(len(numbers)):
        mine = moment == number
        reach[mine] = ExactIndex(examples[~mine]).search(examples[mine], 1).distance[:, 0]
    return reach


def _calm_border(examples: Embeddings, calm: Embeddings) -> float | None:
    """The distance within which one calm window in a thousand lies, just not reached; None without calm windows."""
    if not len(calm):
        return None
    apart = np.sort(ExactIndex(examples).search(calm, 1).distance[:, 0].astype(np.float64))
    allowed = int(CALM_SHARE * len(apart))  # so many may lie inside
    return float(np.nextafter(apart[min(allowed, len(apart) - 1)], 0.0))

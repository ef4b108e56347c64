"""Threads: how far the statistics of a window lie from what its kind of work, its own past and its neighbours let expect.

Observation (statistics and layout) -> ThreadLevel.fit -> residuals (windows, statistics), surprise (windows,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.day import DayHabit
from stormpetrel.traces.detector.distance import Distance
from stormpetrel.traces.detector.layout import FORGETS, Layout, Past
from stormpetrel.traces.detector.normal_scores import LARGEST, NormalScores
from stormpetrel.traces.detector.statistics import medians

Mask = npt.NDArray[np.bool_]

_FEWEST_OF_TYPE: Final = 64  # calm windows of a job type before it has an expectation of its own
_FEWEST_NEIGHBOURS: Final = 3
_MOST_LEARNT: Final = 30_000  # windows; more make neither ranks nor covariances better
_RIDGE: Final = 50.0
_OWN_WEIGHT: Final = 3.0  # windows that the usual surprise counts for beside a thread's own
_FORGETS: Final = max(FORGETS, 0.6)
_TICK: Final = 0.01  # of a second: a share that was always the same may be a tick away without being odd


@dataclass(frozen=True, slots=True, eq=False)
class ThreadLevel:
    """What is usual for threads."""

    scores: NormalScores
    types: tuple[str, ...]
    type_mean: Floats  # (types + 1, statistics); the last is of everything else
    own: Floats  # (statistics,) how much of its own past a thread repeats
    weights: Floats  # (3, statistics) own past, neighbours now, neighbours before
    alone: Floats  # (statistics,) neighbours now, where there is no past
    distance: Distance
    usual: Floats  # (2,) mean surprise with and without a past
    habit: DayHabit | None = None  # of the hours; None where they are not known

    @classmethod
    def fit(cls, statistics: Floats, layout: Layout, learn: Mask, seed: int, *, by_hour: bool = False) -> Self:
        """Learn from the windows that `learn` names; all others only stand beside them."""
        rng = np.random.default_rng(seed)
        rows = _some(rng, np.flatnonzero(learn))
        scores = NormalScores.fit(statistics[rows], _TICK)
        normal = scores.transform(statistics)
        types, counts = np.unique(layout.job_type[learn], return_counts=True)
        known = tuple(str(name) for name in types[counts >= _FEWEST_OF_TYPE])
        means = [normal[learn & (layout.job_type == name)].mean(axis=0) for name in known]
        type_mean = np.stack([*means, normal[rows].mean(axis=0)])
        away = normal - type_mean[_numbers(known, layout.job_type)]
        past = layout.thread_past.mean(away, forgets=_FORGETS)
        near_now, near_past = (medians(values, layout.work, _FEWEST_NEIGHBOURS) for values in (away, past))
        with_past = _some(rng, np.flatnonzero(learn & layout.thread_past.known))
        own = np.clip((away[with_past] * past[with_past]).sum(0) / ((past[with_past] ** 2).sum(0) + _RIDGE), 0, 1)
        weights = _ridge([past[with_past], near_now[with_past], near_past[with_past]], away[with_past])
        alone = _ridge([near_now[rows]], away[rows])[0]
        level = cls(scores, known, type_mean, own, weights, alone, Distance.fit(np.zeros((0, away.shape[1]))), np.zeros(2))
        left = level._left(away, past, near_now, near_past, layout)
        habit = DayHabit.fit(left, layout.start_s, learn) if by_hour else None
        left = left if habit is None else left / habit.ratio(layout.start_s)
        teaching = with_past if with_past.size > 2 * away.shape[1] else rows
        distance = Distance.fit(left[teaching], shrinkage=0.1)
        usual = _usual(distance.log_distance(left), learn, layout.thread_past.known)
        return cls(scores, known, type_mean, own, weights, alone, distance, usual, habit)

    def away(self, statistics: Floats, layout: Layout) -> Floats:
        """Normal scores less what is usual for the kind of work, (windows, statistics)."""
        return self.scores.transform(statistics) - self.type_mean[_numbers(self.types, layout.job_type)]

    def past(self, away: Floats, layout: Layout) -> Floats:
        """What each thread did before, (windows, statistics)."""
        return layout.thread_past.mean(away, forgets=_FORGETS)

    def changed(self, away: Floats, past: Floats, layout: Layout) -> Floats:
        """What is left of each thread's statistics after its own past, (windows, statistics): what node features are made of."""
        return np.asarray(away - np.where(layout.thread_past.known[:, None], self.own * past, 0.0))

    def left(self, away: Floats, past: Floats, layout: Layout) -> Floats:
        """What is left after past and neighbours, in units of the hour, (windows, statistics)."""
        near_now, near_past = (medians(values, layout.work, _FEWEST_NEIGHBOURS) for values in (away, past))
        return self._left(away, past, near_now, near_past, layout)

    def surprise(self, left: Floats, layout: Layout) -> Floats:
        """How unusual each window is, before its thread's own habit of surprising is taken off; about 0 is usual."""
        known = layout.thread_past.known
        return np.asarray(self.distance.log_distance(left) - np.where(known, self.usual[0], self.usual[1]))

    def novelty(self, statistics: Floats) -> Floats:
        """How far the statistics of each window lie outside all that calm windows have shown, (windows,); 0: inside."""
        outside = np.minimum(np.abs(self.scores.beyond(statistics)), LARGEST)
        return np.asarray(np.log1p((outside**2).sum(axis=1)))

    def own_surprise(self, surprise: Floats, layout: Layout) -> Floats:
        """How unusual each thread's windows were before."""
        return self.own_surprise_of(surprise, layout.thread_past)

    @staticmethod
    def own_surprise_of(surprise: Floats, past: Past) -> Floats:
        """The same, whatever was learnt."""
        return past.mean(surprise, prior=0.0, weight=_OWN_WEIGHT)

    def _left(self, away: Floats, past: Floats, near_now: Floats, near_past: Floats, layout: Layout) -> Floats:
        with_past = self.weights[0] * past + self.weights[1] * near_now + self.weights[2] * near_past
        left = np.asarray(away - np.where(layout.thread_past.known[:, None], with_past, self.alone * near_now))
        return left if self.habit is None else left / self.habit.ratio(layout.start_s)

    def arrays(self) -> dict[str, Floats]:
        """As they are saved."""
        return {
            **self.scores.arrays("thread.scores"),
            **self.distance.arrays("thread.distance"),
            "thread.type_mean": self.type_mean,
            "thread.own": self.own,
            "thread.weights": self.weights,
            "thread.alone": self.alone,
            "thread.usual": self.usual,
            **({} if self.habit is None else {"thread.habit": self.habit.ratios}),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats], types: Any) -> Self:
        """As they were saved."""
        return cls(
            NormalScores.of_arrays("thread.scores", arrays),
            tuple(str(name) for name in types),
            arrays["thread.type_mean"],
            arrays["thread.own"],
            arrays["thread.weights"],
            arrays["thread.alone"],
            Distance.of_arrays("thread.distance", arrays),
            arrays["thread.usual"],
            DayHabit(arrays["thread.habit"]) if "thread.habit" in arrays else None,
        )


def _numbers(types: tuple[str, ...], job_type: npt.NDArray[np.str_]) -> npt.NDArray[np.intp]:
    number = np.full(len(job_type), len(types), dtype=np.intp)
    for place, name in enumerate(types):
        number[job_type == name] = place
    return number


def _ridge(columns: list[Floats], wanted: Floats) -> Floats:
    """For each statistic on its own, the weights of some explaining values: (explaining, statistics)."""
    stacked = np.stack(columns)  # (explaining, rows, statistics)
    products = np.einsum("irs,jrs->sij", stacked, stacked) + _RIDGE * np.eye(len(columns))
    return np.asarray(np.linalg.solve(products, np.einsum("irs,rs->si", stacked, wanted)[:, :, None])[:, :, 0].T)


def _usual(surprise: Floats, learn: Mask, known: Mask) -> Floats:
    with_past, without = (surprise[learn & some] for some in (known, ~known))
    fallback = surprise[learn].mean() if learn.any() else 0.0
    return np.array([part.mean() if part.size else fallback for part in (with_past, without)])


def _some(rng: np.random.Generator, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return rows if rows.size <= _MOST_LEARNT else np.sort(rng.choice(rows, _MOST_LEARNT, replace=False))

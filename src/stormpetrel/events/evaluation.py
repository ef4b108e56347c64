"""Evaluation: models and baselines on the same data sets, each in the order of time.

Dataset -> judge_contestants -> Judged per model. A model learns from the training part, its first threshold comes from calm
buckets after that, and it is judged on the test part, which comes last and which it has not seen. It scores the whole series in
one go, so that a bucket of the test part has its history, and it is never shown a label of an outage while it scores. The
threshold is learnt anew every day from the weeks before, as a site does it, outages of the test part among them: nobody has
labelled those yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.events.alarm_budget import daily_thresholds, threshold_for
from stormpetrel.events.baselines import BASELINES, WITH_CHANCE
from stormpetrel.events.contract import EventModel
from stormpetrel.events.event_metrics import AlarmFigures, TestOutage, calm_buckets, counted_buckets, judge_alarm
from stormpetrel.records.event_series import EventSeries

PER_WEEK: Final = 1.0
MODEL_NAMES: Final = ("supervised", "unsupervised", "combined", "recurrent_forecast")
ALL_NAMES: Final = (*MODEL_NAMES, *BASELINES)  # in the order in which they are shown
NEED_LABELS: Final = frozenset({"supervised", "combined", "xgboost"})


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A series in three parts that follow each other in time, with the outages of the last one."""

    name: str
    seed: int
    train: EventSeries  # labelled, for models that learn from labels
    train_unlabelled: EventSeries  # the same span for the others: as it was recorded
    calm: EventSeries  # for the threshold
    test: EventSeries
    outages: tuple[TestOutage, ...]

    def whole(self) -> EventSeries:
        """All parts as they were recorded, without the labels of outages."""
        return joined(self.train_unlabelled, self.calm, self.test).unlabelled()


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model or baseline by name."""

    name: str
    make: Callable[[int], EventModel]  # from a seed

    @property
    def is_baseline(self) -> bool:
        """Whether it is one of those that the models are compared with."""
        return self.name in BASELINES

    @property
    def needs_labels(self) -> bool:
        """Whether it is trained on the labelled series."""
        return self.name in NEED_LABELS


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one model on one data set: figures, or why there are none."""

    figures: AlarmFigures | None
    error: str = ""
    fit_s: float = 0.0
    score_s: float = 0.0


def contestants(names: Sequence[str] = ()) -> list[Contestant]:
    """The models and baselines of these names; all of them if none is named."""
    unknown = [name for name in names if name not in ALL_NAMES]
    if unknown:
        raise UsageError(f"Unknown model {unknown[0]!r}.", hint=f"Known: {', '.join(ALL_NAMES)}.")
    return [Contestant(name, _maker(name)) for name in ALL_NAMES if not names or name in names]


def judge_contestants(
    dataset: Dataset, those: Sequence[Contestant], *, per_week: float = PER_WEEK, progress: Progress = no_progress
) -> dict[str, Judged]:
    """Each of them on one data set; one that fails is told with its error, and the others go on."""
    found = {}
    for place, one in enumerate(those):
        progress(place / len(those), f"{dataset.name}, seed {dataset.seed}: {one.name}")
        try:
            found[one.name] = judge_contestant(dataset, one, per_week=per_week)
        except StormpetrelError as error:
            found[one.name] = Judged(None, str(error))
        except Exception as error:  # a model of whatever origin: its fault is a result like any other
            found[one.name] = Judged(None, f"{type(error).__name__}: {error}"[:300])
    return found


def judge_contestant(dataset: Dataset, one: Contestant, *, per_week: float = PER_WEEK) -> Judged:
    """Train, choose the threshold, score, judge."""
    model = one.make(dataset.seed)
    began = time.monotonic()
    model.fit(dataset.train if one.needs_labels else dataset.train_unlabelled)
    fitted = time.monotonic()
    scores = model.score(dataset.whole())
    scored = time.monotonic()
    before = len(dataset.train_unlabelled)
    after = before + len(dataset.calm)
    bucket_s = dataset.calm.bucket_s
    first = threshold_for(scores[before:after], calm_buckets(dataset.calm), bucket_s, per_week)
    calm = np.concatenate([calm_buckets(dataset.calm), counted_buckets(dataset.test.unlabelled())])
    start_s = np.concatenate([dataset.calm.start_s, dataset.test.start_s])
    thresholds = daily_thresholds(scores[before:], calm, start_s, bucket_s, per_week, first=first)[len(dataset.calm) :]
    figures = judge_alarm(scores[after:], dataset.test, dataset.outages, thresholds)
    return Judged(figures, "", round(fitted - began, 3), round(scored - fitted, 3))


def joined(*parts: EventSeries) -> EventSeries:
    """Series that follow each other in time, as one."""
    first = parts[0]
    return replace(
        first,
        start_s=np.concatenate([part.start_s for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        background=np.concatenate([part.background for part in parts]),
    )


def _maker(name: str) -> Callable[[int], EventModel]:
    """How to make a model by its name; the modules of our own models are imported when the first is made."""

    def make(seed: int) -> EventModel:
        if name not in BASELINES:
            from stormpetrel.events.choose import make as make_model

            return make_model(name, seed=seed)
        return BASELINES[name](seed=seed) if name in WITH_CHANCE else BASELINES[name]()

    return make

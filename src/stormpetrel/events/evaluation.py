"""Evaluation: models and baselines on the same data sets, each in the order of time.

Dataset -> judge_contestants -> Judged per model. A model learns from the training part, its first threshold comes from calm
buckets after that, and it is judged on the test part, which comes last and which it has not seen. It scores the whole series in
one go, so that a bucket of the test part has its history, and it is never shown a label of an outage while it scores. The
threshold is learnt anew every day from the weeks before, as a site does it, outages of the test part among them: nobody has
labelled those yet.
Runs (one model on one data set with one seed, as plain values) -> summary -> mean and spread over seeds, as `events evaluate`
prints it; runs of different times can be combined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.events.alarm_budget import daily_thresholds, threshold_for
from stormpetrel.events.baselines import BASELINES, WITH_CHANCE
from stormpetrel.events.choose import make as make_model
from stormpetrel.events.contract import EventModel
from stormpetrel.events.event_metrics import (
    FIGURES,
    AlarmFigures,
    Caught,
    TestOutage,
    by_outage,
    calm_buckets,
    counted_buckets,
    judge_alarm,
)
from stormpetrel.records.event_series import EventSeries

PER_WEEK: Final = 1.0
MODEL_NAMES: Final = ("supervised", "unsupervised", "combined")
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
    """Each of them on one data set; one that fails is reported with its error, and the others go on."""
    judged = {}
    for place, contestant in enumerate(those):
        progress(place / len(those), f"{dataset.name}, seed {dataset.seed}: {contestant.name}")
        try:
            judged[contestant.name] = judge_contestant(dataset, contestant, per_week=per_week)
        except StormpetrelError as error:
            judged[contestant.name] = Judged(None, str(error))
        except Exception as error:  # a model of whatever origin: its fault is a result like any other
            judged[contestant.name] = Judged(None, f"{type(error).__name__}: {error}"[:300])
    return judged


def judge_contestant(dataset: Dataset, contestant: Contestant, *, per_week: float = PER_WEEK) -> Judged:
    """Train, choose the threshold, score, judge."""
    model = contestant.make(dataset.seed)
    began = time.monotonic()
    model.fit(dataset.train if contestant.needs_labels else dataset.train_unlabelled)
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
            return make_model(name, seed=seed)
        return BASELINES[name](seed=seed) if name in WITH_CHANCE else BASELINES[name]()

    return make


@dataclass(frozen=True, slots=True)
class Run:
    """One model, one data set, one seed."""

    dataset: str
    seed: int
    model: str
    figures: Mapping[str, float | None]  # by FIGURES; empty where it failed
    caught: tuple[Caught, ...] = ()
    error: str = ""
    fit_s: float = 0.0
    score_s: float = 0.0

    @classmethod
    def of(cls, dataset: str, seed: int, model: str, judged: Judged) -> Self:
        """A run as it was just measured."""
        figures = judged.figures
        return cls(
            dataset,
            seed,
            model,
            figures.as_dict() if figures else {},
            figures.caught if figures else (),
            judged.error,
            judged.fit_s,
            judged.score_s,
        )

    def as_json(self) -> dict[str, Any]:
        """As it is kept in a file."""
        outages = [[outage.outage_type, outage.severity, outage.delay_hours] for outage in self.caught]
        record = {"dataset": self.dataset, "seed": self.seed, "model": self.model, "figures": dict(self.figures)}
        return {**record, "outages": outages, "error": self.error, "fit_s": self.fit_s, "score_s": self.score_s}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """As it was kept in a file."""
        return cls(
            str(kept["dataset"]),
            int(kept["seed"]),
            str(kept["model"]),
            dict(kept["figures"]),
            tuple(Caught(*outage) for outage in kept["outages"]),
            str(kept["error"]),
            float(kept["fit_s"]),
            float(kept["score_s"]),
        )


def merged(older: Iterable[Run], newer: Iterable[Run]) -> list[Run]:
    """All runs, sorted; of the same data set, seed and model the newer one counts."""
    runs = {(run.dataset, run.seed, run.model): run for run in (*older, *newer)}
    return [runs[key] for key in sorted(runs)]


def summary(runs: Sequence[Run], *, order: Sequence[str] = ()) -> dict[str, Any]:
    """`{"datasets": {name: {"models", "baselines", "by_outage", …}}}`; figures over seeds are mean, std and n."""
    names = list(dict.fromkeys(run.dataset for run in runs))
    return {"datasets": {name: _of_dataset([run for run in runs if run.dataset == name], order) for name in names}}


def _of_dataset(runs: Sequence[Run], order: Sequence[str]) -> dict[str, Any]:
    those = sorted({run.model for run in runs}, key=lambda name: (order.index(name) if name in order else len(order), name))
    by_model = {name: _of_model([run for run in runs if run.model == name]) for name in those}
    outages: dict[str, dict[str, dict[str, Any]]] = {}
    for name in those:
        caught = [outage for run in runs if run.model == name for outage in run.caught]
        for outage_type, severities in by_outage(caught).items():
            for severity, figures in severities.items():
                outages.setdefault(outage_type, {}).setdefault(severity, {})[name] = figures
    return {
        "models": {name: figures for name, figures in by_model.items() if name not in BASELINES},
        "baselines": {name: figures for name, figures in by_model.items() if name in BASELINES},
        "by_outage": outages,
        "seeds": sorted({run.seed for run in runs}),
    }


def _of_model(runs: Sequence[Run]) -> dict[str, Any]:
    measured = [run for run in runs if not run.error]
    figures = {name: spread([run.figures.get(name) for run in measured]) for name in FIGURES}
    errors = {str(run.seed): run.error for run in runs if run.error}
    seconds = {"fit_s": spread([run.fit_s for run in measured]), "score_s": spread([run.score_s for run in measured])}
    return {**figures, **seconds, **({"errors": errors} if errors else {})}


def spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, (population) standard deviation and number of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None, "n": 0}
    return {"mean": float(np.mean(known)), "std": float(np.std(known)), "n": len(known)}

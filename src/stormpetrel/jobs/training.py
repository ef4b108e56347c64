"""Training: from the job table to fitted models, one per moment, each with a threshold chosen out of time;
whether there are enough jobs of each class to train on.

job frame -> labelled jobs + features -> JobOutcomeModel per moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History, event_times, in_order
from stormpetrel.jobs.model import FEWEST_OF_A_CLASS, ROUNDS, Beginning, JobOutcomeModel
from stormpetrel.jobs.moments import MOMENT_LABELS, MOMENTS, Moment
from stormpetrel.jobs.optimism import Optimism, optimism
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.jobs.prior.learning import begin_with
from stormpetrel.jobs.prior.shipped import prior_of
from stormpetrel.jobs.profiles import JobProfiles, fit_request_profiles, with_profile
from stormpetrel.learn.metrics import best_f1_threshold
from stormpetrel.learn.splits import INNER_CUTS, splits_at
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

Progress = Callable[[str], None]
_FORECAST_ROWS: Final = 200_000  # that are forecast at a time
MOST_KEPT_RISKS: Final = 1_000  # out-of-time risks that are saved with a model


def silent(_: str) -> None:
    """A progress report that nobody reads."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What counts as a failure, what is left out, and how the model is fitted."""

    failure_states: tuple[str, ...] = tuple(DEFAULT_FAILURE_STATES)
    dropped_states: tuple[str, ...] = ()
    time_zone: str = "UTC"
    min_run_s: float | None = None  # 120 leaves jobs under two minutes out, as the seed does
    rounds: int = ROUNDS
    seed: int = 0
    most_rows: int = 1_000_000  # of one fit: the most recent ones
    prior: bool = False  # begin with the prior that comes with the package, while there are few failures
    similar_names: bool = False  # rates of applications lean on those of similar names and scripts
    learn_days: float = 0.0  # learn only from jobs that ended in so many days before the last submission; 0: from all


@dataclass(frozen=True, slots=True)
class LabelledJobs:
    """A log made ready: jobs in the order of submission, their labels, and the features of each moment."""

    jobs: pl.DataFrame
    features: Mapping[Moment, FeatureMatrix]
    failed: NDArray[np.bool_]
    usable: NDArray[np.bool_]  # ended, in a state that counts
    outcome: pl.Series
    submit: NDArray[np.float64]
    end: NDArray[np.float64]
    history: History
    profiles: JobProfiles
    notes: tuple[str, ...] = field(default=())
    optimism: Optimism | None = None  # of figures that are made of this history
    seen: Mapping[Moment, NDArray[np.bool_]] | None = None  # who lived to see each moment, where not all features are kept

    def reached(self, moment: Moment) -> NDArray[np.bool_]:
        """Usable jobs that lived to see the moment."""
        if self.seen is not None:
            return self.usable & self.seen[moment]
        matrix = self.features[moment]
        return self.usable & ~np.isnan(matrix.values[:, matrix.names.index("site.failed_rate_1h")])


def label_jobs(
    jobs: pl.DataFrame,
    settings: TrainingSettings,
    moments: Collection[Moment] = MOMENTS,
    *,
    profiles_from: float = 1.0,
    profiles: JobProfiles | None = None,
) -> LabelledJobs:
    """Sort a job frame by submission, label it and compute the features of every moment.

    `profiles_from` is the quantile of submission, among jobs that can be judged, up to which the profiles of requests are made:
    an evaluation makes them from jobs before its first cut. `profiles` that are there already are taken as they are.
    """
    jobs = in_order(jobs)
    label = jobs.select(failed(settings.failure_states, settings.dropped_states), outcome(), elapsed=pl.col("elapsed_s"))
    usable = label["failed"].is_not_null() & jobs["end_time"].is_not_null() & jobs["submit_time"].is_not_null()
    if settings.min_run_s is not None:
        usable &= (label["elapsed"] >= settings.min_run_s).fill_null(False)
    submit = _unix(jobs["submit_time"])
    if profiles is None:
        early = submit <= (np.quantile(submit[usable.to_numpy()], profiles_from) if usable.any() else np.inf)
        profiles = fit_request_profiles(jobs.filter(early), failure_states=settings.failure_states, seed=settings.seed)
    jobs = with_profile(jobs, profiles)
    history = History(settings.failure_states, settings.dropped_states, similar_names=settings.similar_names)
    features = features_at(jobs, history, moments, time_zone=settings.time_zone)
    too_early = optimism(jobs)
    return LabelledJobs(
        jobs=jobs,
        features=features,
        failed=label["failed"].fill_null(False).to_numpy(),
        usable=usable.to_numpy(),
        outcome=label["outcome"],
        submit=submit,
        end=_unix(jobs["end_time"]),
        history=history,
        profiles=profiles,
        notes=notes_on(history, too_early),
        optimism=too_early,
    )


def fit_at(labelled: LabelledJobs, moment: Moment, rows: NDArray[np.bool_], settings: TrainingSettings) -> JobOutcomeModel:
    """One model of one moment on some rows; the most recent ones where there are very many."""
    chosen = _newest(rows, settings)
    model = JobOutcomeModel(moment, rounds=settings.rounds, seed=settings.seed)
    features, failed = labelled.features[moment].rows(chosen), labelled.failed[chosen]
    return model.fit(features, failed, labelled.outcome[chosen], begin=_beginning(features, failed, settings))


def fit_risk_at(labelled: LabelledJobs, moment: Moment, rows: NDArray[np.bool_], settings: TrainingSettings) -> JobOutcomeModel:
    """The same model where only its `risk` is requested: without the trees that tell in which way jobs fail."""
    chosen = _newest(rows, settings)
    model = JobOutcomeModel(moment, rounds=settings.rounds, seed=settings.seed)
    features, failed = labelled.features[moment].rows(chosen), labelled.failed[chosen]
    return model.fit_risk(features, failed, begin=_beginning(features, failed, settings))


def _beginning(features: FeatureMatrix, failed: NDArray[np.bool_], settings: TrainingSettings) -> Beginning | None:
    return begin_with(prior_of(features.moment), features.names, failed) if settings.prior else None


def _newest(rows: NDArray[np.bool_], settings: TrainingSettings) -> NDArray[np.intp]:
    return np.flatnonzero(rows)[-settings.most_rows :]


def rows_of_fits(labelled: LabelledJobs, moment: Moment, settings: TrainingSettings) -> NDArray[np.bool_]:
    """Which rows a training at a moment takes: those of the model, and those that its threshold is chosen with."""
    rows = labelled.reached(moment) & _recent(labelled, settings)
    taken = np.zeros(rows.size, dtype=bool)
    taken[_newest(rows, settings)] = True
    for split in splits_at(INNER_CUTS, labelled.submit, labelled.end, rows):
        taken[_newest(split.train, settings)] = True
        taken |= split.test
    return taken


def out_of_time(
    labelled: LabelledJobs, rows: NDArray[np.bool_], fit: Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.float64]]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Truth and forecast on two later slices of `rows`, each forecast by what was known before it."""
    truths, forecasts = [], []
    for split in splits_at(INNER_CUTS, labelled.submit, labelled.end, rows):
        try:
            forecasts.append(fit(split.train, split.test))
        except NotEnoughJobsError:
            continue  # the first slice of a small log may hold one class only
        truths.append(labelled.failed[split.test])
    if not truths:
        return np.empty(0, dtype=bool), np.empty(0)
    return np.concatenate(truths), np.concatenate(forecasts)


def out_of_time_risks(
    labelled: LabelledJobs, moment: Moment, rows: NDArray[np.bool_], settings: TrainingSettings
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Truth and risk on the two later slices, in the order of submission."""

    def fit(train: NDArray[np.bool_], test: NDArray[np.bool_]) -> NDArray[np.float64]:
        model, rows = fit_risk_at(labelled, moment, train, settings), np.flatnonzero(test)
        parts = [rows[begin : begin + _FORECAST_ROWS] for begin in range(0, rows.size, _FORECAST_ROWS)]
        return np.concatenate([np.empty(0), *(model.risk(labelled.features[moment].rows(part)) for part in parts)])

    return out_of_time(labelled, rows, fit)


def train(
    jobs: pl.DataFrame,
    settings: TrainingSettings,
    moments: Collection[Moment] = MOMENTS,
    *,
    metadata: Mapping[str, Any] | None = None,
    profiles: JobProfiles | None = None,
    labelled: LabelledJobs | None = None,
    progress: Progress = silent,
) -> tuple[dict[Moment, JobOutcomeModel], LabelledJobs]:
    """A model for each moment, with its threshold, and the labelled jobs it was made from; over `profiles` if they are there.

    `labelled` are the same jobs labelled before, for several trainings on spans of one log: histories reach back further anyway.
    """
    progress("history and features")
    labelled = label_jobs(jobs, settings, moments, profiles=profiles) if labelled is None else labelled
    models = {}
    for moment in moments:
        rows = labelled.reached(moment) & _recent(labelled, settings)
        progress(f"model at {moment}")
        model = fit_at(labelled, moment, rows, settings)
        progress(f"threshold at {moment}")
        truth, forecast = out_of_time_risks(labelled, moment, rows, settings)
        model.threshold = best_f1_threshold(truth, forecast) if truth.any() else 0.5
        model.metadata = {
            **(metadata or {}),
            "failure_states": list(settings.failure_states),
            "dropped_states": list(settings.dropped_states),
            "time_zone": settings.time_zone,
            "stand_in": dict(labelled.history.stand_in or {}),
            "similar_names": labelled.history.similar_names,
            "first_submit": str(jobs["submit_time"].min()),
            "last_submit": str(jobs["submit_time"].max()),
            "out_of_time": kept_risks(truth, forecast),
            **({} if labelled.optimism is None else {"optimistic": labelled.optimism.as_json()}),
        }
        models[moment] = model
    return models, labelled


def kept_risks(truth: NDArray[np.bool_], forecast: NDArray[np.float64]) -> dict[str, Any]:
    """The latest out-of-time risks and outcomes as a record: what a correction of risks starts from before any has settled."""
    latest = slice(-MOST_KEPT_RISKS, None)
    return {"risk": [round(float(risk), 4) for risk in forecast[latest]], "failed": [int(failed) for failed in truth[latest]]}


def _recent(labelled: LabelledJobs, settings: TrainingSettings) -> NDArray[np.bool_]:
    """Which jobs ended within the span that is learnt from."""
    if not settings.learn_days or not labelled.submit.size:
        return np.ones(labelled.submit.size, dtype=bool)
    return np.asarray(labelled.end >= np.nanmax(labelled.submit) - 86_400.0 * settings.learn_days)


def _unix(times: pl.Series) -> NDArray[np.float64]:
    return (times.dt.epoch("us").cast(pl.Float64) / 1e6).to_numpy()


def notes_on(history: History, too_early: Optimism | None) -> tuple[str, ...]:
    """What a reader of figures should know about the log that they come from."""
    stand_ins = tuple(
        f"This log has no requested {size.removeprefix('asked_')} at all: the allocated ones stand in for them at submission."
        for size in (history.stand_in or {})
    )
    return stand_ins if too_early is None else (too_early.sentence, *stand_ins)


_WHICH: Final = {
    Moment.SUBMIT: "ended jobs",
    Moment.START: "ended jobs whose start is known",
    Moment.TWO_MINUTES: "jobs that ran longer than two minutes",
}


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How many ended jobs that reached a moment failed, how many did not, and how many of each a model needs."""

    moment: Moment
    failed: int
    others: int
    needed: int = FEWEST_OF_A_CLASS

    @property
    def enough(self) -> bool:
        """Whether a model of this moment can be made."""
        return min(self.failed, self.others) >= self.needed

    def words(self) -> str:
        """What is missing, as part of a sentence."""
        return (
            f"no model {MOMENT_LABELS[self.moment]}: it needs "
            f"{self.needed} failed and {self.needed} other {_WHICH[self.moment]}, "
            f"and has {self.failed:,} and {self.others:,}"
        )

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON and the registry; the moment is the key that it stands under."""
        return {name: value for name, value in asdict(self).items() if name != "moment"}


def counted_failed(settings: TrainingSettings) -> pl.Expr:
    """`failed` of the jobs that a training counts; null for the others."""
    counts = pl.col("end_time").is_not_null()
    if settings.min_run_s is not None:
        counts &= (pl.col("elapsed_s") >= settings.min_run_s).fill_null(False)
    return pl.when(counts).then(failed(settings.failure_states, settings.dropped_states)).alias("failed")


def class_counts(jobs: pl.DataFrame, settings: TrainingSettings) -> dict[Moment, ClassCounts]:
    """What there is to learn from at each moment, of jobs as they are known."""
    label = jobs.select(counted_failed(settings)).to_series()
    counts = (label.is_not_null() & jobs["submit_time"].is_not_null()).to_numpy()
    bad = label.fill_null(False).to_numpy()
    reached = ~np.isnan(event_times(jobs)[:, : len(MOMENTS)]) & counts[:, None]
    return {
        moment: ClassCounts(moment, int((reached[:, column] & bad).sum()), int((reached[:, column] & ~bad).sum()))
        for column, moment in enumerate(MOMENTS)
    }

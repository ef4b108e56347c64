"""Evaluation: how good the forecasts of each moment would have been, with honest time and the trivial baselines next to them.

job frame -> splits by time -> Evaluation (the JSON that `jobs evaluate` prints, and the forecasts for figures).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.engine import Progress as ShareProgress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.exam.baselines import BASELINES
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.model import FEWEST_OF_AN_OUTCOME, JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.outcomes import NEVER_STARTED, OUTCOMES
from stormpetrel.jobs.training import (
    LabelledJobs,
    Progress,
    TrainingSettings,
    fit_at,
    fit_risk_at,
    label_jobs,
    out_of_time,
    silent,
)
from stormpetrel.learn.metrics import best_f1_threshold, brier_skill, judge, pr_auc, reliability_slope, roc_auc
from stormpetrel.learn.splits import INNER_CUTS, ROLLING_CUTS, TIME_CUT, Split, split_between, splits_at, weekly_cuts
from stormpetrel.learn.working_point import Costs, Stream, Walked, join_walks, walk
from stormpetrel.records.arrays import Floats

Mask = NDArray[np.bool_]
MODEL: Final = "model"
CUTS: Final = {"time": (TIME_CUT,), "rolling": ROLLING_CUTS}
FEWEST_TEST_JOBS: Final = 10
PROFILE_SHARE: Final = 0.5  # of the log, from its beginning: before the first cut of any protocol


@dataclass
class Forecasts:
    """What one forecaster said about the test rows of all splits, pooled."""

    probability: list[Floats] = field(default_factory=list)
    flagged: list[Mask] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    n_train: list[int] = field(default_factory=list)

    def add(self, probability: Floats, threshold: float, n_train: int) -> None:
        """Add one split's forecasts, with the threshold that was chosen inside its own training part."""
        self.probability.append(probability)
        self.flagged.append(probability >= threshold)
        self.thresholds.append(threshold)
        self.n_train.append(n_train)

    def judge(self, truth: Mask, which: Mask | None = None) -> dict[str, Any]:
        """The figures over all splits; precision, recall and F1 by each split's own threshold."""
        probability, flagged = np.concatenate(self.probability), np.concatenate(self.flagged)
        if which is not None:
            truth, probability, flagged = truth[which], probability[which], flagged[which]
        figures = judge(
            truth, probability, threshold=float(np.mean(self.thresholds)), n_train=int(np.mean(self.n_train))
        ).as_dict()
        rule = judge(truth, flagged.astype(np.float64), threshold=0.5, n_train=0)
        figures |= {"f1": rule.f1, "precision": rule.precision, "recall": rule.recall}
        return {name: None if value is not None and np.isnan(value) else value for name, value in figures.items()}


@dataclass
class MomentResult:
    """The forecasts of one moment on its test rows."""

    moment: Moment
    truth: Mask
    rows: NDArray[np.int64]  # of the sorted job frame
    split_of: NDArray[np.int64]
    forecasts: dict[str, Forecasts]
    outcome_truth: dict[str, Mask]
    outcomes: dict[str, Forecasts]
    known: Mask
    models: list[JobOutcomeModel]
    walked: Walked | None = None  # what online recalibration would have said; None where nobody asked

    def probability(self, name: str = MODEL) -> Floats:
        """Pooled probabilities of one forecaster."""
        return np.concatenate(self.forecasts[name].probability)


@dataclass
class Evaluation:
    """Everything that one evaluation measured."""

    labelled: LabelledJobs
    protocol: str
    splits: list[Split]
    at: dict[Moment, MomentResult]
    seconds: dict[str, float]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """The JSON of `jobs evaluate` (DESIGN: stable, other programs read it)."""
        return {
            "split": self._split_json(),
            "at": {str(moment): self._moment_json(result) for moment, result in self.at.items()},
            "table1": [],
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "notes": self.notes,
            "optimistic": None if self.labelled.optimism is None else self.labelled.optimism.as_json(),
        }

    def _split_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "cuts": [_iso(split.cut) for split in self.splits],
            "n_train": [int(split.train.sum()) for split in self.splits],
            "n_test": [int(split.test.sum()) for split in self.splits],
            "purged": [split.purged for split in self.splits],
            "jobs": self.labelled.jobs.height,
            "usable": int(self.labelled.usable.sum()),
            "never_started": int((self.labelled.outcome == NEVER_STARTED).sum()),
            "failed_share": float(self.labelled.failed[self.labelled.usable].mean()) if self.labelled.usable.any() else None,
        }

    def _moment_json(self, result: MomentResult) -> dict[str, Any]:
        model, reference = result.probability(), result.probability("user_rate")
        return {
            "model": result.forecasts[MODEL].judge(result.truth),
            "baselines": {name: result.forecasts[name].judge(result.truth) for name in BASELINES},
            "outcomes": {name: result.outcomes[name].judge(result.outcome_truth[name]) for name in result.outcomes},
            "calibration": {
                "brier_skill": brier_skill(result.truth, model, reference),
                "reliability_slope": reliability_slope(result.truth, model) if model.size else None,
                "unknown_share": float(1 - result.known.mean()) if result.known.size else None,
            },
            "spread": _spread(result),
            "same_jobs": self._same_jobs(result),
            **({} if result.walked is None else {"recalibrated": result.walked.figures(result.truth)}),
        }

    def _same_jobs(self, result: MomentResult) -> dict[str, Any]:
        """The figures of the earlier moments on exactly the jobs of this one."""
        out = {}
        for earlier, other in self.at.items():
            if MOMENTS.index(earlier) < MOMENTS.index(result.moment):
                which = np.isin(other.rows, result.rows)
                out[str(earlier)] = other.forecasts[MODEL].judge(other.truth, which)
        return out


def evaluate(
    jobs: pl.DataFrame,
    settings: TrainingSettings,
    *,
    moments: Collection[Moment] = MOMENTS,
    protocol: str = "time",
    since: float | None = None,
    recalibrate: Costs | None = None,
    progress: Progress = silent,
    engine: Engine = ONE_PROCESS,
) -> Evaluation:
    """Judge the model and its baselines at each moment; `since` (Unix seconds) leaves earlier jobs out of the log altogether.

    `recalibrate` also corrects the model's risks online, by what had settled before each of them, with these costs.
    Every moment at every cut is one item of the engine. `seconds` of a moment is the time that its cuts took, one after another.
    """
    if protocol not in CUTS:
        raise UsageError(f"Unknown protocol '{protocol}'.", hint=f"Known here: {', '.join(CUTS)}; Table I is seed_protocol's.")
    began = time.monotonic()
    seconds: dict[str, float] = {}
    if since is not None:
        jobs = jobs.filter(pl.col("submit_time").dt.epoch("us") >= int(since * 1e6))
    progress("history and features")
    labelled = label_jobs(jobs, settings, moments, profiles_from=PROFILE_SHARE)
    seconds["features"] = time.monotonic() - began
    splits = _usable_splits(labelled, CUTS[protocol])
    reached = [moment for moment in moments if moment == Moment.SUBMIT or labelled.reached(moment).any()]
    tasks = [(moment, number) for moment in reached for number in range(len(splits))]
    results = engine.map(
        _CutEvaluation(_to_fit_on(labelled), splits, settings),
        tasks,
        name=lambda task: f"{task[0]}: cut {task[1] + 1} of {len(splits)}",
        progress=lambda _share, text: progress(text),
    )
    of_moment: dict[Moment, list[CutForecasts | NotEnoughJobsError]] = {moment: [] for moment in reached}
    for (moment, _), result in zip(tasks, results, strict=True):
        of_moment[moment].append(result)
    at: dict[Moment, MomentResult] = {}
    unjudged: list[NotEnoughJobsError] = []
    for moment in moments:
        if moment not in of_moment:
            unjudged.append(_never_reached(moment))
            continue
        judged = [cut for cut in of_moment[moment] if isinstance(cut, CutForecasts)]
        errors = [cut for cut in of_moment[moment] if isinstance(cut, NotEnoughJobsError)]
        seconds[str(moment)] = sum(cut.seconds for cut in judged)
        if errors:  # a log of short jobs has too few that live for two minutes: the others are judged
            unjudged.append(errors[0])
        else:
            at[moment] = _pooled(labelled, moment, judged)
            if recalibrate is not None:
                at[moment].walked = join_walks([_walk(labelled, moment, cut, recalibrate) for cut in judged])
    if not at:
        raise unjudged[0]
    seconds["total"] = time.monotonic() - began
    return Evaluation(labelled, protocol, splits, at, seconds, [*labelled.notes, *(error.what for error in unjudged)])


def _never_reached(moment: Moment) -> NotEnoughJobsError:
    return NotEnoughJobsError(
        f"No job of this log is known to have reached the moment '{moment}': nothing can be said there.",
        hint="Judge the forecasts at submission: --at submit.",
    )


def _usable_splits(labelled: LabelledJobs, quantiles: Collection[float]) -> list[Split]:
    splits = [
        split
        for split in splits_at(tuple(quantiles), labelled.submit, labelled.end, labelled.usable)
        if split.test.sum() >= FEWEST_TEST_JOBS and _two_classes(labelled.failed[split.train])
    ]
    if not splits:
        bad = int(labelled.failed[labelled.usable].sum())
        raise NotEnoughJobsError(
            f"{int(labelled.usable.sum())} ended jobs, {bad} of them failed: no part of this log can be learnt from.",
            hint="Use a longer log, or say with --failed and --drop which states count.",
        )
    return splits


def _two_classes(failed: Mask) -> bool:
    return bool(failed.sum() >= 10 and (~failed).sum() >= 10)


@dataclass(frozen=True, slots=True)
class CutForecasts:
    """What was forecast at one moment about the test rows of one cut, each forecast with its threshold."""

    model: JobOutcomeModel
    rows: NDArray[np.int64]  # of the sorted job frame
    n_train: int
    forecasts: dict[str, tuple[Floats, float]]  # of the model and the baselines
    outcomes: dict[str, tuple[Floats, float]]
    known: Mask
    seconds: float
    inner_rows: NDArray[np.int64]  # of the slices inside the training part, and what was forecast of them out of time
    inner_risk: Floats


@dataclass(frozen=True, slots=True)
class _CutEvaluation:
    """Fits a moment's model on what was known at a cut, and forecasts the jobs after it."""

    labelled: LabelledJobs
    splits: Sequence[Split]
    settings: TrainingSettings

    def __call__(self, task: tuple[Moment, int], _progress: ShareProgress) -> CutForecasts | NotEnoughJobsError:
        """The forecasts of a moment at the cut of that number; an error where there is too little to learn from."""
        moment, number = task
        try:
            return self._forecasts(moment, self.splits[number])
        except NotEnoughJobsError as error:
            return error

    def _forecasts(self, moment: Moment, split: Split) -> CutForecasts:
        began = time.monotonic()
        labelled, reached = self.labelled, self.labelled.reached(moment)
        train, test = split.train & reached, split.test & reached
        model = fit_at(labelled, moment, train, self.settings)
        predicted = model.predict_proba(labelled.features[moment].rows(test))
        thresholds, inner_rows, inner_risk = _model_thresholds(labelled, moment, train, self.settings)
        model.threshold = thresholds.get("risk", 0.5)
        forecasts = {MODEL: (predicted["risk"].to_numpy(), model.threshold)}
        for name, baseline in BASELINES.items():
            forecast = _baseline_forecast(labelled, moment, baseline)
            forecasts[name] = forecast(train, test), _threshold(labelled, train, forecast)
        outcomes = {}
        for name in OUTCOMES:
            column = predicted[f"p_{name}"].to_numpy() if f"p_{name}" in predicted.columns else np.zeros(predicted.height)
            outcomes[name] = column, thresholds.get(f"p_{name}", 1.0)
        known = predicted["known"].to_numpy()
        rows = np.flatnonzero(test)
        took_s = time.monotonic() - began
        return CutForecasts(model, rows, int(train.sum()), forecasts, outcomes, known, took_s, inner_rows, inner_risk)


def _walk(labelled: LabelledJobs, moment: Moment, cut: CutForecasts, costs: Costs) -> Walked:
    """The test jobs of a cut as they would have come, risks corrected by those that had ended before."""
    moment_s = event_times(labelled.jobs)[:, MOMENTS.index(moment)]

    def stream(rows: NDArray[np.int64], risk: Floats) -> Stream:
        return Stream(risk.astype(np.float64), labelled.failed[rows], moment_s[rows], labelled.end[rows])

    return walk(stream(cut.rows, cut.forecasts[MODEL][0]), stream(cut.inner_rows, cut.inner_risk), costs)


def _to_fit_on(labelled: LabelledJobs) -> LabelledJobs:
    """The labels and features without the job table, which is large and which no model is fitted on."""
    return replace(labelled, jobs=labelled.jobs.clear())


def _pooled(labelled: LabelledJobs, moment: Moment, cuts: Sequence[CutForecasts]) -> MomentResult:
    """The forecasts of all cuts of a moment, in the order of the cuts."""
    forecasts = {name: Forecasts() for name in (MODEL, *BASELINES)}
    outcomes = {name: Forecasts() for name in OUTCOMES}
    for cut in cuts:
        for pooled, parts in ((forecasts, cut.forecasts), (outcomes, cut.outcomes)):
            for name, (probability, threshold) in parts.items():
                pooled[name].add(probability, threshold, cut.n_train)
    chosen = np.concatenate([cut.rows for cut in cuts])
    truths = {name: (labelled.outcome[chosen] == name).fill_null(False).to_numpy() for name in OUTCOMES}
    seen = [name for name in OUTCOMES if truths[name].sum() >= FEWEST_OF_AN_OUTCOME]
    return MomentResult(
        moment=moment,
        truth=labelled.failed[chosen],
        rows=chosen,
        split_of=np.repeat(np.arange(len(cuts)), [cut.rows.size for cut in cuts]),
        forecasts=forecasts,
        outcome_truth={name: truths[name] for name in seen},
        outcomes={name: outcomes[name] for name in seen},
        known=np.concatenate([cut.known for cut in cuts]),
        models=[cut.model for cut in cuts],
    )


def _model_thresholds(
    labelled: LabelledJobs, moment: Moment, train: Mask, settings: TrainingSettings
) -> tuple[dict[str, float], NDArray[np.int64], Floats]:
    """The thresholds of the risk and of every outcome, each with the best F1 on later slices inside the training part.

    With the rows of these slices and the risks that were forecast of them.
    """
    features = labelled.features[moment]
    rows, frames = [], []
    for split in splits_at(INNER_CUTS, labelled.submit, labelled.end, train):
        try:
            frames.append(fit_at(labelled, moment, split.train, settings).predict_proba(features.rows(split.test)))
        except NotEnoughJobsError:
            continue  # the first slice of a small log may hold one class only
        rows.append(np.flatnonzero(split.test))
    if not frames:
        return {}, np.empty(0, dtype=np.int64), np.empty(0)
    chosen, forecast = np.concatenate(rows), pl.concat(frames, how="diagonal").fill_null(0.0)
    truths = {"risk": labelled.failed[chosen]}
    truths |= {f"p_{name}": (labelled.outcome[chosen] == name).fill_null(False).to_numpy() for name in OUTCOMES}
    thresholds = {
        name: best_f1_threshold(truth, forecast[name].to_numpy())
        for name, truth in truths.items()
        if name in forecast.columns and truth.any()
    }
    return thresholds, chosen, forecast["risk"].to_numpy()


def _baseline_forecast(labelled: LabelledJobs, moment: Moment, baseline: Any) -> Callable[[Mask, Mask], Floats]:
    features = labelled.features[moment]

    def forecast(train: Mask, test: Mask) -> Floats:
        result: Floats = baseline(features.rows(train), labelled.failed[train], features.rows(test))
        return result

    return forecast


def _threshold(labelled: LabelledJobs, train: Mask, forecast: Callable[[Mask, Mask], Floats]) -> float:
    truth, probability = out_of_time(labelled, train, forecast)
    return best_f1_threshold(truth, probability) if truth.any() else 0.5


def _spread(result: MomentResult) -> dict[str, Any]:
    """Each split on its own: mean and standard deviation of the model's figures."""
    parts: dict[str, list[float]] = {"roc_auc": [], "pr_auc": []}
    for number, probability in enumerate(result.forecasts[MODEL].probability):
        figures = judge(result.truth[result.split_of == number], probability, threshold=0.5, n_train=0)
        for name, values in parts.items():
            value = getattr(figures, name)
            if value is not None:
                values.append(value)
    return {
        name: {"mean": float(np.mean(values)), "std": float(np.std(values)), "n": len(values)}
        for name, values in parts.items()
        if values
    }


def refit_weekly(
    labelled: LabelledJobs,
    moment: Moment,
    settings: TrainingSettings,
    *,
    progress: Progress = silent,
    engine: Engine = ONE_PROCESS,
) -> pl.DataFrame:
    """Refitting every week against one fit, from 60 % of the log on: `week`, `failed`, `once`, `weekly` of each test job."""
    reached = labelled.reached(moment)
    first = float(np.quantile(labelled.submit[labelled.usable], ROLLING_CUTS[0]))
    cuts = weekly_cuts(first, float(labelled.submit[labelled.usable].max()))
    once = fit_risk_at(labelled, moment, split_between(first, np.inf, labelled.submit, labelled.end, reached).train, settings)
    weeks = [
        (number, split_between(cut, until, labelled.submit, labelled.end, reached))
        for number, (cut, until) in enumerate(zip(cuts, [*cuts[1:], np.inf], strict=True))
    ]
    parts = list(
        engine.map(
            _WeeklyRefit(_to_fit_on(labelled), moment, settings, once),
            [week for week in weeks if week[1].test.any()],
            name=lambda week: f"week {week[0] + 1} of {len(cuts)}",
            progress=lambda _share, text: progress(text),
        )
    )
    if not parts:
        raise NotEnoughJobsError("No job comes after the first 60 % of this log.", hint="Use a longer log.")
    return pl.concat(parts)


@dataclass(frozen=True, slots=True)
class _WeeklyRefit:
    """Fits the model on what was known at the beginning of a week, and forecasts that week next to the one fit."""

    labelled: LabelledJobs
    moment: Moment
    settings: TrainingSettings
    once: JobOutcomeModel

    def __call__(self, week: tuple[int, Split], _progress: ShareProgress) -> pl.DataFrame:
        """The forecasts of the week of that number, one row per test job."""
        number, split = week
        test = self.labelled.features[self.moment].rows(split.test)
        weekly = fit_risk_at(self.labelled, self.moment, split.train, self.settings)
        jobs = int(split.test.sum())
        return pl.DataFrame(
            {
                "week": pl.Series([number] * jobs, dtype=pl.Int32),
                "begin": pl.Series([_iso(split.cut)] * jobs),
                "failed": self.labelled.failed[split.test],
                "once": self.once.risk(test),
                "weekly": weekly.risk(test),
            }
        )


def weekly_table(refitted: pl.DataFrame) -> pl.DataFrame:
    """The areas of one fit and of weekly refits, week by week, and over all weeks in the last row (`begin` is "all")."""
    rows = []
    groups = [*((part["begin"][0], part) for part in refitted.partition_by("week", maintain_order=True)), ("all", refitted)]
    for begin, part in groups:
        truth = part["failed"].to_numpy()
        row: dict[str, Any] = {"begin": begin, "jobs": part.height, "failed": int(truth.sum())}
        for name in ("once", "weekly"):
            row[f"roc_{name}"] = roc_auc(truth, part[name].to_numpy())
            row[f"pr_{name}"] = pr_auc(truth, part[name].to_numpy())
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def split_quality(evaluation: Evaluation, moment: Moment) -> pl.DataFrame:
    """The model's figures split by split: `time` of the cut, ROC and PR area, F1, ECE."""
    result = evaluation.at[moment]
    forecasts = result.forecasts[MODEL]
    rows = []
    for number, probability in enumerate(forecasts.probability):
        truth = result.truth[result.split_of == number]
        figures = judge(truth, probability, threshold=forecasts.thresholds[number], n_train=0)
        cut = datetime.fromtimestamp(evaluation.splits[number].cut, UTC)
        rows.append({"time": cut, "roc_auc": figures.roc_auc, "pr_auc": figures.pr_auc, "f1": figures.f1, "ece": figures.ece})
    return pl.DataFrame(rows, infer_schema_length=None)


def _iso(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "s")) + "Z"

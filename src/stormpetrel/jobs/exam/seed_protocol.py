"""The seed's Table I on any job log, next to a rule of one line and next to the same models on later jobs.

JobFrame -> table_one -> TableOne: one row per model and part (train, test), and the forecasts behind them.

The seed's columns include run time and CPU time, which are known only once a job has ended, and its random split puts
neighbours of every test job into training. Both make the table better than any forecast can be: it is here to be
compared with, and no model that warns is built this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from time import perf_counter
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.engine import Progress as ShareProgress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.exam.resampling import Truth
from stormpetrel.jobs.exam.seed_models import RECIPES, TrainingRows
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.outcomes import LIMIT_REACHED, failed, reached_limit
from stormpetrel.jobs.preparation import PreparationSettings, prepare
from stormpetrel.jobs.profiles import END, JobProfiles
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_at
from stormpetrel.learn.metrics import roc_auc, scores_at
from stormpetrel.learn.splits import TIME_CUT, splits_at
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

Split = Literal["random", "time"]
Progress = Callable[[str, int, int], None]
Positions = npt.NDArray[np.intp]

TRAIN_SHARE: Final = 0.8
VALID_SHARE: Final = 0.2  # of the training part
THRESHOLD: Final = 0.5
SHORT_S: Final = 120.0  # the seed leaves out jobs that ran for less
# Two rules of one line: to the second, and with the tolerance that outcomes are named by. They differ where jobs are made to
# stop just before their limit: on CEA-Curie the tolerance halves the precision.
RULES: Final = {"rule_run_limit": "Rule: run time ≥ limit", "rule_near_limit": f"Rule: run time ≥ {LIMIT_REACHED} × limit"}
CONFIDENCE_BINS: Final = 50


class ClassScores(NamedTuple):
    """How well one class of jobs, failed or completed, was told from the other at probability .5."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class TableOneRow:
    """One line of the table: the scores of both classes, accuracy, area under the ROC curve."""

    model: str
    title: str
    part: str
    failed: ClassScores
    completed: ClassScores
    accuracy: float
    roc_auc: float | None = None
    jobs: int | None = None


def _published(
    model: str,
    title: str,
    failed: tuple[float, float, float],
    completed: tuple[float, float, float],
    accuracy: float,
    roc_auc: float | None = None,
) -> TableOneRow:
    return TableOneRow(model, title, "test", ClassScores(*failed), ClassScores(*completed), accuracy, roc_auc)


# The table as the seed prints it, on a log of its own.
SEED_TABLE_ONE: Final[Mapping[str, TableOneRow]] = {
    "xgboost": _published("xgboost", "XGBoost", (0.59, 0.98, 0.73), (1.00, 0.94, 0.97), 0.94),
    "xgboost_random_oversampling": _published(
        "xgboost_random_oversampling", "XGBoost + random oversampling", (0.06, 0.31, 0.10), (0.91, 0.58, 0.71), 0.56
    ),
    "xgboost_smote": _published("xgboost_smote", "XGBoost + SMOTE oversampling", (0.03, 0.10, 0.05), (0.91, 0.76, 0.72), 0.70),
    "xgboost_active_learning": _published(
        "xgboost_active_learning", "XGBoost + active learning", (0.78, 0.87, 0.82), (0.98, 0.97, 0.97), 0.97, 0.99
    ),
}


class Forecast(NamedTuple):
    """Which test jobs failed, and the probability that was forecast for each."""

    truth: Truth
    probability: Floats


@dataclass(frozen=True, slots=True)
class TableOne:
    """The seed's table for one log and one split; `forecasts` are those of the test part, by model."""

    split: Split
    columns: tuple[str, ...]
    rows: tuple[TableOneRow, ...]
    forecasts: dict[str, Forecast]
    histories: dict[str, pl.DataFrame]  # rounds of the recipes that have some
    seconds: dict[str, float]  # to fit and to score, by model

    def row(self, model: str, part: str = "test") -> TableOneRow:
        """One line of the table."""
        return next(row for row in self.rows if (row.model, row.part) == (model, part))

    def confidence(self, model: str) -> pl.DataFrame:
        """How sure the model was of what came to be (Fig. 11): outcome, confidence (middle of the bin), share of its jobs."""
        truth, probability = self.forecasts[model]
        edges = np.linspace(0.0, 1.0, CONFIDENCE_BINS + 1)
        parts = {"FAILED": probability[truth], "COMPLETED": 1.0 - probability[~truth]}
        shares = {outcome: np.histogram(sure, edges)[0] / max(1, sure.size) for outcome, sure in parts.items()}
        wide = pl.DataFrame({"confidence": (edges[1:] + edges[:-1]) / 2, **shares})
        return wide.unpivot(index="confidence", variable_name="outcome", value_name="share")


def table_one(
    jobs: pl.DataFrame,
    *,
    failure_states: Iterable[str] = DEFAULT_FAILURE_STATES,
    dropped_states: Iterable[str] = (),
    split: Split = "random",
    seed: int = 0,
    recipes: Sequence[str] = tuple(RECIPES),
    max_rows: int | None = None,
    shortest_s: float = 0.0,
    with_limit: bool = False,
    with_profile: bool = True,
    progress: Progress | None = None,
    engine: Engine = ONE_PROCESS,
) -> TableOne:
    """Fit every recipe on the seed's columns and judge it on both parts of the log.

    Parameters
    ----------
    split
        `random`: a fifth of the jobs, drawn at random, is the test part, as in the seed. `time`: the jobs submitted after
        the 80 % quantile of submit time are; training jobs that ended after it are left out.
    max_rows
        At most so many jobs, drawn at random.
    shortest_s
        Jobs that ran for less are left out; the seed's value is `SHORT_S`.
    with_limit
        Also give the models the requested run time, which the seed does not list; next to the run time it spells out the rule.
    with_profile
        Also give the models the profile of each job: a Gaussian mixture over CPUs, memory, run time and wait, fitted on the
        training rows alone, as the seed adds it to its columns.
    progress
        Called with (title of the model, models done, models in all).
    engine
        Each recipe is one of its items.
    """
    _check_names(recipes, split)
    judged = _judged(jobs, failure_states, dropped_states, shortest_s)
    if max_rows is not None and judged.height > max_rows:
        kept = np.random.default_rng(seed).permutation(judged.height)[:max_rows]
        judged = judged[np.sort(kept)]
    train, valid, test = _parts(judged, split, seed)
    y = judged["failed"].to_numpy()
    _check_classes(y, np.concatenate([train, valid]), test)
    x, columns = _matrix(judged, train, with_limit, _end_profiles(judged, train, seed) if with_profile else None)
    before = np.concatenate([train, valid])
    rules = _rule_rows(judged, y, {"train": before, "test": test})
    parts = TrainingRows(x[train], y[train], x[valid], y[valid])
    sides = {"train": (x[before], y[before]), "test": (x[test], y[test])}
    work = FitRecipe(parts, sides, seed)
    return judge_recipes(split, columns, work, recipes, rules=rules, progress=progress, engine=engine)


@dataclass(frozen=True, slots=True)
class FittedLine:
    """What one recipe gave: its forecasts of each side, its rounds where it has some, and the time to fit and to score."""

    forecasts: dict[str, Forecast]
    history: pl.DataFrame | None
    seconds: float


@dataclass(frozen=True, slots=True)
class FitRecipe:
    """Fits a recipe on the training rows and forecasts both sides, `train` and `test`."""

    learnt: TrainingRows
    sides: Mapping[str, tuple[Matrix, Truth]]
    seed: int

    def __call__(self, name: str, _progress: ShareProgress) -> FittedLine:
        """The forecasts of the recipe of that name."""
        began = perf_counter()
        fitted = RECIPES[name].fit(self.learnt, self.seed)
        forecasts = {part: Forecast(y, fitted.failure_probability(x)) for part, (x, y) in self.sides.items()}
        return FittedLine(forecasts, fitted.history, perf_counter() - began)


def judge_recipes(
    split: Split,
    columns: tuple[str, ...],
    work: FitRecipe,
    recipes: Sequence[str],
    *,
    rules: tuple[list[TableOneRow], dict[str, Forecast]],
    progress: Progress | None,
    engine: Engine,
) -> TableOne:
    """Fit and judge every recipe, in the order of `recipes`; `rules` begin the table."""
    rows, forecasts = list(rules[0]), dict(rules[1])
    histories: dict[str, pl.DataFrame] = {}
    seconds: dict[str, float] = {}

    def report_progress(share: float, title: str) -> None:
        if progress is not None:
            progress(title, round(share * len(recipes)), len(recipes))

    lines = engine.map(work, recipes, name=lambda name: RECIPES[name].title, progress=report_progress)
    for name, line in zip(recipes, lines, strict=True):
        for part, forecast in line.forecasts.items():
            rows.append(row_of(name, RECIPES[name].title, part, forecast))
        forecasts[name] = line.forecasts["test"]
        if line.history is not None:
            histories[name] = line.history
        seconds[name] = line.seconds
    report_progress(1.0, "")
    return TableOne(split, columns, tuple(rows), forecasts, histories, seconds)


def seed_columns(jobs: pl.DataFrame) -> pl.DataFrame:
    """The columns the seed feeds its models with, one row per job, null where the log is silent; times of day are UTC.

    `run_time_s` and `cpu_time_s` (elapsed × CPUs) are known only when the job has ended.
    """
    submit = pl.col("submit_time")
    cpu = pl.coalesce("cpus", "req_cpus")
    return jobs.select(
        pl.coalesce("user", pl.col("uid").cast(pl.String)).rank("dense").alias("user_id"),
        pl.coalesce("group", pl.col("gid").cast(pl.String), "account").rank("dense").alias("gid"),
        pl.col("elapsed_s").alias("run_time_s"),
        (pl.col("start_time") - submit).dt.total_seconds().alias("wait_time_s"),
        cpu.alias("cpu"),
        pl.coalesce("mem_bytes", "req_mem_bytes").alias("mem_bytes"),
        pl.coalesce("nodes", "req_nodes").alias("node"),
        (pl.col("elapsed_s") * cpu).alias("cpu_time_s"),
        submit.dt.month().alias("submit_month"),
        submit.dt.weekday().alias("submit_day_of_week"),
        submit.dt.week().alias("submit_week_of_year"),
        submit.dt.quarter().alias("submit_quarter"),
        submit.dt.hour().alias("submit_hour"),
    )


def _judged(jobs: pl.DataFrame, failure_states: Iterable[str], dropped_states: Iterable[str], shortest_s: float) -> pl.DataFrame:
    """The jobs that count, in the order of submission, with whether they failed."""
    ran = pl.col("elapsed_s").fill_null(0.0) >= shortest_s
    with_outcome = jobs.with_columns(
        failed(failure_states, dropped_states),
        rule_run_limit=(pl.col("elapsed_s") >= pl.col("time_limit_s")).fill_null(False),
        rule_near_limit=reached_limit().fill_null(False),
    )
    return with_outcome.filter(pl.col("failed").is_not_null() & ran).sort("submit_time", "job_id", maintain_order=True)


def _parts(judged: pl.DataFrame, split: Split, seed: int) -> tuple[Positions, Positions, Positions]:
    """Positions of training, validation and test rows; the validation rows of a time split are the last of its training rows."""
    if split == "random":
        order = np.random.default_rng(seed).permutation(judged.height)
        before, test = np.split(order, [round(TRAIN_SHARE * judged.height)])
    else:
        cut = judged["submit_time"].quantile(TRAIN_SHARE, "nearest")
        late = (judged["submit_time"] >= cut).to_numpy()
        over = (judged["end_time"] < cut).fill_null(False).to_numpy()
        before, test = np.flatnonzero(~late & over), np.flatnonzero(late)
    train, valid = np.split(before, [round((1.0 - VALID_SHARE) * before.size)])
    return train, valid, test


def _end_profiles(judged: pl.DataFrame, train: Positions, seed: int) -> pl.Series:
    """The profile of every job by size, run time and wait; what is fitted or filled in comes from the training rows alone."""
    settings = PreparationSettings(keep_never_started=True)  # judged jobs all ran: no row may go
    learnt = prepare(judged[train], settings)
    profiles = JobProfiles(END).fit(learnt.frame, seed)
    return profiles.assign(prepare(judged, settings, medians=learnt.medians).frame)


def _matrix(
    judged: pl.DataFrame, train: Positions, with_limit: bool, profile: pl.Series | None
) -> tuple[Matrix, tuple[str, ...]]:
    """The seed's columns as numbers, without those that no training row has."""
    columns = seed_columns(judged)
    if profile is not None:
        columns = columns.with_columns(profile)
    if with_limit:
        columns = columns.with_columns(judged["time_limit_s"])
    known = [name for name in columns.columns if columns[name][train].null_count() < train.size]
    return columns.select(pl.col(known).cast(pl.Float32)).to_numpy(), tuple(known)


def _rule_rows(judged: pl.DataFrame, y: Truth, parts: dict[str, Positions]) -> tuple[list[TableOneRow], dict[str, Forecast]]:
    """The table begun with the rules of one line: who ran into the limit has failed."""
    rows: list[TableOneRow] = []
    forecasts: dict[str, Forecast] = {}
    for name, title in RULES.items():
        flags = judged[name].to_numpy().astype(np.float64)
        for part, chosen in parts.items():
            forecasts[name] = Forecast(y[chosen], flags[chosen])  # the test part stays
            rows.append(row_of(name, title, part, forecasts[name]))
    return rows, forecasts


def row_of(model: str, title: str, part: str, forecast: Forecast) -> TableOneRow:
    """One line of the table out of the forecasts of one part."""
    truth, probability = forecast
    flagged = probability >= THRESHOLD
    of_failed = ClassScores(*scores_at(truth, probability, THRESHOLD))
    of_completed = ClassScores(*scores_at(~truth, (~flagged).astype(np.float64), THRESHOLD))
    accuracy = float(np.mean(flagged == truth))
    area = roc_auc(truth, probability)
    return TableOneRow(model, title, part, of_failed, of_completed, accuracy, area, int(truth.size))


def _check_names(recipes: Sequence[str], split: str) -> None:
    for name in recipes:
        if name not in RECIPES:
            near = get_close_matches(name, RECIPES, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"Unknown recipe '{name}'. Known: {', '.join(RECIPES)}.", hint=hint)
    if split not in ("random", "time"):
        raise UsageError(f"Unknown split '{split}'. Known: random, time.")


def _check_classes(y: Truth, before: Positions, test: Positions) -> None:
    for part, chosen in (("training", before), ("test", test)):
        bad = int(y[chosen].sum())
        if bad == 0 or bad == chosen.size:
            raise UsageError(
                f"The {part} part of the log has {chosen.size} jobs, of which {bad} failed; the table needs both outcomes.",
                hint="Count other states as failures (--failed), drop fewer (--drop), or take a longer log.",
            )


OURS: Final = "stormpetrel"
MOST_ROWS: Final = 60_000  # of training, the most recent ones: SMOTE and forests on 190 columns take minutes beyond


def honest_table(
    labelled: LabelledJobs,
    moment: Moment,
    settings: TrainingSettings,
    *,
    recipes: Sequence[str] = tuple(RECIPES),
    progress: Progress | None = None,
    engine: Engine = ONE_PROCESS,
) -> TableOne:
    """Fit our model and every recipe on what had ended by the cut, and judge them at probability .5 as the seed does."""
    (split,) = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.reached(moment)) or (None,)
    if split is None:
        raise NotEnoughJobsError("No job of this log can be judged.", hint="Use a longer log.")
    features = labelled.features[moment]
    before = np.flatnonzero(split.train)[-MOST_ROWS:]
    test = np.flatnonzero(split.test)
    begun = perf_counter()
    model = fit_at(labelled, moment, split.train, settings)
    rows, forecasts = [], {}
    for part, chosen in (("train", before), ("test", test)):
        forecasts[OURS] = Forecast(labelled.failed[chosen], model.risk(features.rows(chosen)))
        rows.append(row_of(OURS, "Stormpetrel", part, forecasts[OURS]))
    seconds = {OURS: perf_counter() - begun}
    known = ~np.isnan(features.values[before]).all(axis=0)
    x, y = features.values[:, known], labelled.failed
    train, valid = np.split(before, [round((1.0 - VALID_SHARE) * before.size)])
    work = FitRecipe(
        TrainingRows(x[train], y[train], x[valid], y[valid]),
        {"train": (x[before], y[before]), "test": (x[test], y[test])},
        settings.seed,
    )
    names = tuple(np.array(features.names)[known])
    table = judge_recipes("time", names, work, recipes, rules=(rows, forecasts), progress=progress, engine=engine)
    table.seconds.update(seconds)
    return table

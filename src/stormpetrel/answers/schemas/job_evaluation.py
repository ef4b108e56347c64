"""How good forecasts of a log's jobs would have been, as `stormpetrel jobs evaluate --json` prints it.

How good forecasts of what jobs need and how long they wait would have been (`jobs evaluate --needs`, `--wait`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question
from stormpetrel.answers.schemas.history import Optimism


class EvaluationQuestion(Question):
    """Which forecasts are judged, and how the log is cut."""

    moments: list[Literal["submit", "start", "2min"]] = Field(default=["submit", "start", "2min"], min_length=1)
    protocol: Literal["time", "rolling"] = Field(default="time", description="one cut at 80 %, or five")
    table_one: bool = Field(default=False, description="also Table I with what is known at the first moment")
    refit: bool = Field(default=False, description="also refit every week, against one fit")
    recalibrate: bool = Field(default=False, description="also correct the risks online, by jobs that had ended before")
    missed_cost: float | None = Field(default=None, ge=0, description="null: as in the settings (jobs.missed_cost)")
    flags_per_day: float | None = Field(default=None, ge=0, description="null: as in the settings (jobs.flags_per_day)")
    seed: int = 0


class ForecastFigures(Answer):
    """How good one forecaster was; null where the jobs cannot tell, for instance with one outcome only."""

    roc_auc: float | None
    pr_auc: float | None
    f1: float | None
    precision: float | None
    recall: float | None
    brier: float | None
    ece: float | None
    threshold: float | None
    n_train: int
    n_test: int
    failed_share: float | None


class Calibration(Answer):
    """Whether a risk can be taken at its word."""

    brier_skill: float | None = Field(description="against the user's rate so far")
    reliability_slope: float | None
    unknown_share: float | None = Field(description="of jobs whose user or application is new")


class OverSplits(Answer):
    """A figure over splits."""

    mean: float
    std: float
    n: int


class FlagsPerDay(Answer):
    """The working point by a budget of flags: what was promised, and what was done with it."""

    promised: float = Field(description="flags a day: the site's, or what the costs made of the training part's last jobs")
    realised: float
    f1: float
    precision: float
    recall: float


class Recalibrated(Answer):
    """The model's risks corrected online; F1, precision and recall by the costs, or by the best expected F1 without them."""

    f1: float
    precision: float
    recall: float
    ece: float | None
    flags_per_day: FlagsPerDay


class MomentFigures(Answer):
    """The forecasts of one moment."""

    model: ForecastFigures
    baselines: dict[str, ForecastFigures]
    outcomes: dict[str, ForecastFigures] = Field(description="of each way to fail")
    calibration: Calibration
    spread: dict[str, OverSplits]
    same_jobs: dict[str, ForecastFigures] = Field(description="the earlier moments on exactly these jobs")
    recalibrated: Recalibrated | None = Field(default=None, description="null unless asked for")


class EvaluationSplit(Answer):
    """How the log was cut; lists have one entry per cut."""

    protocol: str
    cuts: list[str] = Field(description="ISO 8601")
    n_train: list[int]
    n_test: list[int]
    purged: list[int] = Field(description="jobs that end after the cut, and so taught nothing")
    jobs: int
    usable: int
    never_started: int
    failed_share: float | None


class TableOneLine(Answer):
    """One line of Table I: figures of both classes at a probability of .5."""

    split: str
    model: str
    title: str
    part: str
    precision_failed: float
    precision_completed: float
    recall_failed: float
    recall_completed: float
    f1_failed: float
    f1_completed: float
    accuracy: float
    roc_auc: float | None
    jobs: int | None


class WeekFigures(Answer):
    """One fit and weekly refits, in one week; `begin` of the last line is `all`."""

    begin: str
    jobs: int
    failed: int
    roc_once: float | None
    pr_once: float | None
    roc_weekly: float | None
    pr_weekly: float | None


class JobEvaluation(Answer):
    """The forecasts of each moment next to the trivial rules, with honest time."""

    split: EvaluationSplit
    at: dict[str, MomentFigures]
    table1: list[TableOneLine] = Field(description="empty unless asked for")
    seconds: dict[str, float]
    notes: list[str]
    optimistic: Optimism | None
    refit: list[WeekFigures] | None = Field(default=None, description="null unless asked for")


class PublishedSplit(Answer):
    """How the log was cut, by the published protocol."""

    protocol: Literal["seed"]
    splits: list[str]
    shortest_s: float
    jobs: int


class PublishedEvaluation(Answer):
    """Table I by the published protocol: columns that are known only at the end, so that it is no forecast."""

    split: PublishedSplit
    at: dict[str, MomentFigures] = Field(description="empty: nothing is forecast")
    table1: list[TableOneLine]
    seconds: dict[str, float]
    notes: list[str]
    optimistic: Optimism | None


class FirstPeriod(Answer):
    """The jobs of the first days after a start: means over starting days, by forecaster."""

    days: int
    starts: int = Field(description="starting days whose jobs had both outcomes")
    jobs: int = Field(description="over all starting days")
    roc_auc: dict[str, float] = Field(description="`user_rate` so far, `prior`, `blend` (the site's model begun with it), `own`")
    log_loss: dict[str, float] = Field(description="the same; in nats")


class FirstDaysOfLog(Answer):
    """What forecasts of a log's first days would have been worth, had it begun on each of several days."""

    log: str
    jobs: int
    failures: int
    periods: list[FirstPeriod]


class FirstDaysEvaluation(Answer):
    """The prior on logs that it has not seen."""

    logs: list[FirstDaysOfLog]
    prior: str = Field(description="which prior: the shipped one, or one of the other logs named")
    notes: list[str]


class NeedsQuestion(Question):
    """Which resource is judged, and from where on."""

    resource: Literal["memory", "time", "cpus", "gpus", "gpu_memory"]
    protocol: Literal["time", "rolling"] = Field(default="time", description="the last fifth of the log, or from 60 % on")
    seed: int = 0


class WaitQuestion(Question):
    """From where on waits are judged."""

    protocol: Literal["time", "rolling"] = Field(default="time", description="the last fifth of the log, or from 60 % on")
    seed: int = 0


class AllocationFigures(Answer):
    """What amounts wasted and how often they were too little; null where nothing can be compared."""

    under_share: float | None = Field(description="share of jobs given less than they used")
    waste_ratio: float | None = Field(
        description="wasted over used amounts, failed attempts counted whole and repeated with double"
    )
    n: int


class ModelAllocation(AllocationFigures):
    """The same of the model, with the share of jobs that used no more than each quantile."""

    coverage: dict[str, float]


class NeedsFigures(Answer):
    """The model beside the baselines on one resource."""

    model: ModelAllocation
    baselines: dict[str, AllocationFigures]


class NeedsEvaluation(Answer):
    """How good allocations of a log's jobs would have been."""

    needs: dict[str, NeedsFigures]
    seconds: float
    notes: list[str]


class WaitFigures(Answer):
    """How good a p50 and a p90 of the wait were: pinball loss in seconds, and the share of jobs that waited no longer."""

    pinball_50: float
    pinball_90: float
    coverage_50: float
    coverage_90: float
    below_50: float = Field(
        description="the share that waited less than the p50: lower than `coverage_50` where many do not wait"
    )
    below_90: float
    n: int


class ModelAndBaselines(Answer):
    """The model of waits beside its baselines."""

    model: WaitFigures
    baselines: dict[str, WaitFigures]


class WaitEvaluation(Answer):
    """How good forecasts of the wait of a log's jobs would have been."""

    wait: ModelAndBaselines
    seconds: float

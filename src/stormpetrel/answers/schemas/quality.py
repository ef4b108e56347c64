"""How good the forecasts have been."""

from __future__ import annotations

from datetime import date, datetime
from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question

_AS_OF: Final = "the state of the site that this is of"


class QualityQuestion(Question):
    """Which quality over time."""

    moment: Literal["submit", "start", "2min"] | None = Field(
        default=None, description="of forecasts at this moment; the latest that has a model if left out"
    )
    version: int | None = Field(default=None, ge=0, le=2**31 - 1, description="of this version of the model; all if left out")
    every: Literal["1d", "1w"] = Field(default="1d", description="per day or week")


class QualityLine(Answer):
    """How good some settled predictions were; null where they cannot tell."""

    moment: str
    model_version: int | None = Field(description="null: all versions together")
    n: int = Field(description="predictions whose jobs have ended")
    failed: int = Field(description="of these, how many failed")
    failed_share: float | None
    pr_auc: float | None = Field(description="area under the precision-recall curve")
    roc_auc: float | None
    brier: float | None
    ece: float | None = Field(description="expected calibration error")
    slope: float | None = Field(description="of the reliability line; 1 is perfect")
    intercept: float | None
    precision: float | None = Field(description="of the flags as they were shown")
    recall: float | None
    f1: float | None
    flagged_share: float | None
    late_share: float | None
    base_pr_auc: float | None = Field(description="what the share of failed jobs alone would reach")
    base_brier: float | None
    last_pr_auc: float | None
    last_precision: float | None
    last_recall: float | None
    last_f1: float | None = Field(description="what 'as this user's last job' would reach")
    first: datetime | None
    last: datetime | None


class QualityPoint(Answer):
    """The same of one period."""

    time: date
    n: int = Field(description="predictions whose jobs have ended")
    failed_share: float | None
    roc_auc: float | None
    pr_auc: float | None = Field(description="area under the precision-recall curve")
    precision: float | None = Field(description="of the flags as they were shown")
    recall: float | None
    ece: float | None = Field(description="expected calibration error")
    brier: float | None


class Optimism(Answer):
    """Why figures that are made of the site's history look better than they are."""

    rule: str = Field(description="the rule of data quality that those jobs meet", examples=["end_without_wait"])
    jobs: int = Field(description="jobs whose end is only the earliest it can have been")
    ended: int = Field(description="jobs that have ended")
    why: str = Field(description="the same in words")


class WorkingPointLine(Answer):
    """From which risk on jobs are flagged at one moment, by cost and by flags a day, and how well risks hold."""

    moment: str
    model_version: int
    as_of: str = Field(description="ISO 8601, by the site's clock")
    settled: int = Field(description="predictions of this model whose jobs have ended")
    slope: float = Field(description="of the correction, a line in log-odds")
    level: float
    threshold: float = Field(description="the risk from which on jobs are flagged now")
    by_cost: float = Field(description="what the costs alone say (jobs.missed_cost)")
    by_budget: float | None = Field(description="what flags a day alone say (jobs.flags_per_day); null without a limit")
    corrected: float = Field(description="how often a risk at the threshold comes true lately")
    ece: float = Field(description="calibration error of the risks as they were shown")
    ece_corrected: float = Field(description="of the same, each corrected by what had settled before it")
    flags_last_day: int
    flags_per_day: float = Field(description="0: no limit")
    words: str = Field(description="all of it in words")


class QualityAnswer(Answer):
    """How good the forecasts have been, out of live predictions whose jobs have ended. The figures are of everybody's jobs."""

    as_of: datetime = Field(description=_AS_OF)
    since: datetime = Field(description="predictions from then on")
    settled: int = Field(description="predictions whose jobs have ended")
    waiting: int = Field(description="predictions whose jobs have not ended")
    never_started: int = Field(description="predictions whose jobs were over before they ran: never settled")
    quality: list[QualityLine] = Field(description="by moment and model version")
    moment: str
    over_time: list[QualityPoint] = Field(description="of one moment")
    optimistic: Optimism | None = Field(description="where ends of past jobs are too early; null where all are known")
    working_points: list[WorkingPointLine] = Field(default=[], description="of the moments with enough settled predictions")

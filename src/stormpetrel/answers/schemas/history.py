"""Failure rates over time.

How good the forecasts have been.

What failed jobs held, and what cancelling early would have saved.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question

Rate = Annotated[float, Field(ge=0, le=1)]
_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class TrendsQuestion(Question):
    """Which trends."""

    by: Literal["user", "account", "application", "node", "profile", "partition"] = Field(
        default="user", description="whose failure rates"
    )
    every: Literal["1d", "1w", "1mo", "1q", "1y"] = Field(default="1w", description="per day, week, month, quarter or year")
    group: str | None = Field(default=None, min_length=1, max_length=256, description="only this one", examples=["ada"])
    top: int = Field(default=10, ge=1, le=1000, description="so many groups, those with the most failures")
    last: int | None = Field(default=None, ge=1, le=520, description="over so many periods; all if left out")


class TrendPoint(Answer):
    """The failure rate of one group in one period, with its 95 % interval."""

    by: str
    every: str
    group: str = Field(examples=["ada"])
    period: date = Field(description="its first day; of a week the Monday")
    jobs: int
    failed: int
    rate: Rate
    low: float
    high: float


class Mover(Answer):
    """A group whose failure rate in the last period is not what it was before."""

    by: str
    group: str
    period: date
    jobs: int
    failed: int
    rate: Rate
    earlier_jobs: int
    earlier_failed: int
    earlier_rate: Rate
    p_value: Rate = Field(description="how likely such a change is by chance (Fisher's exact test)")
    sentence: str = Field(examples=["user ada: 12 of 14 jobs failed in the week of 9 November; 8 % before"])


class Trends(Answer):
    """Failure rates over time."""

    by: str
    every: str
    group: str | None
    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    jobs: int = Field(description="ended jobs behind it")
    failed: int
    never_started: int = Field(description="jobs that were over before they ran: in no rate")
    trend: list[TrendPoint]
    movers: list[Mover]


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


class WasteQuestion(Question):
    """Which waste."""

    by: Literal["user", "account", "application", "partition", "profile", "outcome", "week"] = Field(
        default="user", description="by what"
    )
    weeks: int | None = Field(
        default=None, ge=1, le=520, description="of jobs that ended in the last so many weeks; all if left out"
    )


class EnergyBasis(Answer):
    """How energy is known: measured by Slurm, or estimated by what jobs held and the settings of `[energy]`."""

    known: Literal["measured", "partly estimated", "estimated"]
    measured_share: float | None = Field(description="part of the energy that was measured; null where none was taken")
    watts_per_cpu: float
    watts_per_gpu: float
    watts_per_gpu_type: list[str] = Field(examples=[["a100=400"]])
    watts_per_gib: float
    shared_above: float = Field(
        description="a measurement above so many times the estimate is of shared nodes: the estimate counts; 0: never"
    )
    pue: float = Field(description="by which every kWh here is multiplied, the measured ones too")
    grams_co2_per_kwh: float | None = Field(description="null: the site does not say, and no CO2 is told")
    words: str = Field(description="all of it in words")


class EnergySums(Answer):
    """Energy of some jobs; sums of whole joules at the nodes agree with the log exactly."""

    joules: int = Field(default=0, description="what its jobs took at the nodes, measured or estimated")
    lost_joules: int = Field(default=0, description="what its failed jobs took")
    measured_joules: int = Field(default=0, description="the measured part of `joules`")
    lost_measured_joules: int = Field(default=0, description="the measured part of `lost_joules`")
    kwh: float | None = Field(default=None, description="`joules` as kWh, times the PUE")
    lost_kwh: float | None = Field(default=None, description="`lost_joules` as kWh, times the PUE")
    co2_kg: float | None = Field(default=None, description="of `kwh`; null where the site does not say what a kWh is")
    lost_co2_kg: float | None = Field(default=None, description="of `lost_kwh`")
    measured_share: float | None = Field(default=None, description="the measured part of its energy; null where it took none")


class WasteGroup(EnergySums):
    """What the jobs of one group held, and lost."""

    group: str = Field(examples=["ada"])
    jobs: int
    failed_jobs: int
    core_seconds: int = Field(description="what its jobs held")
    lost_core_seconds: int = Field(description="what its failed jobs held")
    share: Rate = Field(description="its part of everything that was lost")


class WasteTotal(EnergySums):
    """What all counted jobs sum up to; the groups sum up to exactly this."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int


class Waste(Answer):
    """What failed jobs held, the largest loss first."""

    by: str
    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    first: date | None = Field(description="the first day on which a counted job ended")
    last: date | None
    groups: list[WasteGroup]
    total: WasteTotal
    uncounted: dict[str, int] = Field(description="jobs that are not in it, by why", examples=[{"not ended": 12}])
    words: dict[str, str] = Field(default={}, description="what each group is, where its name does not tell it: profiles")
    energy: EnergyBasis | None = Field(default=None, description="how the energy is known")


class PolicyQuestion(Question):
    """How the policy is weighed."""

    price: float = Field(
        default=1.0, ge=0, le=1000, description="what a core-second of a job that is cancelled wrongly costs, against a saved one"
    )
    threshold: float | None = Field(default=None, ge=0, le=1, description="also say what this threshold would have done")


class PolicyPoint(Answer):
    """What one threshold would have done."""

    tau: Rate = Field(description="the threshold: a job with a higher risk is cancelled")
    cancelled: int
    failed_cancelled: int = Field(description="of these, how many would have failed anyway")
    wrong_kills: int = Field(description="of these, how many would have completed")
    saved_core_seconds: int
    wrong_core_seconds: int
    redo_core_seconds: int
    net_core_seconds: float = Field(description="saved − run again − price × wrongly cancelled")
    wrong_share: float | None = Field(description="part of all jobs that would have completed which it stops")


class CancelPolicy(Answer):
    """What cancelling two minutes in would have done, replayed on what was forecast then."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    jobs: int = Field(description="jobs that still ran after two minutes, had a forecast and have ended")
    failed_jobs: int
    ended_before: int = Field(description="jobs that had ended by then")
    best: PolicyPoint = Field(description="the threshold with the highest net; judge it on later jobs")
    at: PolicyPoint | None = Field(description="the threshold that was asked for")
    points: list[PolicyPoint]
    wrong_kill_price: float | None = Field(
        default=None, description="what a wrongly cancelled core-second costs, against a saved one"
    )
    cancel_at_s: int = Field(default=120, description="seconds after its start at which a job is cancelled")

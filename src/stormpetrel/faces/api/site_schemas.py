"""The site as JSON: trends, waste, the cancel policy, profiles, quality, models, opinions and views."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Literal

import polars as pl
from pydantic import Field, JsonValue, StringConstraints

from stormpetrel.faces.api.asking import Asked, Given, Told
from stormpetrel.faces.api.frame_schemas import row_model
from stormpetrel.faces.api.job_schemas import REF_EXAMPLE, Ref
from stormpetrel.lifecycle.running_quality import QUALITY_SCHEMA

Rate = Annotated[float, Field(ge=0, le=1)]
_FIGURES: Final = ("failed_share", "roc_auc", "pr_auc", "precision", "recall", "ece", "brier")
OVER_TIME_SCHEMA: Final = {"time": pl.Date(), "n": pl.Int64(), **dict.fromkeys(_FIGURES, pl.Float64())}
_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class TrendsAsked(Asked):
    """Which trends."""

    by: Literal["user", "account", "application", "node", "profile", "partition"] = Field(
        "user", description="whose failure rates"
    )
    every: Literal["1d", "1w", "1mo", "1q", "1y"] = Field("1w", description="per day, week, month, quarter or year")
    group: str | None = Field(None, min_length=1, max_length=256, description="only this one", examples=["ada"])
    top: int = Field(10, ge=1, le=1000, description="so many groups, those with the most failures")
    last: int | None = Field(None, ge=1, le=520, description="over so many periods; all if left out")


class TrendPoint(Told):
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


class Mover(Told):
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


class Trends(Told):
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


class WasteAsked(Asked):
    """Which waste."""

    by: Literal["user", "account", "application", "partition", "profile", "outcome", "week"] = Field(
        "user", description="by what"
    )
    weeks: int | None = Field(None, ge=1, le=520, description="of jobs that ended in the last so many weeks; all if left out")


class WasteGroup(Told):
    """What the jobs of one group held, and lost."""

    group: str = Field(examples=["ada"])
    jobs: int
    failed_jobs: int
    core_seconds: int = Field(description="what its jobs held")
    lost_core_seconds: int = Field(description="what its failed jobs held")
    share: Rate = Field(description="its part of everything that was lost")


class WasteTotal(Told):
    """What all counted jobs sum up to; the groups sum up to exactly this."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int


class Waste(Told):
    """What failed jobs held, the largest loss first."""

    by: str
    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    first: date | None = Field(description="the first day on which a counted job ended")
    last: date | None
    groups: list[WasteGroup]
    total: WasteTotal
    uncounted: dict[str, int] = Field(description="jobs that are not in it, by why", examples=[{"not ended": 12}])


class PolicyAsked(Asked):
    """How the policy is weighed."""

    price: float = Field(
        1.0, ge=0, le=1000, description="what a core-second of a job that is cancelled wrongly costs, against a saved one"
    )
    threshold: float | None = Field(None, ge=0, le=1, description="also say what this threshold would have done")


class PolicyPoint(Told):
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


class CancelPolicy(Told):
    """What cancelling two minutes in would have done, replayed on what was forecast then."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    jobs: int = Field(description="jobs that still ran after two minutes, had a forecast and have ended")
    failed_jobs: int
    ended_before: int = Field(description="jobs that had ended by then")
    best: PolicyPoint = Field(description="the threshold with the highest net; judge it on later jobs")
    at: PolicyPoint | None = Field(description="the threshold that was asked for")
    points: list[PolicyPoint]


class Profile(Told):
    """One kind of jobs."""

    profile: int
    words: str = Field(
        description="what it is like", examples=["small, short jobs (1–4 CPUs, typically 12 min) that mostly complete"]
    )
    jobs: int = Field(description="how many of the jobs that you may see")
    cpu_mean: float | None
    mem_gb_mean: float | None
    run_time_s_mean: float | None
    wait_time_s_mean: float | None
    duration: dict[str, int] = Field(description="jobs by how long they ran")
    activity: dict[str, int] = Field(description="users by how much they run")
    status: dict[str, int] = Field(description="jobs by how they ended")
    types: dict[str, int] = Field(description="jobs by what they ask for")


class Profiles(Told):
    """The kinds of jobs that the site runs."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    version: int | None = Field(description="version of the model `jobs-profiles`; null where there is none yet")
    why: str = Field(description="why so many")
    jobs: int
    never_started: int = Field(description="jobs that are not among these: they were over before they ran")
    profiles: list[Profile]


class QualityAsked(Asked):
    """Which quality over time."""

    moment: Literal["submit", "start", "2min"] = Field("2min", description="of forecasts at this moment")
    version: int | None = Field(None, ge=0, le=2**31 - 1, description="of this version of the model; all if left out")
    every: Literal["1d", "1w"] = Field("1d", description="per day or week")


_QUALITY: Final = {
    "model_version": "null: all versions together",
    "n": "predictions whose jobs have ended",
    "failed": "of these, how many failed",
    "pr_auc": "area under the precision-recall curve",
    "ece": "expected calibration error",
    "slope": "of the reliability line; 1 is perfect",
    "precision": "of the flags as they were shown",
    "base_pr_auc": "what the share of failed jobs alone would reach",
    "last_f1": "what 'as this user's last job' would reach",
}
QualityLine: Final = row_model(
    "QualityLine",
    QUALITY_SCHEMA,
    doc="How good some settled predictions were; null where they cannot tell.",
    meaning=_QUALITY,
    always=("moment", "n", "failed"),
)
QualityPoint: Final = row_model(
    "QualityPoint", OVER_TIME_SCHEMA, doc="The same of one period.", meaning=_QUALITY, always=("time", "n")
)


class OptimisticTold(Told):
    """Why figures that are made of the site's history look better than they are."""

    rule: str = Field(description="the rule of data quality that those jobs meet", examples=["end_without_wait"])
    jobs: int = Field(description="jobs whose end is only the earliest it can have been")
    ended: int = Field(description="jobs that have ended")
    why: str = Field(description="the same in words")


class QualityTold(Told):
    """How good the forecasts have been, out of live predictions whose jobs have ended. The figures are of everybody's jobs."""

    as_of: datetime = Field(description=_AS_OF)
    since: datetime = Field(description="predictions from then on")
    settled: int = Field(description="predictions whose jobs have ended")
    waiting: int = Field(description="predictions whose jobs have not ended")
    never_started: int = Field(description="predictions whose jobs were over before they ran: never settled")
    quality: list[QualityLine] = Field(description="by moment and model version")  # type: ignore[valid-type]
    moment: str
    over_time: list[QualityPoint] = Field(description="of one moment")  # type: ignore[valid-type]
    optimistic: OptimisticTold | None = Field(description="where ends of past jobs are too early; null where all are known")


class Model(Told):
    """One version of one model."""

    name: str = Field(examples=["jobs-submit"])
    version: int
    current: bool
    about: dict[str, JsonValue] = Field(description="its figures, and what it was trained on")


class Training(Told):
    """Models that were trained together and are used together."""

    name: str = Field(examples=["jobs-7"])
    current: bool = Field(description="whether these are the models in use")
    created: datetime
    trained_until: datetime = Field(description="up to when the jobs were known that it learnt from")
    why: str = Field(description="why it was put in use, or why not")
    previous: str | None = Field(description="what was in use before it")
    versions: dict[str, int] = Field(description="version of the model of each moment", examples=[{"submit": 7, "start": 7}])
    jobs: int | None = Field(description="how many jobs it learnt from")
    code_version: str = Field(description="of Stormpetrel, when it was trained")


class TrainingInFull(Training):
    """A training with its models."""

    models: list[Model]


class Trainings(Told):
    """Every training that is kept, newest first."""

    trainings: list[Training]


class OpinionGiven(Given):
    """Whether a piece of advice was useful."""

    job: Ref = Field(description="the job's `ref`", examples=[REF_EXAMPLE])
    advice: str = Field(
        min_length=1,
        max_length=2000,
        pattern=r"\S",
        description="the sentence of the advice",
        examples=["Ask for 4 GB of memory next time."],
    )
    useful: bool


class OpinionKept(Told):
    """The opinion as it was kept; a later one on the same advice replaces it."""

    job: str
    advice: str
    useful: bool


class ViewGiven(Given):
    """Where a saved view leads."""

    # A path of our own pages in printable ASCII; `//host` and backslashes lead elsewhere.
    link: Annotated[str, StringConstraints(max_length=2000, pattern=r"^/([!-.0-\[\]-~][!-\[\]-~]*)?$")] = Field(
        description="a path of the dashboard with its query", examples=["/jobs?user=ada"]
    )


class View(Told):
    """A link that you gave a name."""

    name: str
    link: str


class Views(Told):
    """Your saved views, by name."""

    views: list[View]


class HealthLine(Told):
    """One thing that was looked at."""

    part: str = Field(examples=["Watching"])
    name: str = Field(examples=["Forecasts"])
    level: Literal["ok", "warning", "problem"]
    words: str
    advice: str = Field(description="what to do; empty where nothing needs doing")


class HealthSource(Told):
    """One of the watch's own reads, as it is now."""

    name: str = Field(examples=["sacct"])
    watcher: Literal["jobs", "events"]
    last_good_look: datetime | None = Field(description="when it was last read well")
    lag_s: float | None = Field(description="seconds since then")
    records: int = Field(description="read by that look")
    problem: str = Field(description="empty where nothing is wrong")


class Health(Told):
    """How the site is; administrators see more."""

    worst: Literal["ok", "warning", "problem"]
    as_of: datetime
    read_only: bool = Field(description="whether the site can only be read here: nothing that is sent is kept")
    lines: list[HealthLine]
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")
    versions: dict[str, str]


class Version(Told):
    """What answers here."""

    version: str = Field(description="of Stormpetrel", examples=["0.1.0"])
    api: str = Field(description="of this API", examples=["v1"])

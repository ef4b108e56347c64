"""One job in full, as JSON: `answers.job_details` word for word."""

from __future__ import annotations

from datetime import datetime
from math import nan
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from stormpetrel.answers.schemas.base import Answer
from stormpetrel.answers.schemas.jobs import REF_EXAMPLE, JobRow
from stormpetrel.answers.schemas.predictions import Advice, NeedOutlook, Verdict, WaitOutlook
from stormpetrel.records.pending_reasons import WaitKind

Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]  # JSON has null for what is none
_WAITS = [f"`{kind}`" for kind in WaitKind if kind not in (WaitKind.NEVER, WaitKind.HELD)]


class StoredReason(Answer):
    """One reason for a risk, as it was given then."""

    feature: str = Field(examples=["user.failed_rate_12h"])
    words: str = Field(examples=["failure rate of this user's jobs, last 12 hours: 62 %"])
    contribution: Number = Field(description="in log-odds; above zero speaks for a failure", examples=[0.71])
    points: Number = Field(
        description="what it adds to the risk, in points (hundredths): all reasons together lead from `base_risk` to `risk`",
        examples=[12.4],
    )


class StoredPrediction(Answer):
    """The prediction for a job at one of its moments; it is never changed afterwards."""

    moment: str = Field(description="`submit`, `start` or `2min`")
    moment_time: datetime = Field(description="when that was")
    as_of: datetime = Field(description="up to when the history was known")
    predicted_at: datetime = Field(description="when it could be read: the time of its commit")
    late: bool = Field(description="readable only more than ten seconds after the moment")
    model_version: int
    risk: float
    threshold: float
    flagged: bool
    known: bool
    likeliest: str | None = Field(description="if it fails, the likeliest way", examples=["TIMEOUT"])
    likeliest_probability: float | None = Field(description="the probability of failing in that way")
    base: float | None = Field(description="log-odds before anything is known about the job")
    base_risk: float | None = Field(description="the same as a risk: that of the average job")
    reasons: list[StoredReason] = Field(description="the strongest, strongest first")


class ProfileFigure(Answer):
    """A figure of the job next to the quartiles of jobs with the same profile; null where nobody knows it."""

    value: float | None
    low: float | None
    median: float | None
    high: float | None


class ProfileComparison(Answer):
    """What kind of job it is, and where its figures stand among jobs of that kind."""

    profile: int
    words: str
    jobs: int = Field(description="how many jobs it is compared with")
    failed_share: float | None
    figures: dict[str, ProfileFigure]


class UserHistory(Answer):
    """What its user had submitted before."""

    user: str | None
    jobs: int
    ended: int
    failed: int
    never_started: int = Field(description="of these, how many were over before they ran: neither ended nor failed")
    recent: list[JobRow] = Field(description="the latest first")


class Change(Answer):
    """What was changed in the request from one try to the next."""

    column: str
    before: JsonValue
    after: JsonValue


class Try(Answer):
    """Another run of the same work; changes and risks are told from the earlier of the two jobs to the later one."""

    ref: str
    job: str
    state: str | None
    failed: bool | None
    submit_time: datetime
    changes: list[Change]
    risk_before: float | None
    risk_after: float | None


class Waiting(Answer):
    """What the scheduler says of a job that has not started."""

    kind: str = Field(
        description="`never` (it cannot run as it stands), `held`, or what it waits for: " + ", ".join(_WAITS), examples=["never"]
    )
    reason: str = Field(description="the scheduler's own word", examples=["PartitionTimeLimit"])
    never_runs: bool
    sentence: str = Field(examples=["Cannot run as it stands: it asks for 3 days; the limit of partition short is 1 day."])
    change: str | None = Field(description="what to do", examples=["Ask for --time=1-00:00:00."])
    command: str | None = Field(
        description="the command that does it", examples=["scontrol update JobId=12345 TimeLimit=1-00:00:00"]
    )
    waits_for: list[str] = Field(description="parent jobs, nodes, licences, a reservation, or the name of the limit")


class JobCause(Answer):
    """Why a job failed, as far as its record, other jobs and its output say."""

    kind: str = Field(examples=["memory"])
    sentence: str = Field(examples=["Most likely it failed because it was killed for its memory. Whose fault: its own."])
    certainty: str = Field(description="`certain`, `likely` or `possible`")
    fault: str = Field(description="`user`, `node`, `storage`, `scheduler` or `unclear`")
    change: str = Field(examples=["Ask for more memory."])
    evidence: list[str] = Field(description="what speaks for it, and what against")


class JobRemedy(Answer):
    """A change that people made after such a failure, and how often the next try then completed."""

    change: str = Field(examples=["more memory"])
    tries: int
    succeeded: int
    unchanged: float | None = Field(description="the share that completed without a change; null where too few tried")
    whose: str = Field(description="whose tries were counted: `your`, `this application's` or `everybody's`")
    sentence: str


class JobInFull(Answer):
    """Everything there is to say about one job."""

    ref: str = Field(examples=[REF_EXAMPLE])
    job: dict[str, JsonValue] = Field(description="its record; what is not known is left out")
    overview: JobRow
    waiting: Waiting | None = Field(description="why it has not started; null for other jobs, and where nobody says")
    predictions: list[StoredPrediction] = Field(description="in the order of its life")
    next: Advice | None = Field(description="what to ask for after it ran out of memory or time")
    advice: list[Advice]
    cause: JobCause | None = Field(default=None, description="why it failed; null for jobs that did not")
    remedies: list[JobRemedy] = Field(default=[], description="what helped others after such a failure, best first")
    needs: dict[str, NeedOutlook] | None = Field(
        None, description="what it will use of `memory` and `time`; null without a model"
    )
    wait: WaitOutlook | None = Field(None, description="when it will start; null for jobs that have started, and without a model")
    profile: ProfileComparison | None
    history: UserHistory
    earlier: list[Try] = Field(description="earlier tries of the same work, the last one first")
    later: list[Try] = Field(description="later tries, the first one first")
    notes: list[str]


class JobWhy(Answer):
    """What happened to a job, what would have been predicted at each of its moments, and what to ask for next."""

    job: dict[str, JsonValue] = Field(description="its record; what is not known is left out")
    never_started: bool = Field(description="whether it was over before it ran")
    waiting: Waiting | None = Field(description="why it has not started; null for other jobs, and where nobody says")
    cause: JobCause | None = Field(default=None, description="why it failed; null for jobs that did not")
    remedies: list[JobRemedy] = Field(default=[], description="what helped others after such a failure, best first")
    at: dict[str, Verdict] = Field(description="what the models in use would have predicted at each moment that it has reached")
    next: Advice | None = Field(description="what to ask for after it ran out of memory or time")
    advice: list[Advice]
    needs: dict[str, NeedOutlook] | None = Field(
        None, description="what it will use of `memory` and `time`; null without a model"
    )
    wait: WaitOutlook | None = Field(None, description="when it will start; null for jobs that have started, and without a model")
    notes: list[str]


class Explanation(Answer):
    """The predictions for a job at each of its moments, and why."""

    ref: str = Field(examples=[REF_EXAMPLE])
    predictions: list[StoredPrediction]
    notes: list[str]


class JobAdvice(Answer):
    """What to ask for instead, or next time, with the evidence."""

    ref: str = Field(examples=[REF_EXAMPLE])
    next: Advice | None = Field(description="what to ask for after it ran out of memory or time")
    advice: list[Advice]
    notes: list[str]

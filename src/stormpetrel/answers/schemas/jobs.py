"""The table of jobs: one row, a page of rows, and how they are requested."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from stormpetrel.answers.schemas.base import Answer, Question
from stormpetrel.records.pending_reasons import WaitKind
from stormpetrel.records.states import JobState

MOST_ROWS: Final = 1000
_MOST_PAGES: Final = 1_000_000
REF_PATTERN: Final = r"^[0-9]{1,18}(_[0-9]{1,10})?-[0-9]{1,17}-[0-9]{1,6}-.{1,200}$"
REF_EXAMPLE: Final = "12345_7-1794746400000000-0-cluster"
Ref = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class JobRow(Answer):
    """A job with its latest prediction."""

    ref: str = Field(
        description="what names the job in links: ids wrap and repeat", examples=["12345_7-1794746400000000-0-cluster"]
    )
    cluster: str | None = Field(description="cluster the job was submitted to")
    job_id: int | None = Field(
        description="job id; of the whole array for an array task; leader's id + offset in a heterogeneous job"
    )
    array_task: int | None = Field(description="index within the array; null for other jobs")
    submit_time: datetime | None = Field(description="when it was submitted")
    restart: int | None = Field(description="0 for the first run, counted up at each requeue the source tells of")
    user: str | None = Field(description="login name, or whatever stands for it in the log", examples=["ada"])
    account: str | None = Field(description="account or project that pays")
    partition: str | None = Field(description="partition or queue")
    job_name: str | None = Field(description="name given by its user: hostile text", examples=["fit_12"])
    state: str | None = Field(description="state in the common vocabulary")
    start_time: datetime | None = Field(description="when it started; null if it never did")
    end_time: datetime | None = Field(description="when it ended; null while it has not")
    elapsed_s: float | None = Field(description="run time")
    cpus: int | None = Field(description="CPUs allocated")
    nodes: int | None = Field(description="nodes allocated")
    time_limit_s: float | None = Field(description="requested run time; null if unlimited or unknown")
    req_mem_bytes: int | None = Field(description="memory asked for, of the whole job")
    max_rss_bytes: int | None = Field(description="largest resident memory of any task of any step")
    moment: str | None = Field(description="when in the job's life: `submit`, `start` or `2min`")
    moment_time: datetime | None = Field(description="when that was")
    predicted_at: datetime | None = Field(description="when it could be read in the table: the time of its commit")
    late: bool | None = Field(description="could be read only more than ten seconds after the moment")
    model_version: int | None = Field(description="version of the model `jobs-<moment>` in the registry")
    risk: float | None = Field(description="probability that the job fails", examples=[0.31])
    flagged: bool | None = Field(description="whether it was")
    known: bool | None = Field(description="false where user or application were new: the habit of jobs that look alike")
    likeliest: str | None = Field(description="the outcome that a failure would most likely be")
    profile: int | None = Field(description="profile of the request")
    job: str = Field(description="its id as people write it", examples=["12345_7"])
    prediction: str | None = Field(
        description="`Fail` where the latest prediction is `flagged`, else `Complete`; null where nothing was predicted"
    )
    confidence: float | None = Field(
        description="probability of that class, in per cent: of failing where flagged, else of not failing; show the `risk`",
        examples=[69.0],
    )
    first_risk: float | None = Field(description="the risk at submission")
    failed: bool | None = Field(description="whether it failed; null while that is not known, and where it never started")
    never_started: bool | None = Field(description="whether it was over before it ran: neither a success nor a failure")
    waiting: str | None = Field(
        description=f"what it waits for, as the scheduler says: {', '.join(WaitKind)}; null for jobs that do not wait"
    )
    waiting_words: str | None = Field(description="the same as a sentence, with what to change")
    never_runs: bool = Field(description="whether it waits and cannot run as it stands")


class JobPage(Answer):
    """Some jobs, and how many there are in all."""

    items: list[JobRow]
    total: int = Field(description="how many jobs there are in all, on all pages")
    page: int = Field(description="which page this is, from 1 on")
    next: str | None = Field(
        description="the query of the next page, relative to this one; null on the last one", examples=["?page=2&limit=100"]
    )


class JobList(Answer):
    """Jobs that were found, the latest first; at most fifty."""

    items: list[JobRow]


class FindQuestion(Question):
    """What is looked for."""

    id: str = Field(
        min_length=1, max_length=256, pattern=r"\S", description="a job id, a `ref`, or part of a name", examples=["12345_7"]
    )


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _moment(text: Any) -> datetime:
    """A time as RFC 3339 writes it, or one with a zone, and nothing else: a bare number would be taken for seconds."""
    if isinstance(text, datetime) and text.tzinfo is not None:
        return text
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
        except OverflowError:
            pass
    raise ValueError("write a time with its zone, such as 2026-11-15T12:00:00Z")


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-15T12:00:00Z"]}),
]
_SORTS: Final = tuple(f"{sign}{name}" for name in JobRow.model_fields for sign in ("", "-"))


def _known_sort(text: str) -> str:
    if text not in _SORTS:
        raise ValueError("there is no such column; write a column of a job, with - before it for the largest first")
    return text


SortKey = Annotated[str, AfterValidator(_known_sort), Field(json_schema_extra={"enum": list(_SORTS)})]


class JobsQuestion(Question):
    """Which jobs, in which order."""

    page: int = Field(1, ge=1, le=_MOST_PAGES, description="which page, from 1 on")
    limit: int = Field(100, ge=1, le=MOST_ROWS, description="jobs on a page")
    sort: list[SortKey] = Field(
        ["-submit_time"], max_length=4, description="columns to sort by, the first counts most; with `-` the largest comes first"
    )
    search: str = Field("", max_length=200, description="in ids (from their start), users, accounts, partitions and names")
    user: Name | None = Field(None, description="this user's")
    account: Name | None = Field(None, description="of this account")
    partition: Name | None = Field(None, description="in this partition")
    job_name: Name | None = Field(None, description="of exactly this name")
    cluster: Name | None = Field(None, description="of this cluster")
    state: list[JobState] = Field([], max_length=20, description="in one of these states")
    prediction: Literal["Fail", "Complete"] | None = Field(None, description="for which this was predicted last")
    likeliest: Name | None = Field(None, description="that would most likely fail in this way, such as TIMEOUT or OUT_OF_MEMORY")
    flagged: bool | None = Field(None, description="whose risk reached the threshold, or did not")
    known: bool | None = Field(None, description="whose user and application were known, or were not")
    failed: bool | None = Field(None, description="that have failed, or have not")
    never_started: bool | None = Field(None, description="that were over before they ran, or were not")
    waiting: WaitKind | None = Field(None, description="that wait for this, as the scheduler says")
    never_runs: bool | None = Field(None, description="that wait and cannot run as they stand, or all others")
    risk_min: float | None = Field(None, ge=0, le=1, description="with at least this risk")
    risk_max: float | None = Field(None, ge=0, le=1, description="with at most this risk")
    submitted_since: Moment | None = Field(None, description="submitted at this time or later")
    submitted_until: Moment | None = Field(None, description="submitted at this time or earlier")
    ended_since: Moment | None = Field(None, description="that ended at this time or later")
    ended_until: Moment | None = Field(None, description="that ended at this time or earlier")

"""Jobs as JSON: the columns of the overview, and how they are asked for.

OVERVIEW_SCHEMA -> JobRow; query parameters -> JobsAsked -> TableQuery.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from stormpetrel.answers.overview import OVERVIEW_SCHEMA, TableFilter, TableQuery
from stormpetrel.faces.api.asking import Asked, Told
from stormpetrel.faces.api.frame_schemas import row_model
from stormpetrel.jobs.outcomes import OUTCOMES
from stormpetrel.records import jobs, predictions
from stormpetrel.records.pending_reasons import WaitKind
from stormpetrel.records.states import JobState

MOST_ROWS: Final = 1000
_MOST_PAGES: Final = 1_000_000
REF_PATTERN: Final = r"^[0-9]{1,18}(_[0-9]{1,10})?-[0-9]{1,17}-[0-9]{1,6}-.{1,200}$"
REF_EXAMPLE: Final = "12345_7-1794746400000000-0-cluster"
Ref = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]

_MADE: Final = {
    "ref": "what names the job in links: ids wrap and repeat",
    "job": "its id as people write it",
    "prediction": "`Fail` where the latest prediction is `flagged`, else `Complete`; null where nothing was said",
    "confidence": "probability of that class, in per cent: of failing where flagged, else of not failing; tell people the `risk`",
    "first_risk": "the risk at submission",
    "failed": "whether it failed; null while that is not known, and where it never started",
    "never_started": "whether it was over before it ran: neither a success nor a failure",
    "waiting": f"what it waits for, as the scheduler says: {', '.join(WaitKind)}; null for jobs that do not wait",
    "waiting_words": "the same as a sentence, with what to change",
    "never_runs": "whether it waits and cannot run as it stands",
}
_MEANING: Final = {
    **{column.name: column.meaning for column in (*jobs.JOB_COLUMNS, *predictions.VALUE_COLUMNS)},
    **_MADE,
}
COLUMNS: Final = {"ref": pl.String(), **OVERVIEW_SCHEMA}


JobRow: Final = row_model(
    "JobRow",
    COLUMNS,
    doc="A job with the latest that was said about it.",
    meaning=_MEANING,
    always=("ref", "job", "never_runs"),
    examples={"ref": REF_EXAMPLE, "job": "12345_7", "user": "ada", "job_name": "fit_12", "risk": 0.31, "confidence": 69.0},
)


class JobPage(Told):
    """Some jobs, and how many there are in all."""

    items: list[JobRow]  # type: ignore[valid-type]
    total: int = Field(description="how many jobs there are in all, on all pages")
    page: int = Field(description="which page this is, from 1 on")
    next: str | None = Field(
        description="the query of the next page, relative to this one; null on the last one", examples=["?page=2&limit=100"]
    )


class JobList(Told):
    """Jobs that were found, the latest first; at most fifty."""

    items: list[JobRow]  # type: ignore[valid-type]


class FindAsked(Asked):
    """What is looked for."""

    id: str = Field(
        min_length=1, max_length=256, pattern=r"\S", description="a job id, a `ref`, or part of a name", examples=["12345_7"]
    )


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _moment(text: Any) -> datetime:
    """A time as RFC 3339 writes it, and nothing else: a bare number would be taken for seconds."""
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
_SORTS: Final = tuple(f"{sign}{name}" for name in COLUMNS for sign in ("", "-"))


def _known_sort(text: str) -> str:
    if text not in _SORTS:
        raise ValueError("there is no such column; write a column of a job, with - before it for the largest first")
    return text


SortKey = Annotated[str, AfterValidator(_known_sort), Field(json_schema_extra={"enum": list(_SORTS)})]


class JobsAsked(Asked):
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
    likeliest: Name | None = Field(None, description=f"that would most likely fail in this way: {', '.join(OUTCOMES)}")
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

    def query(self) -> TableQuery:
        """The same for the overview."""
        return TableQuery(
            sort=tuple((text.removeprefix("-"), text.startswith("-")) for text in self.sort),
            filters=tuple(self._filters()),
            search=self.search,
            offset=(self.page - 1) * self.limit,
            limit=self.limit,
        )

    def _filters(self) -> list[TableFilter]:
        found = [TableFilter(column, "equals", getattr(self, column)) for column in _EQUAL if getattr(self, column) is not None]
        found += [
            TableFilter(column, kind, getattr(self, name))
            for name, (column, kind) in _BOUNDS.items()
            if getattr(self, name) is not None
        ]
        if self.state:
            found.append(TableFilter("state", "is_in", [str(state) for state in self.state]))
        return found


_EQUAL: Final = (
    "user", "account", "partition", "job_name", "cluster", "prediction", "likeliest", "flagged", "known", "failed",
    "never_started", "waiting", "never_runs",
)  # fmt: skip
_BOUNDS: Final = {
    "risk_min": ("risk", "greater_equal"),
    "risk_max": ("risk", "less_equal"),
    "submitted_since": ("submit_time", "greater_equal"),
    "submitted_until": ("submit_time", "less_equal"),
    "ended_since": ("end_time", "greater_equal"),
    "ended_until": ("end_time", "less_equal"),
}


def job_rows(frame: pl.DataFrame) -> list[Any]:
    """Rows of the overview as JSON has them: six digits of a risk are enough."""
    numbers = [pl.col(name).cast(pl.Float64).round(6) for name, dtype in COLUMNS.items() if dtype == pl.Float32]
    return [JobRow.model_construct(**row) for row in frame.select(list(COLUMNS)).with_columns(numbers).iter_rows(named=True)]

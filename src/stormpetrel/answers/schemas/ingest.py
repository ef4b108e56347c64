"""What came of reading records into a site, as `stormpetrel ingest … --json` prints it; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Request


class JobFiles(Request):
    """Job records to be read: files (`-` is standard input), and what they do not say themselves."""

    files: list[str]
    format: str | None = Field(default=None, description="found from the file if left out")
    fields: list[str] | None = Field(default=None, description="columns of sacct text without a header")
    delimiter: str | None = None
    cluster: str | None = Field(default=None, description="of records that do not name theirs")
    year: int | None = Field(default=None, description="of an event log whose dates have none")
    as_of: datetime | None = Field(default=None, description="when the records were true; the file's own time if left out")


class JobDocument(Request):
    """A document of Slurm's jobcomp plug-ins; what it holds besides is read as far as it is known."""

    model_config = ConfigDict(extra="allow")

    jobid: int
    submit: str = Field(alias="@submit", description="UTC", examples=["2026-01-31T08:00:00"])
    state: str = Field(examples=["COMPLETED"])


class DocumentsTaken(Answer):
    """How many documents of jobcomp are on disk; the watch reads them into the job table."""

    taken: int


class Gap(Answer):
    """A stretch of time without records."""

    start: IsoTime = Field(alias="from")
    end: IsoTime = Field(alias="to")


class RowDoubts(Answer):
    """How many rows a rule of data quality doubts, and which of their columns."""

    rows: int
    doubts: list[str]


class JobIngest(Answer):
    """What came of job records; read = kept + known + changed + folded + all that was quarantined."""

    read: int
    kept: int
    known: int
    changed: int
    folded: int
    quarantined: dict[str, int] = Field(description="by rule")
    states: dict[str, int]
    first: IsoTime | None = Field(description="the first submission")
    last: IsoTime | None
    seconds: float
    raw_states: dict[str, int]
    examples: dict[str, list[str]] = Field(description="of what was quarantined, by rule")
    warnings: dict[str, int] = Field(description="odd, but kept: by rule")
    warning_examples: dict[str, list[str]]
    quality: dict[str, RowDoubts]
    unread: dict[str, int] = Field(description="values that could not be read, by column")
    unread_of: dict[str, int] = Field(description="of so many that the records tell")
    unread_examples: dict[str, list[str]]
    gaps: list[Gap] = Field(description="in which no job was submitted")
    notes: list[str]


class TraceGap(Gap):
    """A time in which nothing was seen of a node."""

    node: str


class TraceIngest(Answer):
    """What came of CPU traces, in windows; read = kept + known + changed + all that was left out."""

    read: int
    kept: int
    known: int
    changed: int
    left_out: dict[str, int] = Field(description="by why")
    bridged: int
    nodes: int
    threads: int
    first: IsoTime | None
    last: IsoTime | None
    seconds: float
    short_jobs: int
    job_starts: int
    gaps: list[TraceGap] = Field(description="at most twenty, the longest first")
    seen: dict[str, int]
    notes: list[str]


class EventGap(Gap):
    """A stretch of buckets that was not seen whole."""

    why: str


class EventIngest(Answer):
    """What came of one source of events: `read` and `quarantined` are events; kept, known and changed are buckets of time.

    Of background they are values, of outages they are outages.
    """

    source: str
    read: int
    kept: int
    known: int
    changed: int
    quarantined: dict[str, int] = Field(description="by why")
    kinds: dict[str, int] = Field(description="the most frequent first")
    first: IsoTime | None
    last: IsoTime | None = Field(description="the end of the last bucket")
    gaps: list[EventGap] = Field(description="the latest twenty")
    notes: list[str] = Field(description="the first fifty")
    problems: list[str] = Field(description="sources that failed: the others were read")
    seconds: float
    gap_count: int = Field(description="of all gaps")
    note_count: int = Field(description="of all notes")


class EventsIngest(EventIngest):
    """What came of several sources of events together."""

    sources: list[EventIngest]


class DroppedTable(Answer):
    """A table of events that is forgotten."""

    dropped: str
    rows: int

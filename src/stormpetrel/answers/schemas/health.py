"""How the site is, and what answers.

How the site is now, in one answer: incidents, jobs at risk, nodes, the newest counts of events, and the lag of each source.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.alarms import IncidentLine
from stormpetrel.answers.schemas.base import Answer, IsoTime
from stormpetrel.answers.schemas.cluster import ClusterKind, ClusterNow
from stormpetrel.answers.schemas.jobs import JobRow

Level = Literal["ok", "warning", "problem"]


class HealthLine(Answer):
    """One thing that was examined."""

    part: str = Field(examples=["Watching"])
    name: str = Field(examples=["Forecasts"])
    level: Level
    words: str
    advice: str = Field(description="what to do; empty where nothing needs doing")


class HealthSource(Answer):
    """One of the watch's own reads, as it is now."""

    name: str = Field(examples=["sacct"])
    watcher: Literal["jobs", "events"]
    last_good_look: datetime | None = Field(description="when it was last read well")
    lag_s: float | None = Field(description="seconds since then")
    records: int = Field(description="read by that look")
    problem: str = Field(description="empty where nothing is wrong")


class HealthTable(Answer):
    """One table of the site."""

    table: str = Field(examples=["jobs"])
    rows: int
    files: int
    bytes: int
    version: int


class RefusedRecords(Answer):
    """The records that one rule refused."""

    rule: str
    records: int
    examples: list[str] = Field(description="some reasons, each with the record that it is about")


class Health(Answer):
    """How the site is; administrators see more."""

    worst: Level
    as_of: datetime
    read_only: bool = Field(description="whether the site can only be read here: nothing that is sent is kept")
    lines: list[HealthLine]
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")
    versions: dict[str, str]
    tables: list[HealthTable] | None = Field(default=None, description="for administrators; null until they were first looked at")
    quarantine: list[RefusedRecords] | None = Field(
        default=None, description="what was refused, by rule, most first; for administrators; null until it was first looked at"
    )
    checked: datetime | None = Field(default=None, description="when the doctor, the tables and the quarantine were looked at")
    is_short: bool | None = Field(
        default=None, description="whether this is the short version, for those who are no administrators"
    )


class DoctorFinding(Answer):
    """One thing that the doctor examined."""

    level: Level
    check: str = Field(examples=["folder"])
    what: str
    hint: str = Field(description="what to do; empty where nothing needs doing")


class DoctorReport(Answer):
    """What the doctor finds, in the order of the checks."""

    worst: Level
    findings: list[DoctorFinding]
    summary: str = Field(examples=["No problems, 1 warning."])


class Version(Answer):
    """What answers here."""

    version: str = Field(description="of Stormpetrel", examples=["0.1.0"])
    api: str = Field(description="of this API", examples=["v1"])


class NowNode(Answer):
    """One node, by all that is known of it."""

    node: str
    incidents: list[int] = Field(description="the open incidents that are about it")
    jobs: int | None = Field(description="that ended on it in the last seven days; null: no job records")
    failed: int | None = Field(description="of these failed")
    windows: int | None = Field(description="of CPU traces, of the last day that was scored; null: none was")
    flagged: int | None = Field(description="of these above the threshold")


class NowHour(Answer):
    """The newest bucket of events that was seen whole, against its forecast."""

    start: datetime
    bucket_s: int
    alarm: bool
    kinds: list[ClusterKind] = Field(description="the most surprising first")


class NowAnswer(Answer):
    """How the site is now; what a site does not have, or what is still being read, is empty or null."""

    as_of: datetime
    level: Literal["ok", "warning", "problem"] = Field(
        description="problem: a page is open that nobody has taken note of; warning: another one is, or a source is broken"
    )
    headline: str = Field(description="whether to act, in a line", examples=["2 open incidents, 1 of them a page."])
    incidents: list[IncidentLine] = Field(description="open ones, pages first, then the newest first")
    incidents_total: int
    at_risk: list[JobRow] = Field(description="flagged jobs that wait or run, the riskiest first")
    at_risk_total: int
    nodes: list[NowNode] = Field(description="in the order of their names")
    grid: ClusterNow | None
    hour: NowHour | None
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")
    pending: list[Literal["nodes", "hour"]] = Field(
        default=[], description="what is still being worked out, after a start of the server; ask again in a few seconds"
    )


class TopAnswer(Answer):
    """How a site is now, and its jobs: what `stormpetrel top` shows, and prints with --json."""

    as_of: datetime
    level: Level
    headline: str = Field(description="whether to act, in a line")
    incidents: list[IncidentLine] = Field(description="open ones, pages first, then the newest first")
    incidents_total: int
    at_risk: list[JobRow] = Field(description="flagged jobs that wait or run, the riskiest first")
    at_risk_total: int
    jobs: list[JobRow] = Field(description="a page of jobs, in the order that was asked for")
    jobs_total: int
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")


class NewsLine(Answer):
    """Something that happened to an incident."""

    incident: int
    time: IsoTime
    words: str = Field(examples=["raised"])
    title: str


class NewsAnswer(Answer):
    """What happened to incidents since a time, the newest first."""

    since: IsoTime
    news: list[NewsLine]

"""How the site is now, in one answer: incidents, jobs at risk, nodes, the newest counts of events, and the lag of each source."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.alarms import IncidentLine
from stormpetrel.answers.schemas.base import Answer, IsoTime
from stormpetrel.answers.schemas.cluster import ClusterKind, ClusterNow
from stormpetrel.answers.schemas.health import HealthSource
from stormpetrel.answers.schemas.jobs import JobRow


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

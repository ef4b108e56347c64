"""Incidents as `stormpetrel alarms … --json` prints them; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question


class ReplayQuestion(Question):
    """Which part of the past; without times all of it."""

    since: datetime | None = Field(default=None, description="from this time on")
    until: datetime | None = Field(default=None, description="up to this time")


class IncidentSubject(Answer):
    """Something or somebody that an incident is about, or that is involved."""

    kind: str = Field(description="node, user, application or cluster", examples=["node"])
    name: str


class IncidentLine(Answer):
    """One incident."""

    id: int
    severity: Literal["info", "warning", "page"]
    state: Literal["open", "acknowledged", "resolved"]
    kinds: list[str] = Field(description="what was seen, the first first", examples=[["node_eats_jobs"]])
    families: list[str] = Field(description="which watchers saw it", examples=[["jobs"]])
    subjects: list[IncidentSubject] = Field(description="what it is about, and then what is involved")
    since: IsoTime = Field(description="the first record of it")
    until: IsoTime = Field(description="the newest record of it")
    raised_at: IsoTime = Field(
        description="when it was known to be what it is; in a replay when it would have been, by the site's time"
    )
    blame: Literal["user", "node", "storage", "scheduler", "unclear"]
    verdict: Literal["confirmed", "dismissed"] | None
    late: bool = Field(description="known so long after the fact that nobody is woken for it")
    title: str = Field(description="one line that says it all")
    page: bool = Field(description="whether it was, or would have been, sent at once")


class IncidentList(Answer):
    """Incidents, the oldest first."""

    incidents: list[IncidentLine]
    pages_per_week: float | None = Field(description="null where there was no time to count over")
    weeks: float = Field(description="how long that was")


class ReplayAnswer(IncidentList):
    """What a watch would have told about a part of the past."""

    since: IsoTime | None = Field(exclude=True, description="from when on records were looked at; null: there are none at all")
    until: IsoTime | None = Field(exclude=True)
    first: IsoTime | None = Field(exclude=True, description="from when on there are records")
    last: IsoTime | None = Field(exclude=True)
    zone: str = Field(exclude=True, description="of the site")

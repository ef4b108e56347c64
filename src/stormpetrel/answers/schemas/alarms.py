"""Incidents as `stormpetrel alarms … --json` prints them and the API sends them; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question
from stormpetrel.answers.schemas.jobs import Moment
from stormpetrel.answers.schemas.verdicts import VerdictEffects

MOST_INCIDENTS: Final = 1000  # that one answer lists
_FAMILY: Final = r"^[a-z_]{1,32}$"


class IncidentQuestion(Question):
    """Which incidents; those that are not over, where nothing else is requested."""

    state: Literal["open", "all", "quiet"] = Field(
        default="open",
        description="`open`: those that are not over, acknowledged or not; `all`: those that are over as well; "
        "`quiet`: those that are on no list, as like dismissed ones",
    )
    since: Moment | None = Field(default=None, description="of which something was heard at this time or later")
    severity: Literal["info", "warning", "page"] | None = Field(default=None, description="so loud, or louder")
    family: str | None = Field(default=None, pattern=_FAMILY, description="that this family of watchers saw", examples=["jobs"])
    limit: int = Field(default=100, ge=1, le=MOST_INCIDENTS, description="so many, the newest")


class ReplayQuestion(Question):
    """Which part of the past; without times all of it."""

    since: datetime | None = Field(default=None, description="from this time on")
    until: datetime | None = Field(default=None, description="up to this time")
    models: bool = Field(default=True, description="train the models of events that the watch would have had; else rules alone")


class ReplayFiles(Question):
    """Files to replay without a site."""

    jobs: list[str] = Field(default=[], description="files of job records")
    events: list[str] = Field(default=[], description="event logs, tables of events or of counts")
    format: str | None = Field(default=None, description="of them all; found from each file if left out")
    time_zone: str = Field(default="UTC", description="of their times")


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
    like: int | None = Field(
        default=None, description="the dismissed incident that it is like, which is why it was not sent; null: like none"
    )
    returns: int = Field(default=0, exclude=True, description="how often it came back")
    change: str = Field(
        default="", description="what has changed, where that explains it: something new at the site, not an anomaly; else empty"
    )


class IncidentList(Answer):
    """Incidents, the newest first; of a replay, the oldest first."""

    incidents: list[IncidentLine]
    pages_per_week: float | None = Field(
        description="what was sent at once, returns counted, also of incidents that are not listed; null: no time to count over"
    )
    weeks: float = Field(description="how long that was: since the watch or the first incident, or since the time asked for")
    quiet: int = Field(default=0, description="open incidents that are not listed, as like dismissed ones")
    verdicts: VerdictEffects = Field(default=VerdictEffects(), description="what verdicts have changed; administrators only")

    @property
    def rate_text(self) -> str:
        """How often somebody was paged, in a few words; empty where there was no time to count over."""
        return "" if self.pages_per_week is None else f"pages a week: {self.pages_per_week:.2g}, over {self.weeks:.1f} weeks"


class ReplayAnswer(IncidentList):
    """What a watch would have reported about a part of the past; verdicts of today say nothing about it."""

    quiet: int = Field(default=0, exclude=True)
    verdicts: VerdictEffects = Field(default=VerdictEffects(), exclude=True)

    since: IsoTime | None = Field(exclude=True, description="from when on records were looked at; null: there are none at all")
    until: IsoTime | None = Field(exclude=True)
    first: IsoTime | None = Field(exclude=True, description="from when on there are records")
    last: IsoTime | None = Field(exclude=True)
    zone: str = Field(exclude=True, description="of the site")
    jobs: int = Field(exclude=True, description="that ended in that time")
    buckets: int = Field(exclude=True, description="of events, seen whole in that time")
    partial_buckets: int = Field(exclude=True, description="of events that were counted, but not seen whole, at any time")
    event_models: int = Field(exclude=True, description="of events, trained on the way")
    has_traces: bool = Field(exclude=True, description="whether there are scored CPU windows")

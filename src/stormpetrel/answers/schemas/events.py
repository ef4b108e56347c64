"""Events and labels as `stormpetrel events … --json` prints them; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from stormpetrel.answers.schemas.base import Answer, Question
from stormpetrel.answers.schemas.grid import GridAlarm

IsoTime = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]
EventPlace = Literal["site", "submit_host", "group", "node"]


class EventTableQuestion(Question):
    """Which buckets; without `since`, `until` and `last` the last 24."""

    since: datetime | None = None
    until: datetime | None = None
    last: int | None = Field(default=None, ge=1, description="the last so many buckets")
    by: EventPlace | None = Field(default=None, description="add the sums by site, host, group or node")


class EventRow(Answer):
    """One bucket of time."""

    time: IsoTime = Field(description="when it begins")
    gap: str | None = Field(description="why it was not seen whole; null: it was")
    counts: dict[str, int] | None = Field(description="by kind; null at a gap")


class EventGapSpan(Answer):
    """A stretch of time that was not seen whole."""

    start: IsoTime = Field(serialization_alias="from")
    end: IsoTime = Field(serialization_alias="to", description="not in it")
    why: str


class EventPlaceSum(Answer):
    """The counts of one site, host, group or node over all buckets."""

    value: str
    counts: dict[str, int]


class EventSource(Answer):
    """What is counted, from where; and the request, where there is one. Nothing is sent."""

    source: str
    words: str
    query: dict[str, Any] | None = None


class EventTable(Answer):
    """Counts of events per bucket and kind, and how they come about."""

    bucket_s: int
    zone: str = Field(description="of the site")
    kinds: list[str] = Field(description="those that occur")
    silent: list[str] = Field(description="kinds that the models see, and that do not occur")
    rows: list[EventRow] = Field(description="the oldest first")
    totals: dict[str, int]
    gaps: list[EventGapSpan]
    by: EventPlace | None
    places: list[EventPlaceSum] = Field(description="the most events first; empty without `by`")
    queries: list[EventSource]
    message: str = Field(description="why there is no row; else empty")


class EventScoring(Answer):
    """What scoring new buckets came to, and every alarm of the model in use."""

    model: str
    version: int
    threshold: float
    scored: int = Field(description="buckets scored now")
    alarms: int = Field(description="of these alarms")
    buckets: int = Field(description="all that the model has scored")
    newest: datetime | None = Field(description="beginning of the newest of them")
    newest_score: float | None
    newest_alarm: bool
    episodes: list[GridAlarm] = Field(description="the oldest first")


class OutageLabel(Answer):
    """A span of time that somebody has given a name."""

    source: str
    uid: str
    kind: str = Field(description="outage, maintenance or normal")
    start: IsoTime = Field(serialization_alias="from")
    end: IsoTime | None = Field(serialization_alias="to", description="null: it lasts")
    title: str


class OutageLabels(Answer):
    """Labels, the oldest first."""

    outages: list[OutageLabel]


class LabelQuestion(Question):
    """Which labels."""

    since: str | None = Field(default=None, description="those that reach beyond this time, in the site's zone")


class NewLabel(Question):
    """What somebody says about a time, in the site's zone."""

    start: str = Field(description="2026-01-31 14:00, or now")
    end: str | None = Field(default=None, description="a time, now, or how long it lasted: 3h, 90m, 2d; null: it lasts")
    kind: Literal["outage", "maintenance", "normal"] = "outage"
    title: str = ""

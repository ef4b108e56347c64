"""Events and labels as `stormpetrel events … --json` prints them; times as ISO 8601 with their offset."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question

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


class ScoredAlarm(Answer):
    """Buckets of alarm that belong together."""

    start: IsoTime = Field(serialization_alias="from")
    end: IsoTime = Field(serialization_alias="to", description="not in it")
    score: float | None = Field(description="of its most abnormal bucket")
    findings: list[str] = Field(serialization_alias="why", description="what was wrong, a sentence each")
    labels: list[str] = Field(description="what people say of that time")
    threshold: float | None = Field(exclude=True)


class EventScoring(Answer):
    """What scoring new buckets came to, and the newest alarms of the model in use."""

    model: str
    version: int
    threshold: float
    scored: int = Field(description="buckets scored now")
    alarms: int = Field(description="of these alarms")
    buckets: int = Field(description="all that the model has scored")
    newest: datetime | None = Field(description="beginning of the newest of them")
    newest_score: float | None
    newest_alarm: bool
    episodes: list[ScoredAlarm] = Field(description="the oldest first")
    episodes_in_all: int = Field(exclude=True)


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


class EventStudyQuestion(Question):
    """On what the models are judged: job logs, tables of counts, or a simulated grid where no path is named."""

    paths: list[Path] = Field(default=[], description="files and folders")
    format: str | None = Field(default=None, description="of the files; null: found from each")
    zone: str = Field(default="UTC", description="by whose clock people worked there")
    outages: Path | None = Field(default=None, description="outages of a table of counts, in place of injected ones")
    plug_ins: list[str] = Field(default=[], description="outages of others, MODULE:FUNCTION")
    models: list[str] = Field(default=[], description="models and baselines; empty: all")
    seeds: int = Field(default=10, ge=1)
    hours: int = Field(default=4368, ge=1, description="length of a simulated grid")
    keep: Path | None = Field(default=None, description="folder for finished runs, which are not made again")


class OverSeeds(Answer):
    """A figure over seeds."""

    mean: float | None
    std: float | None
    n: int = Field(description="seeds of which it is known")


class EventModelQuality(Answer):
    """How good one model or baseline is."""

    pr_auc: OverSeeds
    roc_auc: OverSeeds
    recall_at_one_per_week: OverSeeds = Field(description="share of outages raised at one false alarm a week")
    false_alarms_per_week: OverSeeds
    precision: OverSeeds
    delay_hours: OverSeeds
    alarm_share: OverSeeds
    outage_share: OverSeeds
    fit_s: OverSeeds
    score_s: OverSeeds
    errors: dict[str, str] = Field(default={}, description="by seed: why it could not be judged")


class OutageRecall(Answer):
    """Outages of one type and severity, over all seeds together."""

    recall: float | None
    delay_hours: float | None
    n: int


class EventDataset(Answer):
    """Models and baselines on one data set."""

    models: dict[str, EventModelQuality]
    baselines: dict[str, EventModelQuality]
    by_outage: dict[str, dict[str, dict[str, OutageRecall]]] = Field(description="type, severity, model")
    seeds: list[int]


class EventStudy(Answer):
    """How good the alarm of the cluster would have been."""

    datasets: dict[str, EventDataset]
    notes: list[str] = Field(description="what was odd in the files")

"""The cluster as a whole, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question
from stormpetrel.answers.schemas.jobs import Moment

MOST_BUCKETS: Final = 10_000
_EXAMPLE: Final = ["2026-03-02T00:00:00Z"]


class ClusterNow(Answer):
    """State of the cluster."""

    as_of: datetime
    state: Literal["calm", "incident", "alarm", "maintenance", "silent", "unjudged", "empty"] = Field(
        description="incident: the events are as expected, but an incident is open; silent: no data for longer than a bucket "
        "takes; unjudged: counts, but no model or no score; empty: no counts"
    )
    headline: str = Field(examples=["Alarm since 14:00."])
    hint: str = Field(description="what to do next; may be empty")
    since: datetime | None = Field(description="since when it is so, where that is known")
    findings: list[str] = Field(
        description="what is wrong, a sentence each; groups and nodes are named to administrators only",
        examples=[["JobDisconnected 41× expected since 14:00, 93 % on schedd-2"]],
    )
    lack: str | None = Field(description="the first step that has not been done: events, model or scores; null: none")
    bucket_s: int = Field(description="seconds that one bucket of counts is long", examples=[3600])
    latest: datetime | None = Field(description="end of the latest bucket that was seen whole")
    model: str = Field(examples=["events-unsupervised"])
    model_version: int


class SpanQuestion(Question):
    """Which time."""

    since: Moment | None = Field(default=None, description="from this time on", examples=_EXAMPLE)
    until: Moment | None = Field(default=None, description="up to this time", examples=_EXAMPLE)


class ClusterQuestion(SpanQuestion):
    """Which time; without `since` and `until` the last day, week or month before the latest bucket, or all."""

    span: Literal["day", "week", "month", "all"] = "week"


class BucketQuestion(Question):
    """Which bucket of time, and of which kind of event the places are named."""

    at: Moment = Field(description="a moment within the bucket", examples=_EXAMPLE)
    kind: str = Field(default="", description="empty, or one that there is not: the most surprising kind")


class CountsQuestion(SpanQuestion):
    """Which buckets; without `since` those of the last day."""

    limit: int = Field(
        default=1000, ge=1, le=MOST_BUCKETS, description="so many buckets, the earliest; `next` says where to go on"
    )


class ClusterBucket(Answer):
    """The events of one bucket of time; each list has one number per kind, in the order of `kinds`, and background its own."""

    start: datetime
    counts: list[float] | None = Field(description="null: this bucket was not seen whole")
    expected: list[float | None] | None = Field(description="null: nothing was forecast")
    low: list[float | None] | None = Field(description="band in which 99 % of calm counts lie")
    high: list[float | None] | None
    background: list[float | None] = Field(description="mean of each of `background_names`; null: no sample was told")
    score: float | None = Field(description="higher is more abnormal")
    threshold: float | None
    alarm: bool


class ClusterGap(Answer):
    """A stretch of time of which there is no data."""

    start: datetime
    end: datetime
    why: str = Field(description="for administrators; else empty")


class ClusterCounts(Answer):
    """Counts of events per bucket and kind, with what was expected."""

    bucket_s: int
    kinds: list[str]
    background_names: list[str] = Field(
        description="queued jobs, slots and the like, as site.toml names them", examples=[["queued"]]
    )
    buckets: list[ClusterBucket]
    gaps: list[ClusterGap]
    next: datetime | None = Field(description="`since` of the buckets that follow; null: there are no more")


class ClusterOutage(Answer):
    """A span of time that somebody has given a name."""

    start: datetime
    end: datetime | None = Field(description="null: it goes on")
    kind: str = Field(description="outage, maintenance, or normal: somebody has looked and found nothing")
    title: str
    source: str = Field(examples=["grafana"])
    raised: bool | None = Field(description="whether an alarm was raised; null: nothing of it was judged")
    delay_s: float | None = Field(description="from its beginning to the end of the first bucket of alarm")


class ClusterAlarm(Answer):
    """Buckets of alarm in a row."""

    start: datetime
    end: datetime
    worst: datetime | None = Field(default=None, description="beginning of the bucket with the highest score")
    score: float | None = Field(description="the highest")
    threshold: float | None
    findings: list[str] = Field(description="nodes and hosts that failed in any of its buckets, then what the worst one shows")
    outages: list[str] = Field(description="titles of outages and maintenance at the same time")
    labels: list[str] = Field(
        default=[], description="kind and title of all labels at the same time", examples=[["outage: storage away"]]
    )


class ClusterOutages(Answer):
    """Outages, maintenance and alarms of a time, the newest first."""

    outages: list[ClusterOutage]
    alarms: list[ClusterAlarm]


class ClusterPeriod(ClusterOutages):
    """What a time comes to: its alarms, outages and gaps, and how many buckets and events it has."""

    start: datetime | None = Field(description="of the first bucket; null: there are no counts of this time")
    end: datetime | None = Field(description="of the last bucket")
    bucket_s: int
    kinds: list[str]
    buckets: int
    gap_buckets: int = Field(description="of these not seen whole")
    judged_buckets: int = Field(description="of these with a score")
    alarm_buckets: int = Field(description="of these with an alarm")
    events: float
    gaps: list[ClusterGap] = Field(description="the oldest first")
    in_full: bool = Field(description="whether groups, nodes and the reasons of gaps are named to whoever asks")


class ClusterKind(Answer):
    """One kind of event in a bucket, against its forecast; null where there is none."""

    kind: str
    count: float | None
    expected: float | None
    low: float | None
    high: float | None
    surprise: float | None
    outside: Literal["above", "below"] | None = Field(description="where the count lies outside of the band")


class ClusterPlaces(Answer):
    """A kind's count at each site, host, group or node, next to what is usual there; the largest change first."""

    names: list[str]
    counts: list[float]
    usual: list[float] = Field(description="by the share that each had in the week before")


class ClusterBucketDetail(Answer):
    """Everything about one bucket of time."""

    start: datetime
    end: datetime
    earlier: datetime | None = Field(description="beginning of the bucket before; null: there is none")
    later: datetime | None = Field(description="beginning of the bucket after")
    gap: str | None = Field(description="null: it was seen whole; else why it was not, for administrators, or empty")
    score: float | None
    threshold: float | None
    alarm: bool
    findings: list[str]
    kinds: list[ClusterKind] = Field(description="the most surprising first")
    kind: str = Field(description="the one whose places are named")
    where: dict[str, ClusterPlaces] = Field(description="by sort of place: site, submit_host, group, node")
    outages: list[ClusterOutage]

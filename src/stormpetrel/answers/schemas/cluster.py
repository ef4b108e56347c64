"""The cluster as a whole, as JSON.

Capacity as JSON.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from stormpetrel.answers.schemas.base import Answer, Question
from stormpetrel.answers.schemas.jobs import Moment

MOST_BUCKETS: Final = 10_000
_EXAMPLE: Final = ["2026-03-02T00:00:00Z"]
MOST_CORES: Final = 1_000_000_000
_STEP: Final = 0.05  # of utilisation, from one line of the waits to the next


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


class CapacityQuestion(Question):
    """What is known of the cluster."""

    cores: float | None = Field(
        default=None, ge=1, le=MOST_CORES, description="cores or slots that there are; without it the most that ran at once"
    )


class CapacityWeek(Answer):
    """A week that is over."""

    week: date = Field(description="its Monday")
    seen: float = Field(description="share of the week of which there is data")
    load: float | None = Field(description="what was handed in, scaled to a whole week; null: too little was seen")
    asked: float | None = Field(description="core-hours by the time limits of the jobs, where they are told")
    jobs: float | None = Field(description="jobs submitted")
    started: float | None
    ended: float | None
    wait_median_s: float | None
    wait_p90_s: float | None
    trend: float | None = Field(
        default=None, description="load on the line through the weeks; null: before its first week, or there is none"
    )


class CapacityForecast(Answer):
    """A week to come."""

    week: date = Field(description="its Monday")
    expected: float
    low: float = Field(description="80 of 100 weeks lie between this and `high`")
    high: float


class CapacityWait(Answer):
    """Waits that began while so much was in use."""

    from_utilisation: float = Field(description="0 to 1; five hundredths wide")
    to_utilisation: float
    hours: float
    median_s: float
    p90_s: float

    @model_validator(mode="before")
    @classmethod
    def _of_older_server(cls, fields: Any) -> Any:
        """A server that does not tell `to_utilisation` yet is as wide in its steps."""
        if isinstance(fields, dict) and "from_utilisation" in fields:
            return {"to_utilisation": round(fields["from_utilisation"] + _STEP, 4), **fields}
        return fields


class CapacityGroup(Answer):
    """What one group asks for."""

    group: str
    load: float = Field(description="a week, on average")
    share: float
    growth: float | None = Field(description="a week; null: it was there in too few weeks")
    growth_low: float | None
    growth_high: float | None


class Capacity(Answer):
    """Load by week, growth, and when the queue will hurt."""

    as_of: datetime
    headline: str = Field(examples=["Load grows 2.1 % a week (1.2 to 3.0); at this rate the queue hurts from March 2027 on."])
    reasons: list[str] = Field(description="what the headline rests on, a sentence each")
    outlook: Literal["too short", "unknown size", "already", "dated", "not within half a year", "unsure"] = Field(
        description="too short: fewer than eight weeks; unknown size: nobody tells what jobs hold; unsure: near, but growing?"
    )
    unit: str = Field(description="of every load", examples=["core-hours"])
    capacity: float | None = Field(description="cores or slots; a week has 168 times as many hours of them")
    capacity_source: str | None = Field(description="given, told by the background, or seen: the most that ran at once")
    utilisation: float | None = Field(description="share of the capacity that is asked for now, on the trend")
    growth: float | None = Field(description="a week; .02 is two per cent")
    growth_low: float | None = Field(description="nine times out of ten the growth lies between this and `growth_high`")
    growth_high: float | None
    hurts_from: date | None = Field(description="first week in which the trend reaches `knee`; null: see `outlook`")
    hurts_earliest: date | None = Field(description="in one of ten courses")
    hurts_latest: date | None = Field(description="in nine of ten courses; null: beyond half a year")
    reached_share: float | None = Field(description="share of all courses that reach it within half a year")
    knee: float = Field(description="utilisation from which on waits grow, 0 to 1")
    knee_learnt: bool = Field(description="from the site's own past; else a rule of thumb")
    weeks: list[CapacityWeek]
    forecast: list[CapacityForecast]
    waits: list[CapacityWait]
    waits_are_estimates: bool | None = Field(
        default=None, description="out of the length of the queue, where no source has the start of each job"
    )
    groups: list[CapacityGroup] = Field(description="the largest first; for administrators, else empty")
    grouped_by: str = Field(default="", description="what a group is: account, group, …; empty where no source names any")
    in_full: bool | None = Field(default=None, description="whether groups are named to whoever asks")

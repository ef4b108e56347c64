"""The grid as the API tells it: dictionaries with the names of its OpenAPI document; times are ISO text in UTC."""

from __future__ import annotations

from typing import TypedDict


class GridTold(TypedDict):
    """How the grid is."""

    as_of: str
    state: str
    headline: str
    hint: str
    since: str | None
    findings: list[str]
    lack: str | None
    bucket_s: int
    latest: str | None
    model: str
    model_version: int


class GridBucket(TypedDict):
    """The events of one bucket of time; each list has one number per kind, in the order of `kinds`, and background its own."""

    start: str
    counts: list[float] | None
    expected: list[float | None] | None
    low: list[float | None] | None
    high: list[float | None] | None
    background: list[float | None]
    score: float | None
    threshold: float | None
    alarm: bool


class GridGap(TypedDict):
    """A stretch of time of which there is no data."""

    start: str
    end: str
    why: str


class GridCounts(TypedDict):
    """Counts of events per bucket and kind, with what was expected."""

    bucket_s: int
    kinds: list[str]
    background_names: list[str]
    buckets: list[GridBucket]
    gaps: list[GridGap]
    next: str | None


class GridOutage(TypedDict):
    """A span of time that somebody has given a name."""

    start: str
    end: str | None
    kind: str
    title: str
    source: str
    raised: bool | None
    delay_s: float | None


class GridAlarm(TypedDict):
    """Buckets of alarm in a row."""

    start: str
    end: str
    score: float | None
    threshold: float | None
    findings: list[str]
    outages: list[str]


class GridOutages(TypedDict):
    """Outages, maintenance and alarms of a time, the newest first."""

    outages: list[GridOutage]
    alarms: list[GridAlarm]

"""Capacity as the API tells it: dictionaries with the names of its OpenAPI document; dates are ISO text."""

from __future__ import annotations

from typing import TypedDict


class CapacityWeek(TypedDict):
    """A week that is over."""

    week: str
    seen: float
    load: float | None
    asked: float | None
    jobs: float | None
    started: float | None
    ended: float | None
    wait_median_s: float | None
    wait_p90_s: float | None


class CapacityForecast(TypedDict):
    """A week to come."""

    week: str
    expected: float
    low: float
    high: float


class CapacityWait(TypedDict):
    """Waits that began while so much was in use."""

    from_utilisation: float
    hours: float
    median_s: float
    p90_s: float


class CapacityGroup(TypedDict):
    """What one group asks for."""

    group: str
    load: float
    share: float
    growth: float | None
    growth_low: float | None
    growth_high: float | None


class Capacity(TypedDict):
    """Load by week, growth, and when the queue will hurt."""

    as_of: str
    headline: str
    reasons: list[str]
    outlook: str
    unit: str
    capacity: float | None
    capacity_source: str | None
    utilisation: float | None
    growth: float | None
    growth_low: float | None
    growth_high: float | None
    hurts_from: str | None
    hurts_earliest: str | None
    hurts_latest: str | None
    reached_share: float | None
    knee: float
    knee_learnt: bool
    weeks: list[CapacityWeek]
    forecast: list[CapacityForecast]
    waits: list[CapacityWait]
    groups: list[CapacityGroup]

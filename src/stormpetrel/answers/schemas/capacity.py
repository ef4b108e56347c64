"""Capacity as JSON."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from stormpetrel.answers.schemas.base import Answer, Question

MOST_CORES: Final = 1_000_000_000
_STEP: Final = 0.05  # of utilisation, from one line of the waits to the next


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

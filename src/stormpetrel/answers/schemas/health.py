"""How the site is, and what answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer


class HealthLine(Answer):
    """One thing that was looked at."""

    part: str = Field(examples=["Watching"])
    name: str = Field(examples=["Forecasts"])
    level: Literal["ok", "warning", "problem"]
    words: str
    advice: str = Field(description="what to do; empty where nothing needs doing")


class HealthSource(Answer):
    """One of the watch's own reads, as it is now."""

    name: str = Field(examples=["sacct"])
    watcher: Literal["jobs", "events"]
    last_good_look: datetime | None = Field(description="when it was last read well")
    lag_s: float | None = Field(description="seconds since then")
    records: int = Field(description="read by that look")
    problem: str = Field(description="empty where nothing is wrong")


class Health(Answer):
    """How the site is; administrators see more."""

    worst: Literal["ok", "warning", "problem"]
    as_of: datetime
    read_only: bool = Field(description="whether the site can only be read here: nothing that is sent is kept")
    lines: list[HealthLine]
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")
    versions: dict[str, str]


class Version(Answer):
    """What answers here."""

    version: str = Field(description="of Stormpetrel", examples=["0.1.0"])
    api: str = Field(description="of this API", examples=["v1"])

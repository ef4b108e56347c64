"""How the site is, and what answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer

Level = Literal["ok", "warning", "problem"]


class HealthLine(Answer):
    """One thing that was examined."""

    part: str = Field(examples=["Watching"])
    name: str = Field(examples=["Forecasts"])
    level: Level
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


class HealthTable(Answer):
    """One table of the site."""

    table: str = Field(examples=["jobs"])
    rows: int
    files: int
    bytes: int
    version: int


class RefusedRecords(Answer):
    """The records that one rule refused."""

    rule: str
    records: int
    examples: list[str] = Field(description="some reasons, each with the record that it is about")


class Health(Answer):
    """How the site is; administrators see more."""

    worst: Level
    as_of: datetime
    read_only: bool = Field(description="whether the site can only be read here: nothing that is sent is kept")
    lines: list[HealthLine]
    sources: list[HealthSource] = Field(description="what the watch reads by itself; for administrators")
    versions: dict[str, str]
    tables: list[HealthTable] | None = Field(default=None, description="for administrators; null until they were first looked at")
    quarantine: list[RefusedRecords] | None = Field(
        default=None, description="what was refused, by rule, most first; for administrators; null until it was first looked at"
    )
    checked: datetime | None = Field(default=None, description="when the doctor, the tables and the quarantine were looked at")
    is_short: bool | None = Field(
        default=None, description="whether this is the short version, for those who are no administrators"
    )


class DoctorFinding(Answer):
    """One thing that the doctor examined."""

    level: Level
    check: str = Field(examples=["folder"])
    what: str
    hint: str = Field(description="what to do; empty where nothing needs doing")


class DoctorReport(Answer):
    """What the doctor finds, in the order of the checks."""

    worst: Level
    findings: list[DoctorFinding]
    summary: str = Field(examples=["No problems, 1 warning."])


class Version(Answer):
    """What answers here."""

    version: str = Field(description="of Stormpetrel", examples=["0.1.0"])
    api: str = Field(description="of this API", examples=["v1"])

"""One person's own page as JSON."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.alarms import IncidentLine
from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request
from stormpetrel.answers.schemas.history import EnergyBasis


class PersonalQuestion(Question):
    """Whose page, and of how many weeks."""

    weeks: Literal["1", "4", "12", "52"] = Field(default="4", description="of jobs that ended in the last so many weeks")
    user: str | None = Field(default=None, max_length=128, description="you, if left out; only administrators see others")


class PeerComparison(Answer):
    """How often jobs of others fail, at your mix of groups and applications: a mean over people, in whole per cent."""

    failed_share: float = Field(description="the mean failure rate of people alike, rounded to whole per cent", examples=[0.08])
    fewest: int = Field(description="the smallest number of others behind any part of it; never below five")
    compared: float = Field(description="the part of your jobs that could be compared")
    levels: dict[str, float] = Field(
        description="with whom, in parts of those jobs: `account+application`, `application`, `account` or `site`",
        examples=[{"account+application": 0.8, "application": 0.2}],
    )


class UsedShares(Answer):
    """How well requests were used; null where the records do not say."""

    cpu: float | None = Field(description="CPU time, as a part of the cores' time")
    memory: float | None = Field(description="median of peak memory over requested memory")
    time: float | None = Field(description="run time, as a part of the limits")


class PersonalApplication(Answer):
    """Your jobs of one application."""

    application: str
    jobs: int
    failed_jobs: int
    core_hours: float
    lost_core_hours: float = Field(description="held by jobs that failed")
    lost_kwh: float | None = Field(default=None, description="the energy of the same jobs, measured or estimated")
    peers_failed_share: float | None = Field(description="the same of others, where at least five could be compared with")


class PersonalChange(Answer):
    """What to change in one of your applications, out of its latest failed job."""

    application: str
    job: str
    ref: str
    state: str
    why: str = Field(description="why it failed, as far as that can be told; may be empty")
    sentence: str = Field(description="what to do; may be empty")
    line: str | None = Field(description="how to write it in the script", examples=["#SBATCH --mem=8G"])


class DigestChoice(Answer):
    """Whether you get the weekly digest by mail."""

    wanted: bool
    possible: bool = Field(description="false: this site sends no digests")
    address: str | None = Field(description="where it goes")
    next: IsoTime | None = Field(description="when the next one is due")


class DigestAct(Request):
    """Whether you want the weekly digest by mail."""

    wanted: bool = Field(description="true: once a week from the next appointed time on; false: no more of them")
    address: str | None = Field(None, max_length=320, description="where to; your own address at this site, if left out")


class PersonalSummary(Answer):
    """Your own page: failures beside those of people alike, waste, what to change, incidents. Nobody else is named in it."""

    user: str
    weeks: int
    first: date
    last: date
    as_of: IsoTime
    jobs: int = Field(description="that ended")
    failed_jobs: int
    failed_share: float | None
    peers: PeerComparison | None = Field(description="null where fewer than five people could be compared with")
    core_hours: float
    lost_core_hours: float
    kwh: float | None = Field(default=None, description="energy of your jobs, measured or estimated")
    lost_kwh: float | None = Field(default=None, description="the same of your failed jobs")
    lost_co2_kg: float | None = Field(default=None, description="of `lost_kwh`; null where the site does not say what a kWh is")
    energy: EnergyBasis | None = Field(default=None, description="how the energy is known")
    used: UsedShares
    applications: list[PersonalApplication] = Field(description="what lost the most core hours first")
    changes: list[PersonalChange] = Field(description="what to change, where the most was lost first")
    incidents: list[IncidentLine] = Field(description="of these weeks, that concern your jobs")
    digest: DigestChoice
    notes: list[str]

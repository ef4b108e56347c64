"""Failure rates over time."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question

Rate = Annotated[float, Field(ge=0, le=1)]
_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class TrendsQuestion(Question):
    """Which trends."""

    by: Literal["user", "account", "application", "node", "profile", "partition"] = Field(
        default="user", description="whose failure rates"
    )
    every: Literal["1d", "1w", "1mo", "1q", "1y"] = Field(default="1w", description="per day, week, month, quarter or year")
    group: str | None = Field(default=None, min_length=1, max_length=256, description="only this one", examples=["ada"])
    top: int = Field(default=10, ge=1, le=1000, description="so many groups, those with the most failures")
    last: int | None = Field(default=None, ge=1, le=520, description="over so many periods; all if left out")


class TrendPoint(Answer):
    """The failure rate of one group in one period, with its 95 % interval."""

    by: str
    every: str
    group: str = Field(examples=["ada"])
    period: date = Field(description="its first day; of a week the Monday")
    jobs: int
    failed: int
    rate: Rate
    low: float
    high: float


class Mover(Answer):
    """A group whose failure rate in the last period is not what it was before."""

    by: str
    group: str
    period: date
    jobs: int
    failed: int
    rate: Rate
    earlier_jobs: int
    earlier_failed: int
    earlier_rate: Rate
    p_value: Rate = Field(description="how likely such a change is by chance (Fisher's exact test)")
    sentence: str = Field(examples=["user ada: 12 of 14 jobs failed in the week of 9 November; 8 % before"])


class Trends(Answer):
    """Failure rates over time."""

    by: str
    every: str
    group: str | None
    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    jobs: int = Field(description="ended jobs behind it")
    failed: int
    never_started: int = Field(description="jobs that were over before they ran: in no rate")
    trend: list[TrendPoint]
    movers: list[Mover]

"""What failed jobs held, and what cancelling early would have saved."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question

Rate = Annotated[float, Field(ge=0, le=1)]
_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class WasteQuestion(Question):
    """Which waste."""

    by: Literal["user", "account", "application", "partition", "profile", "outcome", "week"] = Field(
        default="user", description="by what"
    )
    weeks: int | None = Field(
        default=None, ge=1, le=520, description="of jobs that ended in the last so many weeks; all if left out"
    )


class WasteGroup(Answer):
    """What the jobs of one group held, and lost."""

    group: str = Field(examples=["ada"])
    jobs: int
    failed_jobs: int
    core_seconds: int = Field(description="what its jobs held")
    lost_core_seconds: int = Field(description="what its failed jobs held")
    share: Rate = Field(description="its part of everything that was lost")


class WasteTotal(Answer):
    """What all counted jobs sum up to; the groups sum up to exactly this."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int


class Waste(Answer):
    """What failed jobs held, the largest loss first."""

    by: str
    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    first: date | None = Field(description="the first day on which a counted job ended")
    last: date | None
    groups: list[WasteGroup]
    total: WasteTotal
    uncounted: dict[str, int] = Field(description="jobs that are not in it, by why", examples=[{"not ended": 12}])
    words: dict[str, str] = Field(default={}, description="what each group is, where its name does not tell it: profiles")


class PolicyQuestion(Question):
    """How the policy is weighed."""

    price: float = Field(
        default=1.0, ge=0, le=1000, description="what a core-second of a job that is cancelled wrongly costs, against a saved one"
    )
    threshold: float | None = Field(default=None, ge=0, le=1, description="also say what this threshold would have done")


class PolicyPoint(Answer):
    """What one threshold would have done."""

    tau: Rate = Field(description="the threshold: a job with a higher risk is cancelled")
    cancelled: int
    failed_cancelled: int = Field(description="of these, how many would have failed anyway")
    wrong_kills: int = Field(description="of these, how many would have completed")
    saved_core_seconds: int
    wrong_core_seconds: int
    redo_core_seconds: int
    net_core_seconds: float = Field(description="saved − run again − price × wrongly cancelled")
    wrong_share: float | None = Field(description="part of all jobs that would have completed which it stops")


class CancelPolicy(Answer):
    """What cancelling two minutes in would have done, replayed on what was forecast then."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    jobs: int = Field(description="jobs that still ran after two minutes, had a forecast and have ended")
    failed_jobs: int
    ended_before: int = Field(description="jobs that had ended by then")
    best: PolicyPoint = Field(description="the threshold with the highest net; judge it on later jobs")
    at: PolicyPoint | None = Field(description="the threshold that was asked for")
    points: list[PolicyPoint]
    wrong_kill_price: float | None = Field(
        default=None, description="what a wrongly cancelled core-second costs, against a saved one"
    )
    cancel_at_s: int = Field(default=120, description="seconds after its start at which a job is cancelled")

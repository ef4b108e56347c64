"""The kinds of jobs that a site runs."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer

_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class Profile(Answer):
    """One kind of jobs."""

    profile: int
    words: str = Field(
        description="what it is like", examples=["small, short jobs (1–4 CPUs, typically 12 min) that mostly complete"]
    )
    jobs: int = Field(description="how many of the jobs that you may see")
    cpu_mean: float | None
    mem_gb_mean: float | None
    run_time_s_mean: float | None
    wait_time_s_mean: float | None
    duration: dict[str, int] = Field(description="jobs by how long they ran")
    activity: dict[str, int] = Field(description="users by how much they run")
    status: dict[str, int] = Field(description="jobs by how they ended")
    types: dict[str, int] = Field(description="jobs by what they ask for")


class Profiles(Answer):
    """The kinds of jobs that the site runs."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    version: int | None = Field(description="version of the model `jobs-profiles`; null where there is none yet")
    why: str = Field(description="why so many")
    jobs: int
    never_started: int = Field(description="jobs that are not among these: they were over before they ran")
    profiles: list[Profile]

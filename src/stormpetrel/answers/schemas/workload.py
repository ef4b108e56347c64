"""The workload and its generator as JSON, and what may be asked of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, JsonValue

from stormpetrel.answers.schemas.base import Answer, Request

MOST_JOBS: Final = 200_000  # in one file: more takes longer than anybody waits for a page
MOST_DAYS: Final = 3660.0
MOST_TIMES: Final = 100.0
MOST_YEARS: Final = 20.0
MOST_SEED: Final = 2**31 - 1
MOST_CORES: Final = 100_000_000
Times = Annotated[float, Field(ge=0.01, le=MOST_TIMES, allow_inf_nan=False)]


class WorkloadGroup(Answer):
    """Users that can be asked for by a name; the names are the generator's, not the site's."""

    name: str
    words: str = Field(description="who they are")


class WorkloadGenerator(Answer):
    """The generator in use."""

    training: str = Field(examples=["synth-3"])
    generator: str = Field(description="of which kind it is", examples=["sessions"])
    fitted_at: datetime
    jobs: int = Field(description="how many it has learnt from")
    since: datetime | None = Field(description="submission of the first of them")
    until: datetime = Field(description="up to when jobs were known")
    table_version: int | None = Field(description="of the job table that it has seen")
    columns: list[str] = Field(description="what it makes of each job besides the time of its submission")
    groups: list[WorkloadGroup]
    scorecard: dict[str, JsonValue] | None = Field(
        description="fitted on odd weeks, scored on even ones, as `stormpetrel synth evaluate` prints it; null: see `not_scored`"
    )
    scored_jobs: int | None = Field(description="the newest ones: how many the scorecard is of")
    not_scored: str = Field(description="why there is no scorecard; empty: there is one")


class WorkloadFitting(Answer):
    """How far the fitting of another generator is, as it was last asked for on the page."""

    running: bool
    share: float = Field(description="0 to 1")
    words: str
    problem: str = Field(description="why the last one came to nothing; empty: it did not")


class WorkloadAnswer(Answer):
    """The generator of the site's workload: which is in use, and how good it is."""

    as_of: datetime
    generator: WorkloadGenerator | None = Field(description="null: none has been fitted yet")
    fitting: WorkloadFitting


class WorkloadRequest(Request):
    """Which jobs are to be made: `jobs` or `days`, and what should be different from the log that was learnt from."""

    jobs: int | None = Field(None, ge=1, le=MOST_JOBS, description="how many jobs; this or `days`", examples=[10_000])
    days: float | None = Field(None, ge=0.01, le=MOST_DAYS, allow_inf_nan=False, description="how many days; this or `jobs`")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="the same seed gives the same jobs")
    start: AwareDatetime | None = Field(
        None, strict=False, description="submission of the first job, 1980 to 2105; without it that of the log"
    )
    users: Times = Field(1.0, description="how many times as many users")
    gpu_jobs: Times = Field(1.0, description="how many times as large a share of jobs that ask for GPUs")
    group: str | None = Field(None, min_length=1, max_length=200, description="only this group of users, by its `name`")
    later_years: float = Field(
        0.0, ge=-MOST_YEARS, le=MOST_YEARS, allow_inf_nan=False, description="carry the growth of the log on by so many years"
    )
    waits: bool = Field(False, description="with starts and waits out of a simulated scheduler")
    cores: int | None = Field(
        None, ge=1, le=MOST_CORES, description="of the machine that it runs; without it one that is kept 70 % busy"
    )
    format: Literal["swf", "sacct", "csv", "parquet"] = Field("swf", description="of the file", examples=["csv"])

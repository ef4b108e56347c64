"""The workload of a site and its generator: which is in use, how good it is, and jobs made by one."""

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
    """Users that can be requested by a name; the names are the generator's, not the site's."""

    name: str
    words: str = Field(description="who they are")


class WorkloadScore(Answer):
    """One figure of a scorecard next to its ideal, and next to what real weeks reach among themselves."""

    measure: str = Field(examples=["Lag-1 autocorrelation"])
    value: float | None = Field(description="of the synthetic jobs; the mean where it was measured over seeds")
    ideal: float | None = Field(description="what a perfect copy would reach")
    floor: float | None = Field(description="the same figure of real odd weeks against real even ones")
    times_floor: float | None = Field(description="how many times as far from the ideal as the floor is")
    verdict: Literal["near", "off", "open"] = Field(description="`open`: it cannot be said")
    meaning: str


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
    scores: list[WorkloadScore] = Field(
        default=[], description="the figures of the scorecard: main columns, the order of jobs, privacy, other columns"
    )


class WorkloadFitting(Answer):
    """How far the fitting of another generator is, as it was last requested on the page."""

    running: bool = False
    share: float = Field(default=0.0, description="0 to 1")
    words: str = Field(default="", description="what it is doing")
    problem: str = Field(default="", description="why the last one came to nothing; empty: it did not")
    done: str = Field(default="", description="the training that the last one ended with; empty: none", examples=["synth-3"])


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


class SampleSchedule(Answer):
    """What a simulated scheduler made of the jobs, and the machine that it ran."""

    cores: int
    gpus: int
    mean_wait_s: float | None = Field(description="null: there are no jobs")
    too_large: int = Field(description="jobs that asked for more cores than there are; each was given all of them")


class SampleTraces(Answer):
    """The CPU traces next to the jobs of a folder."""

    nodes: int
    threads: int
    hours: float
    jobs: int = Field(description="how many of the jobs ran on these nodes meanwhile")
    until: datetime


class WorkloadSample(Answer):
    """The receipt of a sample: which jobs were made, and where they lie."""

    jobs: int
    users: int
    first: datetime | None = Field(description="submission of the first job; null: there are no jobs")
    last: datetime | None
    core_hours: float
    seconds: float = Field(description="that it took")
    output: str = Field(description="the file or folder; empty: they were printed")
    format: str
    seed: int
    schedule: SampleSchedule | None = Field(default=None, description="null: no scheduler was asked for")
    traces: SampleTraces | None = Field(default=None, description="null: none were asked for")
    events: dict[str, int] | None = Field(default=None, description="counts of the events beside the jobs of a folder, by kind")


class LearntWorkload(Answer):
    """The receipt of a fitting on a log: what the generator has seen, and where it lies."""

    jobs: int
    users: int | None = Field(description="null: the log does not name them")
    days: float
    first: datetime | None = Field(description="submission of the first job; null: the log has no clock")
    last: datetime | None
    columns: list[str] = Field(description="what it makes of each job besides the time of its submission")
    notes: list[str]
    model: str = Field(description="the folder")
    generator: str = Field(description="of which kind it is", examples=["sessions"])
    seed: int
    groups: dict[str, str] = Field(description="users that can be asked for: name, and who they are")


class ColumnDistance(Answer):
    """How far a column of numbers is from the real one: Kolmogorov-Smirnov, and Wasserstein in the unit of the column."""

    ks: float | None
    w1: float | None


class CategoryDistance(Answer):
    """Total variation of the shares of a column's values, compared by `name`, or by `rank` where names are new."""

    tv: float | None
    by: str


class FigurePair(Answer):
    """One figure of both workloads."""

    real: float | None
    synthetic: float | None


class WorkloadFidelity(Answer):
    """How alike a real and a synthetic workload are; null where a figure cannot be had."""

    columns: dict[str, ColumnDistance]
    categories: dict[str, CategoryDistance]
    lag1: FigurePair
    acf_mae: float | None
    dispersion: FigurePair
    hour_profile_tv: float | None
    same_user_share: FigurePair
    notes: list[str]


class WorkloadComparison(Answer):
    """A real log and synthetic ones next to it, by their names, in the order in which they were named."""

    jobs: int = Field(description="of the real log")
    synthetic: dict[str, WorkloadFidelity]
    output: str | None = Field(description="the page or picture; null: none was asked for")
    notes: list[str] = Field(description="about the real log")


class WorkloadEvaluation(Answer):
    """How good a synthetic log is, or a generator."""

    title: str
    scorecard: dict[str, JsonValue] = Field(description="every figure, as it is kept beside a generator")
    scores: list[WorkloadScore]
    notes: list[str] = Field(description="those of the scorecard")


class SiteWorkload(Answer):
    """The newest jobs of a site next to as many new ones; `scorecard` is null where the generator was fitted just for this."""

    jobs: int = Field(description="of each kind")
    generator: str = Field(description="of which kind it is", examples=["sessions"])
    training: str | None = Field(description="null: it was fitted for this and not kept", examples=["synth-3"])
    learnt_from: int = Field(description="jobs")
    scorecard: dict[str, JsonValue] | None
    scores: list[WorkloadScore]
    fidelity: WorkloadFidelity | None = Field(description="the cheap figures, where there is no scorecard")

"""Groups: users by how much they submit, jobs by how long they run and by what they need most.

prepared frame -> `activity`, `duration`, `job_type`; the limits are one dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.jobs.preparation import UNKNOWN

ACTIVITIES: Final = ("Frequent", "Infrequent", "New")
DURATIONS: Final = ("Long", "Medium", "Short")
JOB_TYPES: Final = ("Balanced", "Compute", "Memory")


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Where one group ends and the next begins.

    Parameters
    ----------
    short_below_s, long_above_s
        One hour and a working day of eight: what is back before lunch, the same day, or tomorrow.
    new_below_jobs, frequent_from_jobs
        A failure rate near one half is known to 16 points (one standard error) after 10 jobs of a user, to 5 after 100.
    mem_factor
        A job is Memory or Compute where its memory per CPU is more than this many times the site's median, or less than one
        such part of it.
    site_mem_per_cpu_gb
        The site's median memory per CPU (GiB); None takes it from the jobs at hand.
    """

    short_below_s: float = 3600.0
    long_above_s: float = 8 * 3600.0
    new_below_jobs: int = 10
    frequent_from_jobs: int = 100
    mem_factor: float = 2.0
    site_mem_per_cpu_gb: float | None = None

    def __post_init__(self) -> None:
        for low, high in (("short_below_s", "long_above_s"), ("new_below_jobs", "frequent_from_jobs")):
            if getattr(self, low) > getattr(self, high):
                raise UsageError(
                    f"The group limit {low} = {getattr(self, low)} lies above {high} = {getattr(self, high)}.",
                    hint="Give limits that rise.",
                )
        if self.mem_factor < 1.0:
            raise UsageError(
                f"The group limit mem_factor = {self.mem_factor} is below 1, so that a job could be Compute and Memory at once.",
                hint="Give a factor of 1 or more.",
            )


def activity(limits: GroupLimits = GroupLimits()) -> pl.Expr:
    """How active the job's user had been when it was submitted: by the user's jobs with an earlier submission.

    Null where the user is not known. In the first weeks of a log everybody is New: it does not know who was there before.
    """
    known = pl.when((pl.col("user") != UNKNOWN).fill_null(False)).then(pl.col("user_jobs_before"))
    return activity_by_count(known, limits).alias("activity")


def duration(limits: GroupLimits = GroupLimits()) -> pl.Expr:
    """How long a job ran, known at its end: Short, Medium or Long; null where the log does not tell."""
    run = pl.when(_is_recorded("run_time_s")).then(pl.col("run_time_s"))
    return (
        pl.when(run < limits.short_below_s)
        .then(pl.lit("Short"))
        .when(run > limits.long_above_s)
        .then(pl.lit("Long"))
        .when(run.is_not_null())
        .then(pl.lit("Medium"))
        .alias("duration")
    )


def job_type(limits: GroupLimits = GroupLimits()) -> pl.Expr:
    """What a job holds most of, against the site's median memory per CPU; null where memory or CPUs are not told."""
    per_cpu = mem_per_cpu_gb()
    site = per_cpu.median() if limits.site_mem_per_cpu_gb is None else pl.lit(limits.site_mem_per_cpu_gb)
    return (
        pl.when(per_cpu > limits.mem_factor * site)
        .then(pl.lit("Memory"))
        .when(per_cpu < site / limits.mem_factor)
        .then(pl.lit("Compute"))
        .when(per_cpu.is_not_null())
        .then(pl.lit("Balanced"))
        .alias("job_type")
    )


def mem_per_cpu_gb() -> pl.Expr:
    """Memory per CPU (GiB) of each job; null where either is not told."""
    both = _is_recorded("mem_gb") & _is_recorded("cpu") & (pl.col("cpu") > 0)
    return pl.when(both).then(pl.col("mem_gb") / pl.col("cpu"))


def user_groups(jobs: pl.DataFrame, limits: GroupLimits = GroupLimits()) -> pl.DataFrame:
    """Each known user of a log with the number of jobs and the activity over the whole of it: for description, not a feature."""
    known = jobs.filter(pl.col("user").is_not_null() & (pl.col("user") != UNKNOWN))
    counted = known.group_by("user").agg(jobs=pl.len().cast(pl.Int64))
    return counted.with_columns(activity_by_count(pl.col("jobs"), limits).alias("activity")).sort(
        ["jobs", "user"], descending=[True, False]
    )


def activity_by_count(count: pl.Expr, limits: GroupLimits) -> pl.Expr:
    """How active a user with so many jobs is."""
    return (
        pl.when(count < limits.new_below_jobs)
        .then(pl.lit("New"))
        .when(count >= limits.frequent_from_jobs)
        .then(pl.lit("Frequent"))
        .when(count.is_not_null())
        .then(pl.lit("Infrequent"))
    )


def _is_recorded(column: str) -> pl.Expr:
    """Whether the log records this value: an imputed one would only say what the median is."""
    return pl.col("imputed").list.contains(column).not_() & pl.col(column).is_not_null()

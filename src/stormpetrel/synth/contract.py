"""What every generator of workloads keeps to.

Workload -> fit -> generator -> batches -> frames of new jobs, in the order of their submission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, Self

import polars as pl

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import UsageError
from stormpetrel.synth.workload import Workload

MOST_JOBS = 1_000_000_000
MOST_TIMES = 1000.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a generator: how much, from when, and what should be different from the log it learnt from.

    One of `jobs` and `days`; without both, as many days as the log had. `users` is how many times as many users, `gpu_jobs` how
    many times as large a share of jobs that ask for a GPU, `group` the name that the generator gave to a group of users
    (`groups()`), `later_years` how far the growth of the log is carried on.
    """

    jobs: int | None = None
    days: float | None = None
    seed: int = 0
    start: datetime | None = None
    users: float = 1.0
    gpu_jobs: float = 1.0
    group: str | None = None
    later_years: float = 0.0

    def __post_init__(self) -> None:
        if self.jobs is not None and self.days is not None:
            raise UsageError("Both a number of jobs and a number of days were requested.", hint="Ask for one of them.")
        if self.jobs is not None and not 0 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"{self.jobs} jobs cannot be made.", hint=f"Ask for 0 to {MOST_JOBS:,}.")
        if self.days is not None and not 0 < self.days <= 36_525:
            raise UsageError(f"{self.days} days cannot be made.", hint="Ask for more than 0 and at most 36,525.")
        if self.seed < 0:
            raise UsageError(f"The seed {self.seed} is negative.", hint="A seed is a whole number from 0 on.")
        for name, value in (("users", self.users), ("gpu_jobs", self.gpu_jobs)):
            if not 0 < value <= MOST_TIMES:
                raise UsageError(f"{name} = {value} makes no sense.", hint=f"It is a factor above 0, at most {MOST_TIMES:g}.")
        if not -100 <= self.later_years <= 100:
            raise UsageError(f"later_years = {self.later_years} makes no sense.", hint="It is a number of years, such as 1.")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of those wishes that only a generator of users can grant."""
        changed = {"users": self.users != 1, "gpu_jobs": self.gpu_jobs != 1, "group": self.group is not None}
        return (*(name for name, differs in changed.items() if differs), *(("later_years",) if self.later_years else ()))


class WorkloadGenerator(Protocol):
    """Anything that learns a workload and makes new ones."""

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Learn from a workload; NotEnoughJobsError in one sentence where it is too small to learn from."""
        ...

    def batches(self, wanted: Wanted) -> Iterator[pl.DataFrame]:
        """New jobs in the order of submission, some ten thousand at a time: memory does not grow with their number.

        The frames have the columns of the workload learnt from, without `wait_s`; users, groups and accounts have new names.
        """
        ...

    def groups(self) -> dict[str, str]:
        """The groups of users that can be asked for: name -> what they are, in words. Empty where there are none."""
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet, whole or not at all."""
        ...


def sample(generator: WorkloadGenerator, wanted: Wanted) -> Workload:
    """New jobs, all in memory."""
    return Workload(pl.concat(generator.batches(wanted)))


def refuse_conditions(wanted: Wanted, name: str) -> None:
    """UsageError where a generator of rows is asked for something that only users and sessions can give."""
    if wanted.conditions:
        raise UsageError(
            f"The generator '{name}' draws rows and cannot change {_as_text(wanted)}.",
            hint="Use the default generator (sessions).",
        )


_WORDS = {"users": "the number of users", "gpu_jobs": "the share of GPU jobs", "group": "the group", "later_years": "the year"}


def _as_text(wanted: Wanted) -> str:
    return ", ".join(_WORDS[name] for name in wanted.conditions)

"""What is new in a site's work: applications, users and accounts that were not there before, and load that grows.

job records + moment -> work_changes -> Changes. Neither is an anomaly: what is new has no past that it could be unusual against.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed

SPAN: Final = timedelta(days=7)  # whose load is compared with that of the weeks before
NEW_FOR: Final = timedelta(days=14)  # after its first job something is new: models have hardly seen it yet
PAST: Final = timedelta(days=28)  # in which it was not there
SHORTEST_PAST: Final = timedelta(days=10)  # before that nobody can tell what is new
FEWEST_JOBS: Final = 5  # of something new that is worth a line
GROUPS: Final = ("application", "user", "account")
_DRAWS: Final = 500
_GROWS: Final = 1.1  # load that is surely more than so many times the load before has grown


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An application, user or account that is new: since when, and its share of the work since then, or of the last week."""

    by: str  # application, user or account
    name: str
    since: datetime
    jobs: int
    share_of_jobs: float
    share_of_load: float  # of the core hours of jobs that have ended
    share_of_failures: float
    failure_rate: float
    users: int


@dataclass(frozen=True, slots=True)
class LoadChange:
    """Submitted jobs a day in the last days against the weeks before, with the interval in which 90 of 100 such ratios lie."""

    ratio: float
    low: float
    high: float
    jobs_a_day: float
    earlier_jobs_a_day: float

    @property
    def grows(self) -> bool:
        """Whether the load has surely grown."""
        return self.low > _GROWS


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed by a moment; `load` is None where the past is too short."""

    since: datetime
    until: datetime
    newcomers: tuple[Newcomer, ...] = ()  # those with most jobs first
    load: LoadChange | None = None

    def names(self, by: str) -> frozenset[str]:
        """Return the new applications, users or accounts."""
        return frozenset(newcomer.name for newcomer in self.newcomers if newcomer.by == by)


def named_work(jobs: pl.DataFrame, failure_states: tuple[str, ...]) -> pl.DataFrame:
    """Return what changes are counted from: submit_time, end_time, application, user, account, cores × seconds, failed."""
    return jobs.select(
        "submit_time",
        "start_time",
        "end_time",
        pl.col("user", "account").fill_null(""),
        application=family().fill_null(""),
        core_s=pl.coalesce("cpus", "req_cpus", pl.lit(1)).cast(pl.Float64) * pl.col("elapsed_s").fill_null(0),
        failed=failed(failure_states, ()).fill_null(False),
    )


def work_changes(work: pl.DataFrame, now: datetime) -> Changes:
    """Return what is new at `now`, out of `named_work`; what is submitted later is not looked at, nor an end that comes later."""
    since = now - NEW_FOR
    known = work.filter(pl.col("submit_time") <= now, pl.col("submit_time") > since - PAST)
    first = known["submit_time"].min()
    if not isinstance(first, datetime) or now - SPAN - first < SHORTEST_PAST:
        return Changes(since, now)
    over = (pl.col("end_time") <= now).fill_null(False)
    known = known.with_columns(core_s=pl.when(over).then("core_s").otherwise(0.0), failed=pl.col("failed") & over)
    newest = max(since, first + SHORTEST_PAST)
    newcomers = [newcomer for by in GROUPS for newcomer in _newcomers(known, by, newest, now)]
    newcomers.sort(key=lambda newcomer: (-newcomer.jobs, GROUPS.index(newcomer.by), newcomer.name))
    return Changes(since, now, tuple(newcomers), _load(known, now - SPAN, first))


def _newcomers(known: pl.DataFrame, by: str, since: datetime, now: datetime) -> list[Newcomer]:
    """What was submitted since a moment by groups that had submitted nothing before."""
    groups = known.filter(pl.col(by) != "").group_by(pl.col(by).alias("name"))
    counted = groups.agg(
        since=pl.col("submit_time").min(),
        jobs=pl.len(),
        core_s=pl.col("core_s").sum(),
        failed=pl.col("failed").sum(),
        users=pl.col("user").n_unique(),
    )
    new = counted.filter(pl.col("since") > since, pl.col("jobs") >= FEWEST_JOBS)
    return [_newcomer(by, row, known.filter(pl.col("submit_time") >= min(row["since"], now - SPAN))) for row in new.to_dicts()]


def _newcomer(by: str, row: dict[str, Any], lately: pl.DataFrame) -> Newcomer:
    core_s, failures = lately["core_s"].sum(), lately["failed"].sum()
    return Newcomer(
        by=by,
        name=row["name"],
        since=row["since"],
        jobs=row["jobs"],
        share_of_jobs=row["jobs"] / lately.height,
        share_of_load=row["core_s"] / core_s if core_s else 0.0,
        share_of_failures=row["failed"] / failures if failures else 0.0,
        failure_rate=row["failed"] / row["jobs"],
        users=row["users"],
    )


def _load(known: pl.DataFrame, since: datetime, first: datetime) -> LoadChange | None:
    """Jobs a day of the last days over those of whole weeks before, so that every weekday counts as often; days are resampled."""
    weeks = min(int(PAST / SPAN), (since - first) // timedelta(days=7))
    if weeks < 1:
        return None
    begin = since - weeks * timedelta(days=7)
    age = (known.filter(pl.col("submit_time") > begin)["submit_time"] - begin).dt.total_seconds().to_numpy() // 86_400
    counts = np.bincount(age.astype(np.int64), minlength=7 * weeks + 7)[: 7 * weeks + 7].astype(np.float64)
    before, lately = counts[: 7 * weeks], counts[7 * weeks :]
    if not before.mean():
        return None
    rng = np.random.default_rng(0)
    draws = rng.choice(lately, (_DRAWS, lately.size)).mean(axis=1) / np.maximum(
        rng.choice(before, (_DRAWS, before.size)).mean(axis=1), 1e-9
    )
    low, high = np.quantile(draws, [0.05, 0.95])
    return LoadChange(float(lately.mean() / before.mean()), float(low), float(high), float(lately.mean()), float(before.mean()))

"""What is in a site, in a few numbers: jobs, users, states, waits, and how the weeks went.

JobFrame -> summarise -> SiteSummary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from stormpetrel.records.jobs import never_started


@dataclass(frozen=True, slots=True)
class Week:
    """One week of submissions, without jobs that never started."""

    monday: datetime
    jobs: int
    failed: int


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """A site at a glance; times are UTC, spans in seconds."""

    jobs: int
    users: int
    first: datetime | None
    last: datetime | None
    states: dict[str, int]  # as recorded
    never_started: int  # of those: over before they ran, and so neither succeeded nor failed
    wait_median_s: float | None
    wait_p90_s: float | None
    core_hours: float
    core_hours_failed: float
    weeks: list[Week]
    worst_nodes: list[tuple[str, int, int]]  # node, failed, ended; half failed or more, of at least 5, in the last fortnight


def summarise(jobs: pl.LazyFrame, failure_states: Sequence[str]) -> SiteSummary:
    """Count a job frame; a failure is what the site's settings call one."""
    failed = pl.col("state").is_in(list(failure_states)) & ~never_started()
    core_s = pl.col("elapsed_s") * pl.col("cpus")
    wait_s = (pl.col("start_time") - pl.col("submit_time")).dt.total_seconds()
    totals = jobs.select(
        jobs=pl.len(),
        users=pl.col("user").drop_nulls().n_unique(),
        first=pl.col("submit_time").min(),
        last=pl.col("submit_time").max(),
        wait_median_s=wait_s.median(),
        wait_p90_s=wait_s.quantile(0.9),
        core_s=core_s.sum(),
        never_started=never_started().sum(),
        failed_core_s=core_s.filter(failed).sum(),
    ).collect()
    row = totals.row(0, named=True)
    states = jobs.group_by("state").len().sort("len", "state", descending=[True, False]).collect()
    weeks = (
        jobs.filter(~never_started())
        .group_by(pl.col("submit_time").dt.truncate("1w").alias("week"))
        .agg(pl.len(), failed.sum().alias("failed"))
        .sort("week")
        .collect()
    )
    return SiteSummary(
        jobs=row["jobs"],
        users=row["users"],
        first=row["first"],
        last=row["last"],
        states=dict(states.iter_rows()),
        never_started=row["never_started"],
        wait_median_s=row["wait_median_s"],
        wait_p90_s=row["wait_p90_s"],
        core_hours=row["core_s"] / 3600,
        core_hours_failed=row["failed_core_s"] / 3600,
        weeks=[Week(monday, count, bad) for monday, count, bad in weeks.iter_rows()],
        worst_nodes=_worst_nodes(jobs, failed, row["last"]),
    )


def _worst_nodes(jobs: pl.LazyFrame, failed: pl.Expr, last: datetime | None) -> list[tuple[str, int, int]]:
    """Nodes on which, in the last fortnight of the log, at least half of the jobs failed."""
    if last is None:
        return []
    recent = jobs.filter(
        pl.col("submit_time") > last - timedelta(days=14), pl.col("end_time").is_not_null(), pl.col("nodes") == 1
    )
    by_node = recent.group_by("node_list").agg(failed.sum().alias("failed"), pl.len().alias("ended"))
    bad = by_node.filter(pl.col("node_list").is_not_null(), pl.col("ended") >= 5, pl.col("failed") * 2 >= pl.col("ended"))
    return [tuple(row) for row in bad.sort("failed", "node_list", descending=[True, False]).head(3).collect().iter_rows()]

"""Did a job run on a disturbed host? From how it, and what ran beside it, compares with its like before.

jobs that ran, with run time and system CPU time -> disturbed -> the same rows with `disturbed`: higher is more likely.

A job is compared with the last jobs of its task that ended before it, whichever host they ran on: a robust z of the logarithm of
its run time and of its system CPU time. What a host does to jobs it does to all of them, so the z of the jobs that ran on it
together are added up. Run times speak when they are longer: a slow disk shows. A host with fewer CPUs hardly changes how long
jobs of one thread take, but their system CPU time falls (measured on two public workflows: benchmarks/alarm_hosts.py).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import polars as pl

LIKE: Final = 200  # jobs of the same task that a job is compared with, at most
FEWEST_LIKE: Final = 10
MEASURES: Final = ("elapsed_s", "system_cpu_s")
TOGETHER: Final = timedelta(hours=1)  # jobs of a node that end in the same span of this length speak together
_SMALLEST_SPREAD: Final = 0.02  # of a logarithm: two per cent are nothing
_LARGEST_Z: Final = 8.0
_TO_SIGMA: Final = 1.4826  # from a median of deviations to the standard deviation of a normal distribution


def disturbed(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with `disturbed`, how much their host slows or changes what runs on it; 0 where nothing is known.

    Parameters
    ----------
    jobs
        task (what makes jobs alike), host, together (jobs of a host with the same value speak together), at (end, or any order of
        time), elapsed_s and system_cpu_s in seconds, null where unknown.
    """
    order = jobs.with_row_index("_row").sort("at", "_row").with_columns(_z(name).alias(f"_{name}") for name in MEASURES)
    pooled = order.with_columns(
        (pl.col(f"_{name}").sum() / pl.col(f"_{name}").len().sqrt()).over("host", "together").alias(f"_{name}")
        for name in MEASURES
    )
    scored = pooled.with_columns(disturbed=pl.col("_elapsed_s").clip(0) - pl.col("_system_cpu_s"))
    return scored.sort("_row").drop("_row", *(f"_{name}" for name in MEASURES))


def as_tasks(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return job records that ran to their end on one node as `disturbed` takes them: alike are those of a user and application.

    `jobs` has cluster, user, application, node_list, end_time, state, elapsed_s and system_cpu_s.
    """
    whole = jobs.filter(pl.col("state") == "COMPLETED", pl.col("node_list").is_not_null(), pl.col("end_time").is_not_null())
    return whole.with_columns(
        task=pl.concat_str("cluster", "user", "application", separator="\n", ignore_nulls=True),
        host=pl.concat_str("cluster", "node_list", separator="\n", ignore_nulls=True),
        together=pl.col("end_time").dt.truncate(f"{round(TOGETHER.total_seconds())}s"),
        at="end_time",
    )


def _z(name: str) -> pl.Expr:
    """How many robust standard deviations a job is above its like before it; 0 where there are too few of these."""
    value = pl.col(name).cast(pl.Float64).log1p()
    usual = value.shift(1).rolling_median(LIKE, min_samples=FEWEST_LIKE).over("task")
    apart = (value - usual).abs()
    spread = _TO_SIGMA * apart.shift(1).rolling_median(LIKE, min_samples=FEWEST_LIKE).over("task")
    return ((value - usual) / spread.clip(_SMALLEST_SPREAD)).clip(-_LARGEST_Z, _LARGEST_Z).fill_nan(None).fill_null(0.0)

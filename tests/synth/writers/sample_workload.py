"""A workload as a generator gives it: frames in the order of submission."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import polars as pl

START = datetime(2024, 3, 4, tzinfo=UTC)


def made_workload(jobs: int, *, seed: int = 0, mean_gap_s: float = 300.0) -> pl.DataFrame:
    """Jobs of twenty users with every column that a workload knows, and two of its own; a tenth of them in arrays of five."""
    rng = np.random.default_rng(seed)
    submit_us = (START.timestamp() + np.cumsum(rng.exponential(mean_gap_s, jobs).round(6))) * 1e6
    run_s = rng.lognormal(6.5, 1.2, jobs).round(2)
    limit_s = np.ceil(run_s / 1800) * 1800.0
    state = rng.choice(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"], jobs, p=[0.7, 0.15, 0.1, 0.05])
    user = np.array([f"user{number:02d}" for number in rng.integers(0, 20, jobs)])
    array = pl.Series(np.arange(jobs) // 5, dtype=pl.Int64)
    return pl.DataFrame(
        {
            "submit_time": pl.Series(submit_us.round().astype(np.int64)).cast(pl.Datetime("us", "UTC")),
            "user": user,
            "group": np.where(rng.random(jobs) < 0.5, "staff", "guests"),
            "account": "project-" + pl.Series(rng.integers(0, 4, jobs)).cast(pl.String),
            "partition": np.where(rng.random(jobs) < 0.7, "batch", "long"),
            "qos": pl.Series(["normal"] * jobs),
            "cores": 2 ** rng.integers(0, 6, jobs),
            "nodes": np.ones(jobs, dtype=np.int64),
            "gpus": rng.integers(0, 2, jobs),
            "mem_bytes": rng.integers(1, 64, jobs) * 2**30,
            "time_limit_s": limit_s,
            "runtime_s": np.where(state == "TIMEOUT", limit_s, run_s),
            "state": state,
            "array": array.set(array % 10 != 0, None),
            "colour": rng.choice(["red", "dark, blue"], jobs),
            "weight": rng.random(jobs).round(3),
        }
    )


def pieces(jobs: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
    """The same jobs, so many at a time."""
    return (jobs[at : at + size] for at in range(0, jobs.height, size))

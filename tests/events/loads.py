"""Clusters whose load, capacity and waits are known: jobs of one hour, so that what is handed in is what runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from stormpetrel.events.capacity.weeks import LoadRecord, load_of_pieces
from stormpetrel.records.jobs import JOB_SCHEMA, conform

MONDAY = datetime(2025, 1, 6, tzinfo=UTC)
CORES = 10  # of each job
HOUR_S = 3600


def load_of_jobs(jobs: pl.DataFrame, *, now: datetime, zone: str) -> LoadRecord:
    """The load of one frame."""
    return load_of_pieces(lambda: [jobs], now=now, zone=zone)


def steady_jobs(
    weeks: int = 20,
    *,
    growth: float = 0.0,
    cores: int = 400,
    load: float = 0.5,
    noise: float = 0.05,
    knee: float = 0.8,
    seed: int = 0,
) -> pl.DataFrame:
    """Jobs of ten cores and one hour; days have a rhythm; from a utilisation of `knee` on everybody waits for twenty minutes.

    `load` is the share of the cores that is asked for in the last week, on average.
    """
    rng = np.random.default_rng(seed)
    hour = np.arange(weeks * 168)
    week = hour // 168
    level = load * np.exp(np.log1p(growth) * (week - (weeks - 1)) + rng.normal(0, noise, weeks)[week])
    used = np.minimum(level * (1 + 0.35 * np.sin(2 * np.pi * (hour % 24 - 9) / 24)), 1.0)  # (hours,)
    number = np.rint(used * cores / CORES).astype(np.int64)  # (hours,) jobs
    of_job = np.repeat(hour, number)
    submit = MONDAY.timestamp() + of_job * HOUR_S + rng.integers(0, 60, of_job.size)
    wait = np.where(used[of_job] >= knee, HOUR_S // 3, 30)
    return _frame(
        submit, submit + wait, submit + wait + HOUR_S, rng.choice(["physics", "chemistry"], of_job.size, p=[0.75, 0.25])
    )


def _frame(submit: np.ndarray, start: np.ndarray, end: np.ndarray, account: np.ndarray) -> pl.DataFrame:
    size = submit.size
    frame = pl.DataFrame(
        {
            "cluster": ["made"] * size,
            "job_id": np.arange(1, size + 1),
            "restart": [0] * size,
            "user": ["ada"] * size,
            "account": account.astype(str),
            "state": ["COMPLETED"] * size,
            "elapsed_s": (end - start).astype(np.float64),
            "time_limit_s": np.full(size, 2.0 * HOUR_S),
            "cpus": [CORES] * size,
            "source": ["made"] * size,
            **{name: _times(values) for name, values in (("submit_time", submit), ("start_time", start), ("end_time", end))},
        }
    )
    return conform(frame).select(list(JOB_SCHEMA))


def _times(seconds: np.ndarray) -> pl.Series:
    return pl.from_epoch(pl.Series((seconds * 1e6).astype(np.int64)), "us").dt.replace_time_zone("UTC")


def end_of(weeks: int) -> datetime:
    """The moment at which so many weeks are over, and a little more."""
    return MONDAY + timedelta(weeks=weeks, hours=12)

"""Workloads to order, for the tests of generators and scorecard: sessions of users, in bursts, by day more than by night."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from stormpetrel.synth.workload import SUBMIT, Workload, tidy

MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def workload_at(submit_s: np.ndarray, has_clock: bool = True, **columns: object) -> Workload:
    """Jobs submitted so many seconds after a Monday, with whatever columns."""
    offset = np.round(np.asarray(submit_s, dtype=np.float64) * 1e6).astype(np.int64)
    times = pl.Series(SUBMIT, offset + int(MONDAY.timestamp()) * 1_000_000).cast(pl.Datetime("us", "UTC"))
    return tidy(pl.DataFrame({SUBMIT: times, **columns}), has_clock=has_clock)


def made_workload(n: int = 2000, *, weeks: float = 8, seed: int = 0, users: int = 12) -> Workload:
    """n jobs in sessions of about ten: each at a pace of its own, of jobs that look alike."""
    generator = np.random.default_rng(seed)
    session = np.sort(generator.integers(0, max(1, n // 10), n))  # (jobs,) the session each belongs to
    day = generator.integers(0, max(1, int(weeks * 7)), session.max() + 1)
    begins = day * 86400.0 + 3600 * np.clip(generator.normal(13, 3, day.size), 0, 23.9)
    pace_s = 10 ** generator.uniform(0, 2.5, day.size)  # some sessions are scripts, some are people
    gaps = np.cumsum(generator.exponential(1, n))
    submit_s = np.floor(begins[session] + pace_s[session] * (gaps - gaps[np.searchsorted(session, session)]))
    user = generator.integers(0, users, day.size)[session]
    cores = 2 ** (user % 6)
    return workload_at(
        submit_s,
        user=[f"user{number}" for number in user],
        partition=np.where(cores > 8, "wide", "narrow"),
        cores=cores,
        time_limit_s=3600.0 * (1 + user % 4),
        runtime_s=np.round(generator.exponential(600.0 * (1 + user % 3)), 1),
        state=np.where(generator.random(n) < 0.1, "FAILED", "COMPLETED"),
    )


def shuffled(workload: Workload, seed: int = 0) -> Workload:
    """The same intervals and the same rows, in an order that means nothing."""
    generator = np.random.default_rng(seed)
    intervals = generator.permutation(workload.interval_s())
    rows = workload.jobs.drop(SUBMIT)[generator.permutation(workload.height)]
    return workload_at(np.concatenate([[0.0], np.cumsum(intervals)]), **{name: rows[name] for name in rows.columns})


def site_workload(n: int = 4000, *, weeks: float = 10, seed: int = 0, users: int = 40, growth: float = 1.0) -> Workload:
    """n jobs of a site with everything in it: some large users and many small ones, groups, GPUs, arrays, columns of its own.

    `growth` is by how much the number of jobs grows from the first day to the last. All names have 'zz' in them.
    """
    generator = np.random.default_rng(seed)
    sessions = max(1, n // 8)
    session = np.sort(generator.integers(0, sessions, n))  # (jobs,) the session each belongs to
    days = max(1, int(weeks * 7))
    rate = np.geomspace(1.0, growth, days)
    day = generator.choice(days, sessions, p=rate / rate.sum())
    begins = day * 86400.0 + 3600 * np.clip(generator.normal(13, 3, sessions), 0, 23.9)
    pace_s = 10 ** generator.uniform(0, 2.5, sessions)
    gaps = np.cumsum(generator.exponential(1, n))
    submit_s = np.floor(begins[session] + pace_s[session] * (gaps - gaps[np.searchsorted(session, session)]))
    shares = 1.0 / np.arange(1, users + 1) ** 1.1
    user = generator.choice(users, sessions, p=shares / shares.sum())[session]
    gpus = np.where(generator.random(sessions) < 0.2, 1 + user[np.searchsorted(session, np.arange(sessions)) % n] % 4, 0)[session]
    limit_s = 1800.0 * 2 ** generator.integers(0, 5, sessions)[session]
    wanted_s = np.round(generator.exponential(0.4, n) * limit_s)
    runtime_s = np.minimum(wanted_s, limit_s + generator.integers(0, 9, n))  # schedulers grant some seconds
    ended = np.where(generator.random(n) < 0.1, "FAILED", "COMPLETED")
    array = np.where(generator.random(sessions) < 0.2, np.arange(sessions), -1)[session]
    return workload_at(
        submit_s,
        user=[f"zz-user-{number}" for number in user],
        group=[f"zz-group-{number % 4}" for number in user],
        account=[f"zz-account-{number % 7}" for number in user],
        partition=np.where(gpus > 0, "gpu", "batch"),
        cores=2 ** (user % 6),
        gpus=gpus,
        mem_bytes=(1 + user % 3) * 4_000_000_000,
        time_limit_s=limit_s,
        runtime_s=runtime_s,
        state=np.where(runtime_s >= limit_s, "TIMEOUT", ended),
        array=pl.Series(array).set(pl.Series(array < 0), None),
        app=np.where(user % 2 > 0, "lammps", "gromacs"),
        energy_j=np.round(runtime_s * generator.uniform(50, 200, n), 1),
    )


@cache
def fitted_site() -> Any:
    """The default generator, fitted once on `site_workload()`."""
    from stormpetrel.synth.sessions.generator import SessionGenerator

    return SessionGenerator().fit(site_workload())


def with_columns(workload: Workload, **columns: Any) -> Workload:
    """The same jobs with other columns, as a reader of tables would give them."""
    return tidy(workload.jobs.with_columns(**columns), has_clock=workload.has_clock)

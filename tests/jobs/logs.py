"""Logs for the tests of the jobs family: users whose habits differ, and every oddity that real logs have.

`make_log(n, seed, …)` is a job frame of hundreds of jobs; `small_logs()` draws frames of a few jobs on a coarse clock, so that
times collide.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st

from stormpetrel.records.jobs import conform, job_frame
from stormpetrel.records.times import UTC_TIME
from tests.builders import T0

FAILURES = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY")
STATES = (*FAILURES, "NODE_FAIL", "CANCELLED", "COMPLETED", "PREEMPTED", "REQUEUED", "RUNNING", "PENDING")
UNFINISHED = ("RUNNING", "PENDING")
ALLOCATION = ("cpus", "nodes", "gpus", "mem_bytes", "node_list", "alloc_tres", "eligible_time")
ENDING = (
    "end_time state_raw cancelled_by exit_code exit_signal failed_step failed_step_exit_code failed_step_exit_signal elapsed_s "
    "cpu_limit_s max_rss_bytes cpu_time_s user_cpu_s system_cpu_s disk_read_bytes disk_write_bytes extra"
).split()


def make_log(
    n: int = 600,
    seed: int = 0,
    *,
    users: int = 12,
    days: float = 40.0,
    cancelled: float = 0.1,
    never_started: float = 0.03,
    unfinished: float = 0.0,
    failures: tuple[str, ...] = FAILURES,
) -> pl.DataFrame:
    """n ended jobs in the order of submission: half of the users fail often, each in a way of his own."""
    rng = np.random.default_rng(seed)
    user = rng.integers(users, size=n)
    submit = np.sort(rng.integers(0, int(days * 86400), size=n))
    wait = rng.integers(0, 900, size=n)
    limit = rng.choice([600.0, 3600.0, 7200.0], size=n)
    run = np.minimum(np.floor(rng.lognormal(6.0, 1.5, size=n)), 0.9 * limit)
    habit = np.where(user % 2 == 0, 0.7, 0.08)
    way = np.array(failures)[user // 2 % len(failures)]
    state = np.where(rng.random(n) < habit, way, "COMPLETED")
    state = np.where(rng.random(n) < cancelled, "CANCELLED", state)
    run = np.where(state == "TIMEOUT", limit, run)
    started = ~((state == "CANCELLED") & (rng.random(n) < never_started / max(cancelled, 1e-9)))
    state = np.where(rng.random(n) < unfinished, "RUNNING", state)
    cpus = rng.choice([1, 4, 16], size=n)
    frame = pl.DataFrame(
        {
            "cluster": "petrel",
            "job_id": np.arange(n) + 1000,
            "submit_time": at(submit),
            "restart": 0,
            "user": [f"user{k}" for k in user],
            "account": [f"lab{k % 3}" for k in user],
            "partition": rng.choice(["batch", "gpu"], size=n),
            "job_name": [f"app{k % 5}_{number}" for number, k in enumerate(user)],
            "work_dir": [f"/home/user{k}" for k in user],
            "start_time": at(submit + wait),
            "end_time": at(submit + wait + run.astype(np.int64)),
            "state": state,
            "time_limit_s": limit,
            "elapsed_s": run,
            "req_cpus": cpus,
            "cpus": cpus,
            "req_nodes": 1,
            "nodes": 1,
            "req_mem_bytes": cpus * (2 << 30),
            "max_rss_bytes": rng.integers(1 << 20, 1 << 30, size=n),
            "node_list": [f"n{k:02d}" for k in rng.integers(8, size=n)],
        }
    ).with_columns(pl.Series("started", started))
    never = pl.when("started")
    open_ended = pl.when(pl.col("state") != "RUNNING")
    return conform(
        frame.with_columns(
            *(never.then(name).alias(name) for name in ("start_time", "cpus", "nodes", "node_list")),
            elapsed_s=open_ended.then(never.then("elapsed_s").otherwise(0.0)),
            end_time=open_ended.then("end_time"),
        )
    )


def at(seconds: np.ndarray) -> pl.Series:
    """Times so many seconds after T0."""
    return pl.Series(np.asarray(seconds, dtype=np.int64) * 1_000_000 + int(T0.timestamp()) * 1_000_000).cast(UTC_TIME)


def made_jobs(*rows: dict[str, object]) -> pl.DataFrame:
    """Jobs out of a few words each; `submit`, `start` and `end` are seconds after T0, and the rest has plain defaults."""
    plain: dict[str, object] = {"cluster": "petrel", "restart": 0, "user": "ada", "state": "COMPLETED", "time_limit_s": 3600.0}
    plain |= {"req_cpus": 4, "req_nodes": 1, "job_name": "fit", "partition": "batch", "work_dir": "/home/ada"}
    full = []
    for number, row in enumerate(rows):
        times = {f"{name}_time": row[name] for name in ("submit", "start", "end") if row.get(name) is not None}
        seconds = {name: T0 + timedelta(seconds=float(value)) for name, value in times.items()}  # type: ignore[arg-type]
        rest = {name: value for name, value in row.items() if name not in ("submit", "start", "end")}
        full.append({"job_id": 1 + number, **plain, **seconds, **rest})
    return job_frame(full)


def jobs_of_ada(jobs: int = 100, failed: int = 17) -> pl.DataFrame:
    """One user's jobs, one an hour, each of ten minutes; `failed` of them failed, evenly spread."""
    bad = {round((number + 0.5) * jobs / failed) for number in range(failed)}
    hours = [
        {"submit": 3600 * n, "start": 3600 * n + 60, "end": 3600 * n + 660, "elapsed_s": 600.0, "cpus": 4, "nodes": 1,
         "node_list": "n01", "state": "FAILED" if n in bad else "COMPLETED"}
        for n in range(jobs)
    ]  # fmt: skip
    return made_jobs(*hours)


def cancelled_array(tasks: int = 3000, *, submit: float = 100 * 3600.0, waited: float = 1800.0) -> pl.DataFrame:
    """An array of the same user that was cancelled while all of its tasks waited: none of them ran."""
    task = {"job_id": 900_000, "submit": submit, "end": submit + waited, "elapsed_s": 0.0, "state": "CANCELLED"}
    return made_jobs(*({**task, "array_task": number} for number in range(tasks)))


_MINUTES = st.integers(0, 12)  # a coarse clock: times collide


@st.composite
def small_logs(draw: st.DrawFn, most: int = 10) -> pl.DataFrame:
    """A few jobs with everything that is odd about real ones: ties, no user, no start, no end, clocks that go backwards."""
    rows = []
    for _ in range(draw(st.integers(1, most))):
        submit = 60 * draw(_MINUTES)
        state = draw(st.sampled_from(STATES))
        start = draw(st.none() | st.integers(-1, 6).map(lambda minutes, submit=submit: submit + 60 * minutes))
        begin = submit if start is None else start
        end = None if state in UNFINISHED else begin + 60 * draw(st.integers(-1, 8))
        size = draw(st.sampled_from([1, 4]))
        rows.append(
            {
                "job_id": draw(st.integers(1, 5)),
                "restart": draw(st.integers(0, 1)),
                "submit": submit,
                "start": start,
                "end": end,
                "state": state,
                "user": draw(st.sampled_from(["ada", "bob", None])),
                "account": draw(st.sampled_from(["lab", None])),
                "partition": draw(st.sampled_from(["batch", None])),
                "job_name": draw(st.sampled_from(["fit", "sweep_7", None])),
                "work_dir": draw(st.sampled_from(["/home/x", None])),
                "time_limit_s": draw(st.sampled_from([300.0, 3600.0, None])),
                "elapsed_s": None if end is None else float(max(0, end - begin)),
                "req_cpus": draw(st.sampled_from([size, None])),
                "cpus": None if start is None else size,
                "node_list": None if start is None else draw(st.sampled_from(["n1", "n[1-2]", None])),
            }
        )
    return made_jobs(*rows)


def clock(jobs: pl.DataFrame) -> pl.DataFrame:
    """When each job is submitted, starts and ends as far as the history is concerned: never before the step before."""
    ended = pl.col("state").is_in(sorted(UNFINISHED)).not_() & pl.col("end_time").is_not_null()
    return jobs.select(
        submit="submit_time",
        start=pl.when(pl.col("start_time").is_not_null()).then(pl.max_horizontal("start_time", "submit_time")),
        end=pl.when(ended).then(pl.max_horizontal("end_time", "start_time", "submit_time")),
    )


def known_at(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """The log as it was just before `now`: later submissions gone, later starts and ends not there yet."""
    times = clock(jobs)
    started, ended = (times[name] < now for name in ("start", "end"))
    started, ended = started.fill_null(False), ended.fill_null(False)
    held = pl.when(ended)
    return jobs.with_columns(
        *(pl.when(started).then(name).alias(name) for name in ("start_time", *ALLOCATION)),
        *(held.then(name).alias(name) for name in ENDING),
        state=held.then("state").when(started).then(pl.lit("RUNNING")).otherwise(pl.lit("PENDING")),
    ).filter(times["submit"] < now)


@contextmanager
def one_thread() -> Iterator[None]:
    """Trees on one core: on a busy machine several threads wait for each other, and the tests with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _process: {0})
        yield


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a model folder with the digest that belongs to it, whatever it says."""
    rest = {name: value for name, value in record.items() if name != "digest"}
    return {**rest, "digest": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}

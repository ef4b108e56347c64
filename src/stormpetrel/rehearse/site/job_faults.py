"""Faults put into job records: a node that eats jobs, nodes down, storage gone, a broken batch or application, waves, silence.

job records + moment -> choose_job_fault -> Injection (whom it hits, from what was known by then) -> put_into_jobs -> the records
as they would be. Which jobs are hit is drawn per job from the seed of the fault: asked again with more records, the same
jobs are hit, so that a live stream and a finished log give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.alarms.known_jobs import by_node, touching
from stormpetrel.jobs.history.keys import family
from stormpetrel.records.arrays import Floats
from stormpetrel.records.jobs import ref_text
from stormpetrel.records.states import JobState
from stormpetrel.rehearse.site.injection import SEVERITIES, Injection

FEWEST_HIT: Final = 3  # jobs; a fault that hits fewer is none (one is enough where a node goes down)
_WEEK: Final = timedelta(days=7)
_FINE: Final = 0.15  # share of a user's jobs of a week that failed, at most, for his batch to be one that breaks
_JOBS: Final = frozenset({"jobs"})
_JOBS_AND_EVENTS: Final = frozenset({"jobs", "events"})
_FAILED: Final = (JobState.FAILED, JobState.NODE_FAIL, JobState.TIMEOUT, JobState.OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is known when a fault is chosen: the jobs that started in the week before."""

    week: pl.DataFrame
    at: datetime
    severity: str
    rng: np.random.Generator

    def level(self, *values: float) -> float:
        """The value of this severity."""
        return values[SEVERITIES.index(self.severity)]

    def fault(self, kind: str, hours: float, families: frozenset[str], **more: object) -> Injection:
        """A fault of this severity that begins at this moment."""
        seed = int(self.rng.integers(2**31))
        until = self.at + timedelta(hours=hours)
        return replace(Injection(kind, self.severity, self.at, until, families, seed=seed), **more)  # type: ignore[arg-type]

    def nodes(self) -> list[str]:
        """The nodes on which jobs started, the busiest first."""
        counts = by_node(self.week.filter(pl.col("node_list").is_not_null())).group_by("node").len()
        return [str(name) for name in counts.sort("len", "node", descending=[True, False])["node"]]

    def some_nodes(self, number: int) -> frozenset[str]:
        """So many of the busier half of the nodes, drawn evenly."""
        names = self.nodes()
        busy = names[: max(number, len(names) // 2)]
        return frozenset(map(str, self.rng.choice(busy, min(number, len(busy)), replace=False))) if busy else frozenset()

    def cluster(self) -> frozenset[str]:
        """The name of the cluster as records have it."""
        return frozenset(str(name) for name in self.week["cluster"].drop_nulls().unique())


def _eats_jobs(now: _Choice) -> Injection | None:
    nodes = now.some_nodes(1)
    return now.fault("node_eats_jobs", 48, _JOBS_AND_EVENTS, nodes=nodes, subjects=nodes, share=now.level(0.5, 0.85, 1.0))


def _node_down(now: _Choice) -> Injection | None:
    nodes = now.some_nodes(round(now.level(1, 3, max(4, len(now.nodes()) // 4))))
    return now.fault("node_down", 1, _JOBS, nodes=nodes, subjects=nodes)


def _storage_gone(now: _Choice) -> Injection | None:
    names = now.nodes()
    number = max(1, round(now.level(0.25, 0.5, 1.0) * len(names)))
    nodes = frozenset(map(str, now.rng.choice(names, number, replace=False))) if names else frozenset[str]()
    return now.fault("storage_gone", 2, _JOBS_AND_EVENTS, nodes=nodes, subjects=nodes | now.cluster())


def _batch_fails(now: _Choice) -> Injection | None:
    groups = now.week.filter(pl.col("user") != "", pl.col("application") != "").group_by("user", "application")
    fine = groups.agg(pl.len(), bad=pl.col("failed").mean()).filter(pl.col("bad") <= _FINE, pl.col("len") >= 10)
    row = _drawn(fine.sort("len", "user", "application", descending=[True, False, False]), now.rng)
    if row is None:
        return None
    user, application = str(row["user"]), str(row["application"])
    share = now.level(0.6, 0.9, 1.0)
    return now.fault(
        "batch_fails", 48, _JOBS, user=user, application=application, subjects=frozenset({user, application}), share=share
    )


def _application_broken(now: _Choice) -> Injection | None:
    groups = now.week.filter(pl.col("application") != "").group_by("application")
    shared = groups.agg(pl.len(), users=pl.col("user").n_unique(), bad=pl.col("failed").mean())
    wide = shared.filter(pl.col("users") >= 3, pl.col("len") >= 15, pl.col("bad") <= 2 * _FINE)
    row = _drawn(wide.sort("len", "application", descending=[True, False]), now.rng)
    if row is None:
        return None
    name = str(row["application"])
    users = now.week.filter(pl.col("application") == name)["user"].unique()
    return now.fault(
        "application_broken", 24, _JOBS, application=name, subjects=frozenset({name, *map(str, users)}),
        share=now.level(0.6, 0.9, 1.0),
    )  # fmt: skip


def _timeout_wave(now: _Choice) -> Injection | None:
    return now.fault("timeout_wave", 5, _JOBS_AND_EVENTS, subjects=now.cluster(), share=now.level(0.2, 0.45, 0.8))


def _oom_wave(now: _Choice) -> Injection | None:
    return now.fault("oom_wave", 5, _JOBS_AND_EVENTS, subjects=now.cluster(), share=now.level(0.2, 0.45, 0.8))


def _scheduler_stalled(now: _Choice) -> Injection | None:
    return now.fault("scheduler_stalled", now.level(2, 6, 12), frozenset({"events"}), subjects=now.cluster())


JOB_FAULTS: Final[dict[str, Callable[[_Choice], Injection | None]]] = {
    "node_eats_jobs": _eats_jobs,
    "node_down": _node_down,
    "storage_gone": _storage_gone,
    "batch_fails": _batch_fails,
    "application_broken": _application_broken,
    "timeout_wave": _timeout_wave,
    "oom_wave": _oom_wave,
    "scheduler_stalled": _scheduler_stalled,
}
_WAVES: Final = {"timeout_wave": JobState.TIMEOUT, "oom_wave": JobState.OUT_OF_MEMORY}
_NEEDS_NODES: Final = ("node_eats_jobs", "node_down", "storage_gone")


class JobFaults:
    """The job records of a copy while faults are put into them."""

    def __init__(self, jobs: pl.DataFrame) -> None:
        self._stored = self.jobs = jobs

    @property
    def missing(self) -> str:
        """Why no fault can be put into these records, in a sentence; empty where some can."""
        return "" if self._stored.height else "There are no job records: what only they show would not be seen here."

    def begin(self) -> None:
        """Go back to the records as they were."""
        self.jobs = self._stored

    def put(self, kind: str, severity: str, at: datetime, rng: np.random.Generator) -> Injection | None:
        """Put a fault that begins at a moment into the records; None where there is nobody whom it would hit."""
        chosen = choose_job_fault(self.jobs, kind, severity, at, rng)
        if chosen is None:
            return None
        changed, fault = put_into_jobs(self.jobs, chosen)
        if not is_enough(fault):
            return None
        self.jobs = changed
        return fault


def choose_job_fault(jobs: pl.DataFrame, kind: str, severity: str, at: datetime, rng: np.random.Generator) -> Injection | None:
    """Return a fault that begins at a moment, aimed by what the week before shows; None where there is nothing to aim at.

    `jobs` are job records; only those that started in the week before `at` are looked at, and outcomes that were known by then.
    """
    week = jobs.filter(pl.col("start_time").is_between(at - _WEEK, at, closed="left").fill_null(False))
    over = (pl.col("end_time") <= at).fill_null(False)
    week = week.select(
        pl.col("cluster", "user").fill_null(""),
        "node_list",
        application=family().fill_null(""),
        failed=over & pl.col("state").is_in([str(state) for state in _FAILED]),
    )
    if not week.height:
        return None
    fault = JOB_FAULTS[kind](_Choice(week, at, severity, rng))
    return None if fault is None or (kind in _NEEDS_NODES and not fault.nodes) else fault


def put_into_jobs(jobs: pl.DataFrame, fault: Injection) -> tuple[pl.DataFrame, Injection]:
    """Return the records as they would be with a fault, in the order in which they came, and the fault with what it has hit."""
    if not jobs.height:
        return jobs, fault
    draw = _draws(jobs, fault.seed)
    if fault.kind == "scheduler_stalled":
        return _stalled(jobs, fault, draw)
    which, state, end = _ends(jobs, fault, draw)
    is_new = (jobs["state"] != state.value) | jobs["end_time"].ne_missing(end.cast(jobs.schema["end_time"]))
    hit = which.fill_null(False) & is_new.fill_null(True)  # what fails by itself at that time is not hit
    return end_jobs(jobs, hit, state, end), _having_hit(fault, jobs, hit)


def is_enough(fault: Injection) -> bool:
    """Whether a fault has hit as many jobs as make it one."""
    return fault.hit >= (1 if fault.kind == "node_down" else FEWEST_HIT)


def end_jobs(jobs: pl.DataFrame, which: pl.Series, state: JobState, end_time: pl.Series) -> pl.DataFrame:
    """Return the records with some jobs ended in another way, at another time."""
    elapsed = (pl.col("end_time") - pl.col("start_time")).dt.total_seconds().cast(jobs.schema["elapsed_s"])
    changed = jobs.with_columns(
        pl.when(which).then(end_time.cast(jobs.schema["end_time"])).otherwise(pl.col("end_time")).alias("end_time"),
        pl.when(which).then(pl.lit(state.value)).otherwise(pl.col("state")).alias("state"),
        pl.when(which).then(pl.lit(state.value)).otherwise(pl.col("state_raw")).alias("state_raw"),
    )
    return changed.with_columns(pl.when(which).then(elapsed).otherwise(pl.col("elapsed_s")).alias("elapsed_s"))


def _ends(jobs: pl.DataFrame, fault: Injection, draw: Floats) -> tuple[pl.Series, JobState, pl.Series]:
    """Which jobs a fault hits, how they end, and when."""
    start, over = jobs["start_time"], jobs["end_time"]
    lucky, later = pl.Series(draw[:, 0] >= fault.share), pl.Series((draw[:, 1] * 1e6).astype(np.int64))
    if fault.kind == "node_down":
        runs = (start < fault.since) & ((over > fault.since) | over.is_null())
        moment = pl.repeat(fault.since, jobs.height, dtype=jobs.schema["end_time"], eager=True)
        return runs & _on(jobs, fault.nodes), JobState.NODE_FAIL, moment
    if fault.kind in _WAVES:
        return _wave(jobs, fault, lucky, later)
    begins = (start >= fault.since) & (start < fault.until)
    aim = {
        "node_eats_jobs": lambda: _on(jobs, fault.nodes),
        "storage_gone": lambda: _on(jobs, fault.nodes),
        "batch_fails": lambda: _of(jobs, fault.application) & (jobs["user"] == fault.user),
        "application_broken": lambda: _of(jobs, fault.application),
    }[fault.kind]()
    longest_s = 60 if fault.nodes else 280
    ends = start + timedelta(seconds=20) + (later * longest_s).cast(pl.Duration("us"))
    sooner = (over < ends).fill_null(False)  # it fails when it would have ended
    return begins & aim & ~lucky, JobState.FAILED, over.zip_with(sooner, ends)


def _wave(jobs: pl.DataFrame, fault: Injection, lucky: pl.Series, later: pl.Series) -> tuple[pl.Series, JobState, pl.Series]:
    """Jobs that run some time in the span end at a time drawn between their beginning, or that of the span, and its end."""
    state = _WAVES[fault.kind]
    bounds = jobs.select(
        begin=pl.max_horizontal("start_time", pl.lit(fault.since)),
        span=pl.lit(fault.until) - pl.max_horizontal("start_time", pl.lit(fault.since)),
    )
    ends = bounds["begin"] + (bounds["span"].dt.total_microseconds() * (later / 1e6)).cast(pl.Int64).cast(pl.Duration("us"))
    over = jobs["end_time"]
    runs = (jobs["start_time"] < fault.until) & ((over > ends) | over.is_null())
    return runs & ~lucky, state, ends


def _stalled(jobs: pl.DataFrame, fault: Injection, draw: Floats) -> tuple[pl.DataFrame, Injection]:
    """Nothing starts while it lasts: whatever would have, starts within half an hour afterwards and runs as long."""
    start = jobs["start_time"]
    held = ((start >= fault.since) & (start < fault.until)).fill_null(False)
    wait = pl.Series((draw[:, 1] * 1800e6).astype(np.int64)).cast(pl.Duration("us")) + (fault.until - start)
    columns = [
        pl.when(held).then(pl.col(name) + wait).otherwise(pl.col(name)).cast(jobs.schema[name]).alias(name)
        for name in ("start_time", "end_time")
    ]
    return jobs.with_columns(columns), _having_hit(fault, jobs, held)


def _having_hit(fault: Injection, jobs: pl.DataFrame, hit: pl.Series) -> Injection:
    return replace(fault, hit=int(hit.sum()), jobs=frozenset(jobs.filter(hit).select(ref_text())["ref"]))


def _on(jobs: pl.DataFrame, nodes: frozenset[str]) -> pl.Series:
    """Which jobs run on one of these nodes, on whatever cluster."""
    clusters = jobs["cluster"].drop_nulls().unique().to_list()
    named = pl.DataFrame([(cluster, node) for cluster in clusters for node in sorted(nodes)], ["cluster", "node"], orient="row")
    return touching(jobs, named)


def _of(jobs: pl.DataFrame, application: str) -> pl.Series:
    return jobs.select(family().fill_null("") == application).to_series()


def _drawn(rows: pl.DataFrame, rng: np.random.Generator) -> dict[str, object] | None:
    """One of the first five rows."""
    return rows.row(int(rng.integers(min(5, rows.height))), named=True) if rows.height else None


def _draws(jobs: pl.DataFrame, seed: int) -> Floats:
    """(jobs, 2) numbers in [0, 1) that depend on the key of a job and on the seed, not on what else is there."""
    mixed = np.full(jobs.height, seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in ("job_id", "array_task", "submit_time", "restart"):
            values = jobs[name].to_physical().fill_null(-1).cast(pl.Int64).to_numpy().astype(np.uint64)
            mixed = _mix(mixed ^ values)
        pair = np.stack([mixed, _mix(mixed)], axis=1)
    return np.asarray((pair >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: neighbouring numbers come out far apart."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)), dtype=np.uint64)

"""The waste ledger: what the failed jobs held, by whom, by what and when, in whole core-seconds that add up.

job frame -> ledger -> one row per group; job frame -> reconcile -> Reconciliation -> check_ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.records.doubts import doubted
from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, UNFINISHED, JobState

UNKNOWN: Final = "(unknown)"
BREAKDOWNS: Final = ("user", "application", "account", "partition", "profile", "week", "outcome")
MEASURES: Final = ("jobs", "failed_jobs", "core_seconds", "lost_core_seconds", "share")
# Why a job is not in the ledger.
NOT_ENDED: Final = "not ended"
OVER_BEFORE_START: Final = "never started"
NO_RUN_TIME: Final = "no run time"
NO_CPUS: Final = "no CPUs"
DOUBTED: Final = "doubted run time"
ABSURD: Final = "absurd size"
_STILL_THERE: Final = sorted(UNFINISHED - {JobState.UNKNOWN})
_MOST: Final = (
    2**53
)  # core-seconds of one job: beyond it a float is no longer exact, and the record is damaged (9 million CPUs for 30 years)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a set of jobs sums up to."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The log's own totals next to the sums of every breakdown; `uncounted` says how many jobs were left out, and why."""

    rows: int
    total: Totals
    uncounted: dict[str, int]
    breakdowns: dict[str, Totals]


def core_seconds() -> pl.Expr:
    """The core-seconds that a job held, whole; null where the record cannot tell.

    In this order: elapsed × CPUs allocated; the scheduler's own product (`cpu_limit_s`); elapsed, else end − start, × CPUs
    allocated, else CPUs requested, else nodes (one CPU each: a lower bound). Elapsed is rounded to seconds first, so that
    sums are exact. A job that ran for no time held nothing, whatever its size; of a run time that a rule of data quality doubts
    nobody knows what was held.
    """
    measured, elapsed = _whole(pl.col("elapsed_s")), elapsed_seconds()
    allocated, size = _positive("cpus"), pl.coalesce(_positive("cpus"), _positive("req_cpus"), _positive("nodes"))
    held = pl.coalesce(_product(measured, allocated), _whole(pl.col("cpu_limit_s")), _product(elapsed, size))
    believed = (held <= _MOST) & ~doubted("elapsed_s")
    return pl.when(elapsed == 0).then(pl.lit(0, pl.Int64)).when(believed).then(held).alias("core_seconds")


def elapsed_seconds() -> pl.Expr:
    """The run time in whole seconds: as recorded, else from start to end; null where neither tells."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    return pl.coalesce(_whole(pl.col("elapsed_s")), _whole(span)).alias("elapsed_seconds")


def uncounted() -> pl.Expr:
    """Why a job cannot be in the ledger; null for a job that is."""
    state, ended = pl.col("state"), pl.col("end_time").is_not_null()
    unclear = (state.is_null() | (state == JobState.UNKNOWN)) & ~ended
    sized = pl.any_horizontal(pl.col("cpus", "req_cpus", "nodes") > 0)
    return (
        pl.when(state.is_in(_STILL_THERE).fill_null(False) | unclear)
        .then(pl.lit(NOT_ENDED))
        .when(never_started())
        .then(pl.lit(OVER_BEFORE_START))
        .when(doubted("elapsed_s"))
        .then(pl.lit(DOUBTED))
        .when(core_seconds().is_not_null())
        .then(None)
        .when(elapsed_seconds().is_null())
        .then(pl.lit(NO_RUN_TIME))
        .when(sized.fill_null(False))
        .then(pl.lit(ABSURD))
        .otherwise(pl.lit(NO_CPUS))
        .alias("uncounted")
    )


def ledger(
    jobs: pl.DataFrame,
    *,
    by: Sequence[str],
    failure_states: Iterable[str] = DEFAULT_FAILURE_STATES,
    time_zone: str = "UTC",
) -> pl.DataFrame:
    """Jobs, failed jobs, core-seconds held and lost per group, the largest loss first.

    `by` names one breakdown or several that are crossed; without any there is one row, the total. `share` is the group's
    part of everything that was lost. A week is the ISO week (`2024-W10`) in which the job ended in the site's time zone.
    """
    keys = list(by)
    counted = _counted(jobs, failure_states).with_columns(group_key(name, jobs.columns, time_zone) for name in keys)
    if not keys:
        return _shared(counted.select(_sums()))
    return ledger_of_sums(counted.group_by(keys).agg(_sums()), keys)


def ledger_of_sums(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The ledger out of the first four `MEASURES`, summed per group before."""
    return _shared(groups).sort("lost_core_seconds", "core_seconds", *by, descending=[True, True, *(False for _ in by)])


def group_key(name: str, columns: Iterable[str], time_zone: str = "UTC") -> pl.Expr:
    """The group of each job in one breakdown; `(unknown)` where the record, or the whole log, does not tell."""
    if name == "application":
        key = family()
    elif name == "outcome":
        # A preempted or requeued job has no outcome that a forecast speaks of, but held its cores all the same.
        key = pl.coalesce(outcome(), pl.when(pl.col("state") != JobState.UNKNOWN).then(pl.col("state")))
    elif name == "week":
        key = pl.col("end_time").dt.convert_time_zone(time_zone).dt.strftime("%G-W%V")
    elif name in BREAKDOWNS:
        key = pl.col(name).cast(pl.String) if name in columns else pl.lit(None, pl.String)
    else:
        raise UsageError(f"Unknown breakdown '{name}'.", hint=f"Known: {', '.join(BREAKDOWNS)}.")
    return pl.when(key != "").then(key).otherwise(pl.lit(UNKNOWN)).alias(name)


def reconcile(
    jobs: pl.DataFrame,
    *,
    by: Sequence[str] = BREAKDOWNS,
    failure_states: Iterable[str] = DEFAULT_FAILURE_STATES,
    time_zone: str = "UTC",
) -> Reconciliation:
    """The log's totals, summed over jobs, next to those of each breakdown, summed over groups."""
    states = list(failure_states)
    reasons = jobs.select(uncounted()).to_series().drop_nulls().value_counts(sort=True)
    total = jobs.filter(uncounted().is_null()).select(
        pl.len(),
        failed(states).sum(),
        core_seconds().sum(),
        core_seconds().filter(failed(states).fill_null(False)).sum().alias("lost"),
    )
    return Reconciliation(
        rows=jobs.height,
        total=Totals(*total.row(0)),
        uncounted=dict(reasons.iter_rows()),
        breakdowns={name: _totals(ledger(jobs, by=[name], failure_states=states, time_zone=time_zone)) for name in by},
    )


def check_ledger(reconciliation: Reconciliation) -> None:
    """Raise unless every job is accounted for and every breakdown sums to the log's totals exactly."""
    total = reconciliation.total
    left_out = sum(reconciliation.uncounted.values())
    if total.jobs + left_out != reconciliation.rows:
        raise StormpetrelError(
            f"The waste ledger counts {total.jobs} jobs and leaves out {left_out}, but the log has {reconciliation.rows}.",
            hint="Do not use its figures; run stormpetrel doctor and report the log's format.",
        )
    for name, sums in reconciliation.breakdowns.items():
        if sums != total:
            raise StormpetrelError(
                f"The waste ledger by {name} sums to {_totals_text(sums)}, but the log to {_totals_text(total)}.",
                hint="Do not use its figures; run stormpetrel doctor and report the log's format.",
            )


def _counted(jobs: pl.DataFrame, failure_states: Iterable[str]) -> pl.DataFrame:
    lost = failed(failure_states).fill_null(False)
    return jobs.filter(uncounted().is_null()).with_columns(core_seconds(), lost.alias("_failed"))


def _sums() -> list[pl.Expr]:
    return [
        pl.len().cast(pl.Int64).alias("jobs"),
        pl.col("_failed").sum().cast(pl.Int64).alias("failed_jobs"),
        pl.col("core_seconds").sum(),
        pl.col("core_seconds").filter("_failed").sum().alias("lost_core_seconds"),
    ]


def _shared(groups: pl.DataFrame) -> pl.DataFrame:
    lost = pl.col("lost_core_seconds")
    return groups.with_columns(share=pl.when(lost.sum() > 0).then(lost / lost.sum()).otherwise(0.0))


def _totals(groups: pl.DataFrame) -> Totals:
    return Totals(*groups.select(pl.col(MEASURES[:4]).sum()).row(0))


def _whole(seconds: pl.Expr) -> pl.Expr:
    """Seconds rounded to whole ones; null where they are negative, not a number or beyond reason."""
    return pl.when(seconds.is_between(0, _MOST)).then(seconds).round().cast(pl.Int64, strict=False)


def _positive(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(pl.col(name))  # sacct prints 0 where it does not know


def _product(seconds: pl.Expr, cpus: pl.Expr) -> pl.Expr:
    """Seconds × CPUs, or one more than the largest sensible number where an Int64 might wrap around."""
    absurd = seconds.cast(pl.Float64) * cpus.cast(pl.Float64) > _MOST
    return pl.when(absurd).then(pl.lit(_MOST + 1, pl.Int64)).otherwise(seconds * cpus)


def _totals_text(sums: Totals) -> str:
    return f"{sums.jobs} jobs, {sums.failed_jobs} failed, {sums.core_seconds} core-seconds held and {sums.lost_core_seconds} lost"

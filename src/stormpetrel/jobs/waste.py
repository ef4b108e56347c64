"""The waste ledger: what the failed jobs held, by whom, by what and when, in whole core-seconds and joules that add up.

job frame -> ledger -> one row per group; job frame -> reconcile -> Reconciliation -> check_ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.jobs.held.core_seconds import core_seconds, elapsed_seconds
from stormpetrel.jobs.held.energy import PowerModel, with_energy
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.records.doubts import doubted
from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, UNFINISHED, JobState

UNKNOWN: Final = "(unknown)"
BREAKDOWNS: Final = ("user", "application", "account", "partition", "profile", "week", "outcome")
HELD: Final = ("core_seconds", "joules", "measured_joules")
# Joules are what nodes drew, measured or estimated; of both sums the part that was measured.
SUMS: Final = (
    "jobs", "failed_jobs", "core_seconds", "lost_core_seconds",
    "joules", "lost_joules", "measured_joules", "lost_measured_joules",
)  # fmt: skip
# Why a job is not in the ledger.
NOT_ENDED: Final = "not ended"
OVER_BEFORE_START: Final = "never started"
NO_RUN_TIME: Final = "no run time"
NO_CPUS: Final = "no CPUs"
DOUBTED: Final = "doubted run time"
ABSURD: Final = "absurd size"
_STILL_THERE: Final = sorted(UNFINISHED - {JobState.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Totals:
    """What a set of jobs sums up to."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int
    joules: int
    lost_joules: int
    measured_joules: int
    lost_measured_joules: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The log's own totals next to the sums of every breakdown; `uncounted` says how many jobs were left out, and why."""

    rows: int
    total: Totals
    uncounted: dict[str, int]
    breakdowns: dict[str, Totals]


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
    power: PowerModel = PowerModel(),
) -> pl.DataFrame:
    """Jobs, failed jobs, core-seconds and joules held and lost per group, the largest loss of core-seconds first.

    `by` names one breakdown or several that are crossed; without any there is one row, the total. `share` is the group's
    part of everything that was lost. A week is the ISO week (`2024-W10`) in which the job ended in the site's time zone.
    """
    keys = list(by)
    counted = _counted(jobs, failure_states, power).with_columns(group_key(name, jobs.columns, time_zone) for name in keys)
    if not keys:
        return _shared(counted.select(_sums()))
    return ledger_of_sums(counted.group_by(keys).agg(_sums()), keys)


def ledger_of_sums(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The ledger out of `SUMS`, summed per group before."""
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
    power: PowerModel = PowerModel(),
) -> Reconciliation:
    """The log's totals, summed over jobs, next to those of each breakdown, summed over groups."""
    states = list(failure_states)
    reasons = jobs.select(uncounted()).to_series().drop_nulls().value_counts(sort=True)
    lost = failed(states).fill_null(False)
    held = (pl.col(name) for name in HELD)
    summed = (part for column in held for part in (column.sum(), column.filter(lost).sum().name.prefix("lost_")))
    counted = with_energy(jobs.filter(uncounted().is_null()), power)
    total = counted.select(pl.len(), failed(states).sum().alias("failed"), *summed)
    ledgers = {name: ledger(jobs, by=[name], failure_states=states, time_zone=time_zone, power=power) for name in by}
    return Reconciliation(
        rows=jobs.height,
        total=Totals(*total.row(0)),
        uncounted=dict(reasons.iter_rows()),
        breakdowns={name: _totals(groups) for name, groups in ledgers.items()},
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


def _sums() -> list[pl.Expr]:
    sums = [pl.len().cast(pl.Int64).alias("jobs"), pl.col("_failed").sum().cast(pl.Int64).alias("failed_jobs")]
    for name in HELD:
        sums += [pl.col(name).sum(), pl.col(name).filter("_failed").sum().alias(f"lost_{name}")]
    return sums


def _counted(jobs: pl.DataFrame, failure_states: Iterable[str], power: PowerModel) -> pl.DataFrame:
    lost = failed(failure_states).fill_null(False)
    return with_energy(jobs.filter(uncounted().is_null()), power).with_columns(lost.alias("_failed"))


def _shared(groups: pl.DataFrame) -> pl.DataFrame:
    lost = pl.col("lost_core_seconds")
    return groups.with_columns(share=pl.when(lost.sum() > 0).then(lost / lost.sum()).otherwise(0.0))


def _totals(groups: pl.DataFrame) -> Totals:
    return Totals(*groups.select(pl.col(SUMS).sum()).row(0))


def _totals_text(sums: Totals) -> str:
    return (
        f"{sums.jobs} jobs, {sums.failed_jobs} failed, {sums.core_seconds} core-seconds held and {sums.lost_core_seconds} lost, "
        f"{sums.joules} joules and {sums.lost_joules} lost ({sums.measured_joules} and {sums.lost_measured_joules} measured)"
    )

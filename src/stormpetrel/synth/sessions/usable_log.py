"""What of a log can be learnt: the columns in the types of a workload, without what no job can have.

Workload -> usable -> Workload; its notes say what was left out or understood in another way.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.states import JobState
from stormpetrel.synth.workload import KNOWN, SIZES, STATE, SUBMIT, TIMES, Workload

LIMIT: Final = "time_limit_s"
RUNTIME: Final = "runtime_s"
_TOO_MUCH: Final = 1e18  # bytes, cores or seconds
INNER: Final = ("_at", "_who", "_session", "_request")  # columns that the generator itself puts beside a log's own
_FEWEST_COUNTED: Final = 50  # jobs from which on a column can be seen to count them
_IN_ORDER: Final = 0.99  # rank correlation with the time of submission from which on it does


def usable(workload: Workload) -> Workload:
    """The workload in the order of its submissions; numbers that are none are missing, unknown columns are numbers or texts."""
    jobs = workload.jobs.filter(pl.col(SUBMIT).is_not_null()).sort(SUBMIT, maintain_order=True)
    jobs, amounts = _amounts(jobs)
    jobs, own = _own(jobs)
    jobs, overruns = _overruns_are_timeouts(jobs)
    return Workload(jobs, workload.has_clock, (*workload.notes, *amounts, *own, *overruns))


def _amounts(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Sizes and times without those that are negative, endless or not a number."""
    notes = []
    for name in (*SIZES, *TIMES):
        if name not in jobs.columns:
            continue
        good = (jobs[name] >= 0) & (jobs[name] < _TOO_MUCH)
        if bool(good.all()):
            continue
        jobs = jobs.with_columns(pl.when(good).then(name).alias(name))
        notes.append(f"{int((~good).sum()):,} values of '{name}' are negative or beyond all measure; they count as missing.")
    return jobs, notes


def _own(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Columns of the log's own as Int64, Float64 or String; those that can be neither, or that number the jobs, left out."""
    notes = []
    for name in [name for name in jobs.columns if name not in KNOWN]:
        column, why = _own_column(jobs[name])
        if column is None:
            notes.append(f"Column '{name}' is left out: {why}.")
            jobs = jobs.drop(name)
        else:
            jobs = jobs.with_columns(column)
    return jobs, notes


def _own_column(column: pl.Series) -> tuple[pl.Series | None, str]:
    if not column.name.strip() or column.name in INNER:
        return None, "its name cannot be kept"
    if column.dtype.is_numeric():
        numbers = column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64, strict=False)
        numbers = numbers.set(~numbers.is_finite(), None)
        return (None, "it numbers the jobs, or tells their time") if _counts_jobs(numbers) else (numbers, "")
    if column.dtype.is_nested() or column.dtype.is_temporal() or column.dtype in (pl.Binary, pl.Object):
        return None, "it holds neither numbers nor texts"
    return column.cast(pl.String), ""


def _counts_jobs(numbers: pl.Series) -> bool:
    """Whether each job has a number of its own and later jobs have larger ones."""
    known = numbers.drop_nulls()
    if len(known) < _FEWEST_COUNTED or known.n_unique() < len(known):
        return False
    ranks = pl.DataFrame({"rank": known.rank(), "row": pl.Series(range(len(known)), dtype=pl.Float64)})
    return bool(ranks.select(pl.corr("rank", "row")).item() > _IN_ORDER)


def _overruns_are_timeouts(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Jobs that ran beyond their limit are time-outs, whatever the log calls them (schedulers grant some seconds)."""
    if not {LIMIT, RUNTIME, STATE} <= set(jobs.columns):
        return jobs, []
    over = (pl.col(RUNTIME) > pl.col(LIMIT)).fill_null(False) & pl.col(STATE).ne_missing(JobState.TIMEOUT.value)
    count = jobs.select(over.sum()).item()
    if not count:
        return jobs, []
    named = jobs.with_columns(pl.when(over).then(pl.lit(JobState.TIMEOUT.value)).otherwise(STATE).alias(STATE))
    return named, [f"{count:,} {'job' if count == 1 else 'jobs'} ran beyond the limit under another state: learnt as time-outs."]

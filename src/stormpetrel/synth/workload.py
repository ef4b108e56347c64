"""A workload: the jobs of a log in the order of their submission, reduced to what a generator learns and makes.

job frame -> workload_of -> Workload. Columns that no vocabulary knows are kept, as numbers or as categories.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.records.workload_columns import (
    ARRAY,
    IDENTIFIERS,
    KNOWN,
    SIZES,
    STATE,
    SUBMIT,
    TIMES,
    WAIT,
    WHERE,
    WHO,
    as_column,
)

__all__ = [
    "ARRAY", "IDENTIFIERS", "KNOWN", "SIZES", "STATE", "SUBMIT", "TIMES", "WAIT", "WHERE", "WHO",
    "Workload", "as_column", "tidy", "workload_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs in the order of their submission.

    `jobs` has `submit_time` and some of the columns of `KNOWN`, then columns of the log's own (Int64, Float64 or String).
    `has_clock` is false where a log gave intervals only: its hours of day are counted from an arbitrary Monday.
    """

    jobs: pl.DataFrame
    has_clock: bool = True
    notes: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        """How many jobs."""
        return self.jobs.height

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that no vocabulary knows: kept as they are."""
        return tuple(name for name in self.jobs.columns if name not in KNOWN)

    @property
    def attributes(self) -> tuple[str, ...]:
        """What a generator makes of each job in addition to its time and its user, in the order of generation."""
        order = (*WHERE, *SIZES, *TIMES, STATE)
        return (*(name for name in order if name in self.jobs.columns), *self.own_columns)

    def submit_s(self) -> npt.NDArray[np.float64]:
        """(jobs,) Unix seconds of submission."""
        return self.jobs[SUBMIT].dt.epoch("us").to_numpy().astype(np.float64) / 1e6

    def interval_s(self) -> npt.NDArray[np.float64]:
        """(jobs - 1,) seconds from each submission to the next."""
        return np.diff(self.submit_s())

    def start(self) -> datetime:
        """When the first job was submitted."""
        first = self.jobs[SUBMIT][0]
        assert isinstance(first, datetime)
        return first

    def between(self, first: int, last: int | None = None) -> Workload:
        """Some consecutive jobs of it."""
        return Workload(self.jobs[first:last], self.has_clock, self.notes)


def workload_of(jobs: pl.DataFrame, *, has_clock: bool = True) -> Workload:
    """The workload of a job frame (see `records.jobs`): sorted by submission, its empty columns left out."""
    jobs = jobs.filter(pl.col(SUBMIT).is_not_null()).sort(SUBMIT, maintain_order=True)
    if not jobs.height:
        raise NotEnoughJobsError("There is no job with a time of submission.", hint="Check the column of submit times.")
    known = jobs.select(
        SUBMIT,
        *WHO,
        *WHERE,
        cores=pl.coalesce("cpus", "req_cpus"),
        nodes=pl.coalesce("nodes", "req_nodes"),
        gpus=pl.coalesce("gpus", "req_gpus"),
        mem_bytes=pl.coalesce("req_mem_bytes", "mem_bytes"),
        time_limit_s="time_limit_s",
        runtime_s="elapsed_s",
        state="state",
        array=pl.when(pl.col("array_task").is_not_null()).then("job_id"),
        wait_s=(pl.col("start_time") - pl.col(SUBMIT)).dt.total_microseconds() / 1e6,
    )
    own, notes = _own_columns(jobs)
    return tidy(known.hstack(own), has_clock=has_clock, notes=notes)


def tidy(jobs: pl.DataFrame, *, has_clock: bool = True, notes: tuple[str, ...] = ()) -> Workload:
    """A workload of a frame that has its columns already: sorted, typed, columns without a value left out."""
    full = [name for name in jobs.columns if jobs[name].null_count() < jobs.height or name == SUBMIT]
    typed = jobs.select(pl.col(name).cast(KNOWN[name]) if name in KNOWN else pl.col(name) for name in full)
    return Workload(typed.sort(SUBMIT, maintain_order=True), has_clock, notes)


def _own_columns(jobs: pl.DataFrame) -> tuple[list[pl.Series], tuple[str, ...]]:
    """The fields of `extra`, each as a column: numbers where they read as numbers, else text; identifiers left out."""
    if "extra" not in jobs.columns or jobs["extra"].null_count() == jobs.height:
        return [], ()
    rows = jobs["extra"].to_list()
    names = sorted({name for row in rows if row for name in dict(row)})
    columns, notes = [], []
    for name in names:
        text = pl.Series(name, [dict(row).get(name) if row else None for row in rows], dtype=pl.String)
        column, why = as_column(text)
        if column is None:
            notes.append(f"Column '{name}' is left out: {why}.")
        elif name not in KNOWN:
            columns.append(column)
    return columns, tuple(notes)

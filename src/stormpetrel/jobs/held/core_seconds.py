"""What a job held: its run time in whole seconds, times its CPUs.

job frame -> core_seconds, elapsed_seconds.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.doubts import doubted

_MOST: Final = (
    2**53
)  # core-seconds of one job: beyond it a float is no longer exact, and the record is damaged (9 million CPUs for 30 years)


def core_seconds() -> pl.Expr:
    """The core-seconds that a job held, whole; null where the record cannot tell.

    In this order: elapsed × CPUs allocated; the scheduler's own product (`cpu_limit_s`); elapsed, else end − start, × CPUs
    allocated, else CPUs requested, else nodes (one CPU each: a lower bound). Elapsed is rounded to seconds first, so that
    sums are exact. A job that ran for no time held nothing, whatever its size; of a run time that a rule of data quality doubts
    nobody knows what was held.
    """
    measured, elapsed = _whole(pl.col("elapsed_s")), elapsed_seconds()
    allocated, size = positive("cpus"), pl.coalesce(positive("cpus"), positive("req_cpus"), positive("nodes"))
    held = pl.coalesce(_product(measured, allocated), _whole(pl.col("cpu_limit_s")), _product(elapsed, size))
    believed = (held <= _MOST) & ~doubted("elapsed_s")
    return pl.when(elapsed == 0).then(pl.lit(0, pl.Int64)).when(believed).then(held).alias("core_seconds")


def elapsed_seconds() -> pl.Expr:
    """The run time in whole seconds: as recorded, else from start to end; null where neither tells."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    return pl.coalesce(_whole(pl.col("elapsed_s")), _whole(span)).alias("elapsed_seconds")


def positive(name: str) -> pl.Expr:
    """A number where it is one above zero; null elsewhere."""
    return pl.when(pl.col(name) > 0).then(pl.col(name))  # sacct prints 0 where it does not know


def _whole(seconds: pl.Expr) -> pl.Expr:
    """Seconds rounded to whole ones; null where they are negative, not a number or beyond reason."""
    return pl.when(seconds.is_between(0, _MOST)).then(seconds).round().cast(pl.Int64, strict=False)


def _product(seconds: pl.Expr, cpus: pl.Expr) -> pl.Expr:
    """Seconds × CPUs, or one more than the largest sensible number where an Int64 might wrap around."""
    absurd = seconds.cast(pl.Float64) * cpus.cast(pl.Float64) > _MOST
    return pl.when(absurd).then(pl.lit(_MOST + 1, pl.Int64)).otherwise(seconds * cpus)

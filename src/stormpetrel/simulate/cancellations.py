"""Cancellations of a feed: who ended which job when, kept beside the recording and laid over it whenever it is read.

(job, moment, who) -> write_cancellation -> a file of its own; job frame -> with_cancellations -> the same jobs, ended by then.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormpetrel.private_files import write_private

if TYPE_CHECKING:
    import polars as pl

_PATTERN: Final = "cancelled-{}.json"
_SIGTERM: Final = 15
_MIB: Final = 1 << 20


def write_cancellation(folder: Path, job_id_raw: int, moment: datetime, uid: int) -> None:
    """Note that a job was cancelled; the file is there whole or not at all, and the first to cancel a job is the one."""
    told = json.dumps({"job_id_raw": job_id_raw, "at_s": int(moment.timestamp()), "uid": uid}) + "\n"
    with suppress(FileExistsError):
        write_private(folder / _PATTERN.format(job_id_raw), told, overwrite=False)


def read_cancellations(folder: Path) -> list[dict[str, int]]:
    """Every cancellation of a feed, as written."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(_PATTERN.format("*")))]


def with_cancellations(jobs: pl.LazyFrame, cancellations: list[dict[str, int]]) -> pl.LazyFrame:
    """The jobs with those that were cancelled ended at that time: without a start if they had none by then."""
    import polars as pl

    from stormpetrel.records.jobs import JOB_SCHEMA
    from stormpetrel.records.states import JobState

    if not cancellations:
        return jobs
    schema = {"job_id_raw": pl.Int64, "at_s": pl.Int64, "uid": pl.Int64}
    moments = pl.LazyFrame(cancellations, schema=schema).select(
        "job_id_raw",
        _at=(pl.col("at_s") * 1_000_000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        _by=pl.col("uid").cast(pl.String),
    )
    cut = (pl.col("_at") < pl.col("end_time")).fill_null(False)
    ran = (pl.col("start_time") <= pl.col("_at")).fill_null(False)
    elapsed = (pl.col("_at") - pl.col("start_time")).dt.total_seconds().cast(pl.Float64)
    wide = pl.col("nodes") > 1
    changed = {
        **_measured(elapsed / pl.col("elapsed_s")),
        "start_time": pl.col("start_time"),
        "elapsed_s": elapsed,
        "cpu_limit_s": elapsed * pl.col("cpus"),
        "failed_step": pl.when(wide).then(pl.lit("0")).otherwise(pl.lit("batch")),
        "failed_step_exit_code": pl.lit(0),
        "failed_step_exit_signal": pl.lit(_SIGTERM),
        **{name: pl.col(name) for name in ("cpus", "nodes", "mem_bytes", "node_list", "alloc_tres")},
    }
    # A job that never ran has no step, and has used nothing.
    nothing = dict.fromkeys(("elapsed_s", "cpu_limit_s", "cpu_time_s", "user_cpu_s", "system_cpu_s"), pl.lit(0.0))
    values = {name: pl.when(ran).then(value).otherwise(nothing.get(name, pl.lit(None))) for name, value in changed.items()}
    values |= {
        "end_time": pl.col("_at"),
        "state": pl.lit(JobState.CANCELLED.value),
        "state_raw": pl.lit(f"{JobState.CANCELLED.value} by ") + pl.col("_by"),
        "cancelled_by": pl.col("_by"),
        "exit_code": pl.lit(0),
        "exit_signal": pl.lit(0),
    }
    overlay = {name: pl.when(cut).then(value.cast(JOB_SCHEMA[name])).otherwise(name) for name, value in values.items()}
    return jobs.join(moments, on="job_id_raw", how="left", maintain_order="left").with_columns(**overlay).drop("_at", "_by")


def _measured(share: pl.Expr) -> dict[str, pl.Expr]:
    """What accounting measures of the part of a run that there was; memory grows along it as in frames.py."""
    import polars as pl

    exact = pl.col("cpu_time_s") * share
    busy = pl.when(exact < 3500).then((exact * 4).round() / 4).otherwise(exact.round())
    system = pl.min_horizontal((pl.col("system_cpu_s") * share).round(), busy)
    return {
        "max_rss_bytes": (pl.col("max_rss_bytes") * (0.35 + 0.65 * share)).cast(pl.Int64) // 1024 * 1024,
        "cpu_time_s": busy,
        "system_cpu_s": system,
        "user_cpu_s": busy - system,
        **{name: (pl.col(name) * share).cast(pl.Int64) // _MIB * _MIB for name in ("disk_read_bytes", "disk_write_bytes")},
    }

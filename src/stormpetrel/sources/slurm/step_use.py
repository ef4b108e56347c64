"""What the steps of a job tell of its use: CPU time where TotalCPU is empty, GPUs, and how far MaxRSS can be believed.

job rows + sacct's step records -> with_step_use -> job rows, with the rules of `records.doubts` that only steps can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from stormpetrel.records import units
from stormpetrel.records.doubts import CPU_TIME_FROM_TRES, RSS_MISSING, RSS_OF_ONE_TASK, with_rules
from stormpetrel.records.states import FINISHED

_FINISHED: Final = sorted(str(state) for state in FINISHED)
_MOST_BYTES: Final = 9e18
_SAMPLED_S: Final = 60.0  # Slurm samples every 30 s: a shorter job may have ended in between
_CPU_USE: Final = r"(?:^|,)cpu=([^,]+)"
_GPU_USE: Final = r"(?:^|,)gres/gpuutil=(\d{1,9})(?:,|$)"  # per cent, summed over the GPUs of a task
_GPU_MEMORY: Final = r"(?:^|,)gres/gpumem=([^,]+)"


def with_step_use(jobs: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The jobs (with `record`), each with what its steps tell."""
    use = _use_by_job(steps)
    joined = jobs.join(use, on="record", how="left", maintain_order="left")
    joined = _with_cpu_time(joined)
    if {"tresusageinmax", "tresusageintot"} & set(steps.columns):
        joined = _with_gpu_use(joined)
    if "maxrss" in steps.columns:
        joined = _with_doubts_on_rss(joined)
    return joined.drop(name for name in use.columns if name != "record")


def suspended_seconds(column: pl.Series) -> pl.Series:
    """The time for which jobs were suspended as text for `extra`; null for the many that were not."""
    seconds = units.duration_s(column).to_frame("s")
    return seconds.select(pl.when(pl.col("s") > 0).then(pl.col("s").cast(pl.String))).to_series()


def _use_by_job(steps: pl.DataFrame) -> pl.DataFrame:
    """`record`, `_tres_cpu_s` summed over its steps, the tasks and nodes of the step with the largest MaxRSS, and its GPUs.

    Of GPUs Slurm keeps the largest sample of any task (TRESUsageInMax) and the sum of the latest ones (InTot). The larger of
    all tasks as busy as the busiest one and that sum is what the step used at most, and steps may have run side by side:
    their sum is what the job used at most. It may be too much, never too little.
    """
    typed = steps.select(
        "record",
        _rss=_column(steps, "maxrss", units.size_bytes, pl.Int64()),
        _tasks=_column(steps, "ntasks", _count, pl.Int64()),
        _step_nodes=_column(steps, "nnodes", _count, pl.Int64()),
        _tres_cpu_s=_column(steps, "tresusageintot", _cpu_use, pl.Float64()),
        **{
            f"_{name}_{which}": _column(steps, f"tresusagein{which}", read, pl.Float64())
            for name, read in (("gpu", _gpu_use), ("gpu_memory", _gpu_memory))
            for which in ("max", "tot")
        },
    )
    tasks = pl.col("_tasks").fill_null(pl.col("_step_nodes")).fill_null(1).clip(1)
    used = [pl.max_horizontal(pl.col(f"_{name}_max") * tasks, f"_{name}_tot").alias(f"_{name}") for name in ("gpu", "gpu_memory")]
    typed = typed.with_columns(used)
    largest = pl.col("_rss").fill_null(-1).arg_max()
    return typed.group_by("record").agg(
        pl.col("_tres_cpu_s").sum(),
        pl.col("_tasks").get(largest),
        pl.col("_step_nodes").get(largest),
        *(pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in ("_gpu", "_gpu_memory")),
    )


def _with_cpu_time(jobs: pl.DataFrame) -> pl.DataFrame:
    """CPU time out of TRESUsageInTot where TotalCPU is empty or zero in the job and in all of its steps."""
    known = pl.col("cpu_time_s") > 0 if "cpu_time_s" in jobs.columns else pl.lit(False)
    taken = jobs.select(((pl.col("_tres_cpu_s") > 0) & ~known.fill_null(False)).fill_null(False)).to_series()
    if not taken.any():
        return jobs
    before = pl.col("cpu_time_s") if "cpu_time_s" in jobs.columns else pl.lit(None, dtype=pl.Float64)
    filled = jobs.with_columns(cpu_time_s=pl.when(taken).then("_tres_cpu_s").otherwise(before))
    return with_rules(filled, {CPU_TIME_FROM_TRES: taken})


def _with_gpu_use(jobs: pl.DataFrame) -> pl.DataFrame:
    """GPUs and their memory in use at most; null of a job without GPUs, or too short for 0 to mean that they were idle.

    Of parts of GPUs (MIG) Slurm measures the memory only: no use is not known to be none where memory was used.
    """
    there = set(jobs.columns)
    counts = [pl.col(name) for name in ("gpus", "req_gpus") if name in there]
    has_gpus = pl.coalesce(*counts, 0) > 0 if counts else pl.lit(True)
    ran = pl.col("elapsed_s") >= _SAMPLED_S if "elapsed_s" in there else pl.lit(False)
    used = {name: has_gpus & (ran | (pl.col(name) > 0)) for name in ("_gpu", "_gpu_memory")}
    return jobs.with_columns(
        busy_gpus=pl.when(used["_gpu"] & ((pl.col("_gpu") > 0) | ~(pl.col("_gpu_memory") > 0).fill_null(False))).then(
            pl.col("_gpu") / 100.0
        ),
        gpu_mem_bytes=pl.when(used["_gpu_memory"] & (pl.col("_gpu_memory") < _MOST_BYTES)).then(
            pl.col("_gpu_memory").cast(pl.Int64, strict=False)
        ),
    )


def _with_doubts_on_rss(jobs: pl.DataFrame) -> pl.DataFrame:
    there = set(jobs.columns)
    has_rss = pl.col("max_rss_bytes") > 0
    nodes = [pl.col("_step_nodes"), *([pl.col("nodes")] if "nodes" in there else [])]
    # A step on several nodes has a task on each; NTasks says more where it was asked for.
    of_one = has_rss & pl.coalesce(pl.col("_tasks") > 1, pl.coalesce(nodes) > 1, pl.lit(False))
    ran = pl.col("elapsed_s") >= _SAMPLED_S if "elapsed_s" in there else pl.lit(False)
    has_steps = pl.col("_tres_cpu_s").is_not_null()
    missing = has_steps & ran & pl.col("state").is_in(_FINISHED) & ~has_rss.fill_null(False)
    flags = jobs.select(missing.fill_null(False).alias(RSS_MISSING), of_one.fill_null(False).alias(RSS_OF_ONE_TASK))
    # 0 bytes were not measured: nothing is known.
    known = jobs.with_columns(max_rss_bytes=pl.when(has_rss).then("max_rss_bytes"))
    return with_rules(known, {name: flags[name] for name in flags.columns})


def _cpu_use(column: pl.Series) -> pl.Series:
    """`cpu=00:01:23,energy=0,…` as seconds of CPU time."""
    return units.duration_s(column.str.extract(_CPU_USE))


def _gpu_use(column: pl.Series) -> pl.Series:
    """`…,gres/gpuutil=90,…` as per cent of one GPU."""
    return column.str.extract(_GPU_USE).cast(pl.Float64, strict=False)


def _gpu_memory(column: pl.Series) -> pl.Series:
    """`…,gres/gpumem=7954688K,…` as bytes."""
    return units.size_bytes(column.str.extract(_GPU_MEMORY))


def _count(column: pl.Series) -> pl.Series:
    return column.cast(pl.Int64, strict=False)


def _column(steps: pl.DataFrame, name: str, read: Callable[[pl.Series], pl.Series], dtype: pl.DataType) -> pl.Series:
    if name not in steps.columns:
        return pl.Series([None], dtype=dtype).new_from_index(0, steps.height)
    return read(steps[name]).cast(dtype)

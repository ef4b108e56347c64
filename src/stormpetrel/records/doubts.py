"""Doubts: what accounting gets wrong, rule by rule; which rows each rule touches, and which of their values it doubts.

job frame -> judge -> the same frame with the names of its rules in `quality`, and how often each was met;
job frame -> trusted -> the same frame without the doubted values, for whoever builds on them.

A rule whose `odd` is None is one that only the reader of a record can tell: it has put the name into `quality` already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import polars as pl

from stormpetrel.records.states import JobState
from stormpetrel.records.units import MIB, PER_CPU_32, holds_flag

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

QUALITY: Final = "quality"
SEPARATOR: Final = ","
MAX_MEMORY_BYTES: Final = 1 << 50  # 1 PiB: more than any job has had
_MEMORY: Final = ("req_mem_bytes", "mem_bytes", "max_rss_bytes")
_SIGKILL: Final = 9
_KILLED_EXIT_CODES: Final = (128 + _SIGKILL, _SIGKILL)  # as a shell tells it, and as sacct before 26.05 prints that
_ABOVE: Final = 1.05  # sampling and rounding may put a sum this much above what it cannot exceed
_CLOCK_S: Final = 2.0  # sacct rounds to seconds, and starts and ends are stamped by different daemons
_OVERTIME_S: Final = 900.0  # Slurm ends a job within minutes of its limit; OverTimeLimit adds some
_OVERTIME_SHARE: Final = 0.1
_SPAN_S: Final = 60.0
_MOST_NODE_WATTS: Final = 50_000.0  # of one node; the largest with eight GPUs draw some 15 kW


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that accounting gets wrong.

    `about` is the column that the rule speaks of: where several records tell of one job, the rule goes with that column. `doubts`
    are the columns that nothing may be built on; empty where the value was put right, or is missing anyway.
    """

    name: str
    meaning: str
    about: str
    doubts: tuple[str, ...] = ()
    odd: pl.Expr | None = None


def _allocated_memory() -> pl.Expr:
    known = [pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("mem_bytes", "req_mem_bytes")]
    return pl.coalesce(*known)


def _was_killed() -> pl.Expr:
    """Whether the job was killed, as one is that takes more memory than it may."""
    signals = [pl.col(name) == _SIGKILL for name in ("exit_signal", "failed_step_exit_signal")]
    codes = [pl.col(name).is_in(_KILLED_EXIT_CODES) for name in ("exit_code", "failed_step_exit_code")]
    return pl.any_horizontal(pl.col("state") == JobState.OUT_OF_MEMORY.value, *signals, *codes).fill_null(False)


def _held_cpu_s() -> pl.Expr:
    return (pl.col("elapsed_s") + _CLOCK_S) * pl.when(pl.col("cpus") > 0).then("cpus")


def _off_span() -> pl.Expr:
    """Whether the run time is neither end − start nor that less the time for which the job was suspended."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    suspended = pl.col("extra").map.get("suspended_s").cast(pl.Float64, strict=False).fill_null(0.0)
    return (span - pl.col("elapsed_s") - suspended).abs() > _SPAN_S


def _mean_watts() -> pl.Expr:
    """What each node of a job drew on average by its energy; a job without a run time is taken to have run for a second."""
    nodes = pl.coalesce(*(pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("nodes", "req_nodes", "cpus")), 1)
    return pl.col("energy_j") / (nodes * pl.col("elapsed_s").fill_null(0.0).clip(1.0))


MEMORY_PER_CPU_FLAG: Final = "memory_per_cpu_flag"
IMPOSSIBLE_MEMORY: Final = "impossible_memory"
CPU_TIME_FROM_TRES: Final = "cpu_time_from_tres"
RSS_MISSING: Final = "rss_missing"
RSS_OF_ONE_TASK: Final = "rss_of_one_task"
END_WITHOUT_WAIT: Final = "end_without_wait"

RULES: Final = (
    Rule(
        MEMORY_PER_CPU_FLAG,
        "the memory asked for holds Slurm's flag for memory per CPU (`2147486648Mn` is 3,000 MB per CPU): read as that",
        "req_mem_bytes",
        odd=holds_flag("req_mem_bytes"),
    ),
    Rule(
        IMPOSSIBLE_MEMORY,
        "more than 1 PiB of memory: a number that stands for no limit, or a damaged one. The value becomes null",
        "req_mem_bytes",
        odd=pl.any_horizontal([pl.col(name) > MAX_MEMORY_BYTES for name in _MEMORY]) & ~holds_flag("req_mem_bytes"),
    ),
    Rule(
        CPU_TIME_FROM_TRES,
        "TotalCPU is empty in the steps (Slurm 25.05): the CPU time is the sum of their TRESUsageInTot",
        "cpu_time_s",
    ),
    Rule(
        RSS_MISSING,
        "the job had steps and ran for a minute or more, and none of them tells its MaxRSS (or all say 0): not sampled",
        "max_rss_bytes",
    ),
    Rule(
        RSS_OF_ONE_TASK,
        "MaxRSS is that of the largest of several tasks: the job as a whole needed more",
        "max_rss_bytes",
        doubts=("max_rss_bytes",),
    ),
    Rule(
        "rss_above_allocation",
        "MaxRSS is above the job's memory, and the job was not killed: memory that processes share is counted in each of "
        "them, or nothing enforces the limit",
        "max_rss_bytes",
        doubts=("max_rss_bytes",),
        odd=(pl.col("max_rss_bytes") > _ABOVE * _allocated_memory()) & ~_was_killed(),
    ),
    Rule(
        "cpu_time_above_held",
        "more CPU time than run time × CPUs",
        "cpu_time_s",
        doubts=("cpu_time_s", "user_cpu_s", "system_cpu_s"),
        odd=pl.col("cpu_time_s") > _ABOVE * _held_cpu_s(),
    ),
    Rule(
        "elapsed_above_limit",
        "the job ran a quarter of an hour and a tenth of its limit longer than that: its end was recorded late, or never",
        "elapsed_s",
        doubts=("elapsed_s",),
        odd=(pl.col("elapsed_s") > (1 + _OVERTIME_SHARE) * pl.col("time_limit_s") + _OVERTIME_S) & (pl.col("time_limit_s") > 0),
    ),
    Rule(
        "elapsed_off_span",
        "the run time is more than a minute off end − start, less the time for which the job was suspended",
        "elapsed_s",
        doubts=("elapsed_s",),
        odd=_off_span(),
    ),
    Rule(
        "impossible_energy",
        "the energy is that of more than 50 kW a node: a counter that wrapped around",
        "energy_j",
        doubts=("energy_j",),
        odd=_mean_watts() > _MOST_NODE_WATTS,
    ),
    Rule(
        END_WITHOUT_WAIT,
        "the log does not tell how long the job waited: its end is submission + run time, the earliest it can have been",
        "end_time",
    ),
)
BY_NAME: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Met:
    """How many rows of a frame a rule touched, and up to three of them."""

    rule: Rule
    rows: int
    examples: list[str]


def judge(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[Met]]:
    """The job rows (with `line`) with every rule they meet in `quality`, values put right or null where a rule says so."""
    flags = jobs.select(_meets(rule).alias(rule.name) for rule in RULES)
    names = [name for name in flags.columns if flags[name].any()]
    if not names:
        return jobs, []
    met = [Met(BY_NAME[name], int(flags[name].sum()), _examples(jobs, BY_NAME[name], flags[name])) for name in names]
    return _put_right(jobs.with_columns(quality_of(flags)), flags), met


def with_rules(jobs: pl.DataFrame, flags: Mapping[str, pl.Series]) -> pl.DataFrame:
    """The rows with the rules that their reader has found them to meet, next to those it has named before."""
    before = jobs if QUALITY in jobs.columns else jobs.with_columns(pl.lit(None, dtype=pl.String).alias(QUALITY))
    if not any(matches.any() for matches in flags.values()):
        return before
    named = before.select(has_any([rule.name]).alias(rule.name) for rule in RULES)
    both = named.with_columns((pl.col(name) | matches.fill_null(False)).alias(name) for name, matches in flags.items())
    return before.with_columns(quality_of(both))


def quality_of(flags: pl.DataFrame) -> pl.Series:
    """The column `quality` out of one column of flags for each rule."""
    names = [pl.when(pl.col(rule.name)).then(pl.lit(rule.name)) for rule in RULES]
    text = pl.concat_str(names, separator=SEPARATOR, ignore_nulls=True)
    return flags.select(pl.when(text != "").then(text).alias(QUALITY)).to_series()


@cache
def doubted(column: str) -> pl.Expr:
    """Whether a rule doubts a column of a row."""
    names = [rule.name for rule in RULES if column in rule.doubts]
    return has_any(names)


def has_any(names: Collection[str]) -> pl.Expr:
    """Whether a row met one of these rules."""
    return pl.col(QUALITY).str.contains_any(list(names)).fill_null(False)


def trusted(jobs: Frame) -> Frame:
    """The same jobs without the values that a rule doubts: what advice may build on."""
    if isinstance(jobs, pl.DataFrame) and QUALITY in jobs.columns and jobs[QUALITY].null_count() == jobs.height:
        return jobs  # no rule met any of them
    columns = jobs.collect_schema().names()
    concerned = [name for name in DOUBTED if name in columns]
    return jobs.with_columns(pl.when(~doubted(name)).then(pl.col(name)).alias(name) for name in concerned)


DOUBTED: Final = tuple(dict.fromkeys(column for rule in RULES for column in rule.doubts))


def names_text(names: Collection[str]) -> str | None:
    """Rules as the column `quality` holds them; None for none."""
    return SEPARATOR.join(rule.name for rule in RULES if rule.name in names) or None


def _meets(rule: Rule) -> pl.Expr:
    flagged = has_any([rule.name])
    return flagged if rule.odd is None else flagged | rule.odd.fill_null(False)


def _put_right(jobs: pl.DataFrame, flags: pl.DataFrame) -> pl.DataFrame:
    """The memory per CPU as that of the job where the reader has left the flag in it; memory beyond reason as null."""
    if flags[MEMORY_PER_CPU_FLAG].any():
        cpus = pl.coalesce(*(pl.when(pl.col(name) > 0).then(name) for name in ("cpus", "req_cpus")), 1)
        per_cpu = pl.col("req_mem_bytes") - PER_CPU_32 * MIB
        whole = pl.when(holds_flag("req_mem_bytes")).then(per_cpu * cpus).otherwise("req_mem_bytes")
        jobs = jobs.with_columns(whole.alias("req_mem_bytes"))
    if flags[IMPOSSIBLE_MEMORY].any():
        jobs = jobs.with_columns(pl.when(pl.col(name) <= MAX_MEMORY_BYTES).then(name).alias(name) for name in _MEMORY)
    return jobs


def _examples(jobs: pl.DataFrame, rule: Rule, flags: pl.Series) -> list[str]:
    some = jobs.filter(flags).head(3).select("line", "job_id", rule.about).rows()
    return [f"line {line}: job {job}, {rule.about} {value}" for line, job, value in some]

"""Quality: which job rows can be trusted, which go to quarantine, and what is odd about the rest.

JobFrame -> check -> (good rows, rejects, warnings). Only a row without identity, submit time or state is refused; a value that
cannot be true is taken out of its row and noted as unread (`records.unread`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.doubts import judge
from stormpetrel.records.states import OVER_BEFORE_START
from stormpetrel.records.unread import set_aside

# A record that was refused: where it stood, the rule that refused it, why, and what it said.
REJECT_SCHEMA: Final = pl.Schema({"line": pl.Int64, "rule": pl.String, "reason": pl.String, "raw": pl.String})
# Of the records that are refused at once, so many are kept as they are; the others are counted.
MOST_REJECTS: Final = 10_000

_FUTURE_SLACK: Final = timedelta(days=1)


@dataclass(slots=True)
class Warnings:
    """Things that are odd but not wrong enough to refuse the row; counted, with the value set to null where it says so."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, count: int, examples: list[str]) -> None:
        """Count one more kind of oddity, keeping three examples of it."""
        if count:
            self.counts[name] = self.counts.get(name, 0) + count
            self.examples.setdefault(name, []).extend(examples)
            del self.examples[name][3:]

    def merge(self, other: Warnings) -> None:
        """Add the counts of another chunk."""
        for name, count in other.counts.items():
            self.add(name, count, list(other.examples.get(name, [])))


def no_rejects() -> pl.DataFrame:
    """An empty frame of rejects."""
    return pl.DataFrame(schema=REJECT_SCHEMA)


def rejects(rows: list[tuple[int, str, str, str]]) -> pl.DataFrame:
    """A frame of rejects out of (line, rule, reason, raw)."""
    return pl.DataFrame(rows, schema=REJECT_SCHEMA, orient="row")


def bounded_rejects(rows: pl.DataFrame) -> pl.DataFrame:
    """The first rejects as they are, and one row per rule that stands for all the others: a bad file must not fill the disk."""
    if rows.height <= MOST_REJECTS:
        return rows
    others = rows.slice(MOST_REJECTS).group_by("rule", maintain_order=True).agg(pl.col("line").first(), pl.len().alias("n"))
    summary = others.select(
        "line",
        "rule",
        pl.format("{} more records from here on were refused by the same rule", "n").alias("reason"),
        pl.lit("").alias("raw"),
    )
    return pl.concat([rows.head(MOST_REJECTS), summary.cast(REJECT_SCHEMA)])


def check(jobs: pl.DataFrame, *, now: datetime) -> tuple[pl.DataFrame, pl.DataFrame, Warnings]:
    """Split job rows (with a `line` column next to the schema's) into good ones and rejects.

    Refused: no job id, no submit time, no state. Taken out of their row, which is kept: counts, sizes and spans below zero or
    beyond reason, and an end before its start. Kept with a warning: times in the future of `now`, and whatever meets a rule of
    `doubts`, whose name is in the row's `quality`.
    """
    rule = _first_broken_rule()
    flagged = jobs.with_columns(rule.alias("_rule"))
    warnings = Warnings()
    refused = no_rejects()
    if flagged["_rule"].null_count() < flagged.height:
        broken = flagged.filter(pl.col("_rule").is_not_null())
        refused = broken.select(
            "line",
            pl.col("_rule").alias("rule"),
            _reason().alias("reason"),
            _describe().alias("raw"),
        ).cast(REJECT_SCHEMA)
        flagged = flagged.filter(pl.col("_rule").is_null())
    good = set_aside(flagged.drop("_rule"), _odd_values())
    return _warn(good, now, warnings), refused, warnings


_COUNTS: Final = ("req_cpus", "cpus", "req_nodes", "nodes", "req_gpus", "gpus", "busy_gpus")
_SIZES: Final = (
    "req_mem_bytes", "mem_bytes", "max_rss_bytes", "gpu_mem_bytes", "disk_read_bytes", "disk_write_bytes", "energy_j",
)  # fmt: skip
_SPANS: Final = ("elapsed_s", "time_limit_s", "cpu_limit_s", "cpu_time_s", "user_cpu_s", "system_cpu_s")
_MOST_COUNT: Final = 10**9  # of CPUs, nodes or GPUs; Slurm prints 4294967294 for "not set"
_LONGEST_S: Final = 3.2e9  # of one run: a hundred years
_LONGEST_CPU_S: Final = 1e15  # of all CPUs of one run: ten million of them for three years


def _odd_values() -> dict[str, pl.Expr]:
    """Where the value of a column cannot be true, of each column that this can be reported."""
    limits = dict.fromkeys(_COUNTS, float(_MOST_COUNT)) | dict.fromkeys(_SPANS, _LONGEST_CPU_S)
    limits |= {"elapsed_s": _LONGEST_S, "time_limit_s": _LONGEST_S}
    odd = {name: (pl.col(name) < 0) | (pl.col(name) > most) for name, most in limits.items()}
    odd |= {name: pl.col(name) < 0 for name in _SIZES}
    # Of a job that was over before it ran Slurm prints a start that was planned; otherwise it is the end that does not fit.
    backwards = pl.col("end_time") < pl.col("start_time")
    never_ran = pl.col("state").is_in([str(state) for state in OVER_BEFORE_START]) & (pl.col("elapsed_s").fill_null(0.0) <= 0.0)
    return odd | {"start_time": backwards & never_ran, "end_time": backwards & ~never_ran}


def _first_broken_rule() -> pl.Expr:
    return (
        pl.when(pl.col("job_id").is_null() | (pl.col("job_id") < 0))
        .then(pl.lit("no_job_id"))
        .when(pl.col("submit_time").is_null())
        .then(pl.lit("no_submit_time"))
        .when(pl.col("state").is_null())
        .then(pl.lit("no_state"))
    )


def _reason() -> pl.Expr:
    return pl.col("_rule").replace_strict(
        {
            "no_job_id": "the record has no job id",
            "no_submit_time": "the record has no submit time",
            "no_state": "the record has no state, or one that is not known",
        },
        return_dtype=pl.String,
    )


def _describe() -> pl.Expr:
    shown = ("job_id", "user", "state_raw", "submit_time", "start_time", "end_time")
    return pl.concat_str([pl.lit(f"{name}=") + pl.col(name).cast(pl.String).fill_null("-") for name in shown], separator=" ")


def _warn(jobs: pl.DataFrame, now: datetime, warnings: Warnings) -> pl.DataFrame:
    limit = now + _FUTURE_SLACK
    times = [pl.col(name) > limit for name in ("submit_time", "start_time", "end_time")]
    _count(jobs, pl.any_horizontal(times), "future_time", "submit_time", warnings)
    judged, met = judge(jobs)
    for rule in met:
        warnings.add(rule.rule.name, rule.rows, rule.examples)
    return judged


def _count(jobs: pl.DataFrame, odd: pl.Expr, name: str, shown: str, warnings: Warnings) -> None:
    flags = jobs.select(odd.fill_null(False).alias("odd")).to_series()
    total = int(flags.sum())
    if total:
        some = jobs.filter(flags).head(3).select("line", "job_id", shown).rows()
        warnings.add(name, total, [f"line {line}: job {job}, {shown} {value}" for line, job, value in some])

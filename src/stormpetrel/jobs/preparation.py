"""Preparation: a job frame with times, sizes and the calendar worked out, and an account of every row and value on the way.

job frame -> prepare -> Prepared (frame, counts, medians); values -> Normaliser -> numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.jobs.outcomes import COMPLETED, NEVER_STARTED, failed, final_state, outcome
from stormpetrel.records.arrays import Floats
from stormpetrel.records.doubts import doubted
from stormpetrel.records.jobs import KEY, never_started
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED
from stormpetrel.records.units import tres

UNKNOWN: Final = "(unknown)"  # the category of a word that the log does not tell
LABELS: Final = ("Completed", "Failed", "Other")
NEVER_STARTED_LABEL: Final = "Never started"
WORDS: Final = ("user", "group")
# What a job got and how it went. It is imputed only for jobs that ended: the others do not have it yet.
RECEIVED: Final = ("run_time_s", "wait_time_s", "cpu", "mem_gb", "node")
# What a job requested. An empty limit is often "unlimited", so an empty request makes no record incomplete.
REQUESTED: Final = ("req_cpu", "req_mem_gb", "req_node", "time_limit_s")
NUMBERS: Final = (*RECEIVED, *REQUESTED)
_GIB: Final = 2.0**30


@dataclass(frozen=True, slots=True)
class PreparationSettings:
    """How a job frame is prepared.

    Parameters
    ----------
    missing
        `impute`: the median for numbers, a category of its own for words; `drop`: incomplete records go.
    min_run_s
        Jobs that ran for less are excluded: 120 leaves out those under two minutes; None keeps every job.
    time_zone
        Zone of the calendar columns: the site's, so that an hour is an hour of its working day.
    allocation_as_request
        Take what was allocated for what was requested, in logs without requests. An allocation is known from the start on,
        not from submission on.
    keep_never_started
        Keep jobs that were over before they ran. They have no run time and neither succeeded nor failed; left out, they are
        counted as `dropped_never_started`.
    """

    missing: Literal["impute", "drop"] = "impute"
    min_run_s: float | None = None
    time_zone: str = "UTC"
    failure_states: tuple[str, ...] = DEFAULT_FAILURE_STATES
    dropped_states: tuple[str, ...] = ()
    allocation_as_request: bool = False
    keep_never_started: bool = False

    def __post_init__(self) -> None:
        if self.missing not in ("impute", "drop"):
            raise UsageError(f"Preparation cannot treat missing values by '{self.missing}'.", hint="Use 'impute' or 'drop'.")
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError) as error:
            raise UsageError(
                f"Unknown time zone '{self.time_zone}' for the calendar.", hint="Use a name such as 'Europe/Berlin'."
            ) from error


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared frame and what was done to it.

    Parameters
    ----------
    counts
        `rows` = `kept` + every `dropped_…`; `imputed_COLUMN` is the number of values filled in.
    medians
        What numbers were imputed with; give it to `prepare` for later jobs, so that they do not shape their own imputation.
    absent
        Columns of which the log records nothing at all. They stay null and make no record incomplete.
    """

    frame: pl.DataFrame
    counts: dict[str, int]
    medians: dict[str, float] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def prepare(
    jobs: pl.DataFrame, settings: PreparationSettings = PreparationSettings(), *, medians: Mapping[str, float] | None = None
) -> Prepared:
    """The jobs with run and wait time, sizes, calendar and outcome; the column `imputed` names what was filled in per row.

    `cpu_time_s` is run time × CPUs, what the allocation held, where the job frame's column of that name is CPU time used. The
    calendar counts from 1: Monday, January, ISO week 1; hours from 0. `user_jobs_before` counts the user's jobs with an
    earlier submission, excluded ones too.
    """
    frame = _derived(jobs, settings)
    # An empty frame lacks nothing: whether its log would have reported a column is not known.
    absent = tuple(name for name in (*NUMBERS, *WORDS) if frame.height and frame[name].null_count() == frame.height)
    counts = {"rows": frame.height}
    frame, dropped = _drop(frame, settings, absent)
    counts |= {"kept": frame.height, **dropped}
    filled: dict[str, float] = {}
    if settings.missing == "impute":
        filled = _medians(frame) if medians is None else dict(medians)
        frame, imputed = _impute(frame, filled)
        counts |= imputed
    else:
        frame = frame.with_columns(imputed=pl.lit([], dtype=pl.List(pl.String)))
    return Prepared(frame.with_columns(cpu_time_s=pl.col("run_time_s") * pl.col("cpu")), counts, filled, absent)


def label() -> pl.Expr:
    """What became of a job in three words: Completed, Failed, or Other (cancelled, not counted, not ended)."""
    completed = (pl.col("state") == COMPLETED).fill_null(False)
    return (
        pl.when(pl.col("failed").fill_null(False))
        .then(pl.lit("Failed"))
        .when(completed)
        .then(pl.lit("Completed"))
        .otherwise(pl.lit("Other"))
        .alias("label")
    )


def label_distribution(jobs: pl.DataFrame, failure_states: Iterable[str] = DEFAULT_FAILURE_STATES) -> pl.DataFrame:
    """How the jobs of a log ended: state, label, count and share (0 to 1), the most frequent state first.

    Jobs that were over before they ran are a state and a label of their own.
    """
    frame = jobs if "failed" in jobs.columns else jobs.with_columns(failed(failure_states))
    own_label = pl.when(never_started()).then(pl.lit(NEVER_STARTED_LABEL)).otherwise(label())
    return (
        frame.group_by(final_state().fill_null(UNKNOWN), own_label.alias("label"))
        .agg(count=pl.len().cast(pl.Int64))
        .with_columns(share=pl.col("count") / pl.col("count").sum())
        .sort(["count", "state"], descending=[True, False])
    )


class Normaliser:
    """Amounts from nothing to very much on one scale: log(1 + x), less the mean, by the standard deviation of training rows.

    NaN stays NaN; below zero counts as zero. A constant column becomes zeros.
    """

    def __init__(self) -> None:
        self.mean_: Floats = np.zeros(0)
        self.scale_: Floats = np.ones(0)

    def fit(self, values: Floats) -> Self:
        """Learn mean and scale of each column of (rows, columns)."""
        logs = self._logs(values)
        known = ~np.isnan(logs)
        count = np.maximum(known.sum(axis=0), 1)
        self.mean_ = np.where(known, logs, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, logs - self.mean_, 0.0) ** 2).sum(axis=0) / count)
        # Rounding leaves a constant column a spread of about 1e-16 of its mean.
        self.scale_ = np.where(spread > 1e-9 * np.maximum(1.0, np.abs(self.mean_)), spread, 1.0)
        return self

    def transform(self, values: Floats) -> Floats:
        """The columns on the common scale."""
        return (self._logs(values) - self.mean_) / self.scale_

    def to_dict(self) -> dict[str, object]:
        """The normaliser as plain values, for JSON."""
        return {"mean": self.mean_.tolist(), "scale": self.scale_.tolist()}

    @classmethod
    def from_dict(cls, state: Mapping[str, object]) -> Self:
        """The normaliser out of `to_dict`."""
        normaliser = cls()
        try:
            normaliser.mean_ = np.array(state["mean"], dtype=np.float64)
            normaliser.scale_ = np.array(state["scale"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError(
                "A normaliser was saved without its numbers 'mean' and 'scale'.", hint="Train the model again."
            ) from error
        return normaliser

    @staticmethod
    def _logs(values: Floats) -> Floats:
        return np.log1p(np.maximum(np.asarray(values, dtype=np.float64), 0.0))


def _derived(jobs: pl.DataFrame, settings: PreparationSettings) -> pl.DataFrame:
    """The columns of the seed, null where the log does not tell them."""
    local = pl.col("submit_time").dt.convert_time_zone(settings.time_zone)
    ended = pl.col("end_time").is_not_null() | pl.col("state").is_in([str(state) for state in FINISHED]).fill_null(False)
    frame = _with_sizes(jobs, settings).with_columns(
        pl.coalesce("user", pl.col("uid").cast(pl.String)),
        pl.coalesce("group", pl.col("gid").cast(pl.String)),
        failed(settings.failure_states, settings.dropped_states),
        outcome(),
        ended=ended,
    )
    # A job that ended in the queue ran for no time, and waited until then. A job that ran and has no start: nobody told its wait.
    in_queue = pl.col("start_time").is_null() & pl.col("end_time").is_not_null() & (pl.col("elapsed_s").fill_null(0.0) <= 0.0)
    ran = pl.coalesce(_seconds("start_time", "end_time"), "elapsed_s", pl.when(in_queue).then(0.0))
    ran = pl.when(~doubted("elapsed_s")).then(ran)
    waited_until = pl.coalesce("start_time", pl.when(in_queue).then("end_time"))
    return frame.select(
        *KEY,
        *WORDS,
        "state",
        "outcome",
        "failed",
        "ended",
        user_jobs_before=pl.when(pl.col("user").is_not_null()).then(
            pl.col("submit_time").rank("min").over("user").cast(pl.Int64) - 1
        ),
        run_time_s=pl.when("ended").then(ran.clip(lower_bound=0.0)),
        wait_time_s=(waited_until - pl.col("submit_time")).dt.total_microseconds().truediv(1e6).clip(lower_bound=0.0),
        cpu="cpu",
        mem_gb="mem_gb",
        node="node",
        req_cpu="req_cpu",
        req_mem_gb="req_mem_gb",
        req_node="req_node",
        time_limit_s="time_limit_s",
        submit_month=local.dt.month(),
        submit_day_of_week=local.dt.weekday(),
        submit_week_of_year=local.dt.week(),
        submit_quarter=local.dt.quarter(),
        submit_hour=local.dt.hour(),
    )


def _with_sizes(jobs: pl.DataFrame, settings: PreparationSettings) -> pl.DataFrame:
    """CPUs, nodes and memory (GiB), received and requested; out of the TRES strings where a row has no column of them."""
    got, requested = _tres(jobs["alloc_tres"]), _tres(jobs["req_tres"])
    frame = jobs.with_columns(
        cpu=pl.col("cpus").fill_null(got["cpus"]).cast(pl.Float64),
        node=pl.col("nodes").fill_null(got["nodes"]).cast(pl.Float64),
        mem_gb=pl.col("mem_bytes").fill_null(got["mem_bytes"]) / _GIB,
        req_cpu=pl.col("req_cpus").fill_null(requested["cpus"]).cast(pl.Float64),
        req_node=pl.col("req_nodes").fill_null(requested["nodes"]).cast(pl.Float64),
        req_mem_gb=pl.col("req_mem_bytes").fill_null(requested["mem_bytes"]) / _GIB,
    )
    if not settings.allocation_as_request:
        return frame
    silent = [name for name in ("cpu", "node", "mem_gb") if frame[f"req_{name}"].null_count() == frame.height]
    return frame.with_columns(pl.col(name).alias(f"req_{name}") for name in silent)


def _tres(column: pl.Series) -> pl.DataFrame:
    """The entries of a TRES column; most logs have none, and need not be searched."""
    if column.null_count() < len(column):
        return tres(column)
    return pl.DataFrame({name: column.cast(pl.Int64) for name in ("cpus", "nodes", "mem_bytes")})


def _drop(frame: pl.DataFrame, settings: PreparationSettings, absent: tuple[str, ...]) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows that stay, and how many went for each reason; a row goes for the first that holds."""
    reason = pl.lit(None, dtype=pl.String)
    if settings.missing == "drop":
        for name in (*RECEIVED, *WORDS):
            if name not in absent:
                reason = pl.when(reason.is_null() & pl.col(name).is_null()).then(pl.lit(f"no_{name}")).otherwise(reason)
    if settings.min_run_s is not None:
        short = (pl.col("run_time_s") < settings.min_run_s).fill_null(False)
        reason = pl.when(short).then(pl.lit("too_short")).otherwise(reason)
    if not settings.keep_never_started:
        over_before = (pl.col("outcome") == NEVER_STARTED).fill_null(False)
        reason = pl.when(over_before).then(pl.lit("never_started")).otherwise(reason)
    judged = frame.with_columns(reason.alias("reason"))
    gone = judged.filter(pl.col("reason").is_not_null())["reason"].value_counts(sort=True)
    dropped = {f"dropped_{name}": int(count) for name, count in gone.iter_rows()}
    return judged.filter(pl.col("reason").is_null()).drop("reason"), dropped


def _medians(frame: pl.DataFrame) -> dict[str, float]:
    row = frame.select(pl.col(NUMBERS).median()).row(0, named=True) if frame.height else {}
    return {name: float(value) for name, value in row.items() if value is not None}


def _impute(frame: pl.DataFrame, medians: Mapping[str, float]) -> tuple[pl.DataFrame, dict[str, int]]:
    """Every missing value filled that can be, each named in its row's `imputed`."""
    empty = {name: pl.col(name).is_null() & (pl.col("ended") | pl.lit(name in REQUESTED)) for name in medians if name in NUMBERS}
    empty |= {name: pl.col(name).is_null() for name in WORDS}
    names = [pl.when(missing).then(pl.lit(name)) for name, missing in empty.items()]
    fills: dict[str, float | str] = {**medians, **dict.fromkeys(WORDS, UNKNOWN)}
    filled = frame.with_columns(pl.concat_list(names).list.drop_nulls().alias("imputed")).with_columns(
        pl.when(missing).then(pl.lit(fills[name])).otherwise(pl.col(name)).alias(name) for name, missing in empty.items()
    )
    counts = frame.select(missing.sum().alias(f"imputed_{name}") for name, missing in empty.items()).row(0, named=True)
    return filled, {name: int(count) for name, count in counts.items()}


def _seconds(first: str, last: str) -> pl.Expr:
    return (pl.col(last) - pl.col(first)).dt.total_microseconds() / 1e6

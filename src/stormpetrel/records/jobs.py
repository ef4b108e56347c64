"""The job frame: one row per job, whatever scheduler it comes from; `JobRef`, one job by its whole key.

Columns are declared once, here; the docs page of the table is generated from this list. Columns of text -> as_map -> a column of
maps, as `extra` is one: an entry per field that says something; two such columns -> joined -> one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import numpy as np
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from stormpetrel.errors import UsageError
from stormpetrel.records.states import OVER_BEFORE_START
from stormpetrel.records.times import UTC_TIME

TEXT_MAP: Final = pl.Map(pl.String, pl.String)
_ENTRIES: Final = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the job frame: its name, type and meaning."""

    name: str
    dtype: DataType | DataTypeClass
    meaning: str


# (cluster, job id, array task, submit time, restart): ids wrap and repeat, so none of them alone tells two jobs apart.
KEY_COLUMNS: Final = (
    Column("cluster", pl.String, "cluster the job was submitted to"),
    Column("job_id", pl.Int64, "job id; of the whole array for an array task; leader's id + offset in a heterogeneous job"),
    Column("array_task", pl.Int64, "index within the array; null for other jobs"),
    Column("submit_time", UTC_TIME, "when it was submitted"),
    Column("restart", pl.Int32, "0 for the first run, counted up at each requeue the source tells of"),
)

# The order is part of the stored format (a row's `fields` is a bit mask over it): append, never reorder.
VALUE_COLUMNS: Final = (
    Column("job_id_raw", pl.Int64, "the scheduler's internal id (array tasks have one of their own)"),
    Column("het_job_id", pl.Int64, "id of the heterogeneous job this is a component of"),
    Column("het_offset", pl.Int32, "which component of it"),
    Column("job_name", pl.String, "name given by its user: hostile text"),
    Column("user", pl.String, "login name, or whatever stands for it in the log"),
    Column("uid", pl.Int64, "numeric user id"),
    Column("group", pl.String, "Unix group"),
    Column("gid", pl.Int64, "numeric group id"),
    Column("account", pl.String, "account or project that pays"),
    Column("partition", pl.String, "partition or queue"),
    Column("qos", pl.String, "quality of service, or queue where the log has both"),
    Column("eligible_time", UTC_TIME, "when it could have started"),
    Column("start_time", UTC_TIME, "when it started; null if it never did"),
    Column("end_time", UTC_TIME, "when it ended; null while it has not"),
    Column("state", pl.String, "state in the common vocabulary"),
    Column("state_raw", pl.String, "state as the source wrote it"),
    Column("cancelled_by", pl.String, "user id that cancelled it, where the source says"),
    Column("exit_code", pl.Int32, "exit code of the job"),
    Column("exit_signal", pl.Int32, "signal that ended it, 0 for none; 125 is Slurm's mark of a job killed for its memory"),
    Column("failed_step", pl.String, "first step that failed (`batch`, `0`, …)"),
    Column("failed_step_exit_code", pl.Int32, "its exit code"),
    Column("failed_step_exit_signal", pl.Int32, "its signal"),
    Column("time_limit_s", pl.Float64, "requested run time; null if unlimited or unknown"),
    Column("elapsed_s", pl.Float64, "run time"),
    Column("cpu_limit_s", pl.Float64, "CPU seconds the allocation held: elapsed × CPUs (sacct CPUTime)"),
    Column("req_cpus", pl.Int64, "CPUs asked for"),
    Column("cpus", pl.Int64, "CPUs allocated"),
    Column("req_nodes", pl.Int64, "nodes asked for"),
    Column("nodes", pl.Int64, "nodes allocated"),
    Column("req_gpus", pl.Int64, "GPUs asked for"),
    Column("gpus", pl.Int64, "GPUs allocated"),
    Column("req_mem_bytes", pl.Int64, "memory asked for, of the whole job"),
    Column("mem_bytes", pl.Int64, "memory allocated, of the whole job"),
    Column("max_rss_bytes", pl.Int64, "largest resident memory of any task of any step"),
    Column("cpu_time_s", pl.Float64, "CPU time used, user + system"),
    Column("user_cpu_s", pl.Float64, "CPU time used in user mode"),
    Column("system_cpu_s", pl.Float64, "CPU time used in system mode"),
    Column("disk_read_bytes", pl.Int64, "bytes read, largest of any task of any step"),
    Column("disk_write_bytes", pl.Int64, "bytes written, likewise"),
    Column("node_list", pl.String, "nodes it ran on, as the scheduler writes ranges"),
    Column("work_dir", pl.String, "working directory"),
    Column("script_path", pl.String, "script, out of the submit line"),
    Column("submit_line", pl.String, "command line it was submitted with"),
    Column("req_tres", pl.String, "trackable resources asked for, as Slurm writes them"),
    Column("alloc_tres", pl.String, "trackable resources allocated"),
    Column("extra", pl.Map(pl.String, pl.String), "every other field the source had"),
    Column("source", pl.String, "format the row came in"),
    Column("busy_gpus", pl.Float64, "GPUs that were busy at most, in any sample (gpuutil ÷ 100); null where nobody measured it"),
    Column("gpu_mem_bytes", pl.Int64, "memory of GPUs used at most, in any sample; null where nobody measured it"),
    Column("energy_j", pl.Int64, "joules its nodes drew, neighbours on shared nodes included; null where nobody measured them"),
)

# What is said about a row rather than by its source.
QUALITY_COLUMN: Final = Column(
    "quality", pl.String, "rules of data quality that the row meets, separated by commas; null for none"
)

BOOKKEEPING_COLUMNS: Final = (
    Column("fingerprint", pl.Int64, "hash of the source record this row was made from"),
    Column("fields", pl.Int64, "which columns that record provided, one bit each"),
    Column(
        "older",
        pl.List(pl.Struct({"fingerprint": pl.Int64, "rank": pl.Int8, "fields": pl.Int64})),
        "records of other sources that provide columns this one lacks; null for most rows",
    ),
    Column("month", pl.String, "UTC month of submission: the table's partition"),
)

# `source` of a row that was closed because its job was on no list any more: our own conclusion, which a later sighting overturns.
CLOSED_BY_ABSENCE: Final = "absence"
KEY: Final = tuple(column.name for column in KEY_COLUMNS)
SCRIPT_SIGNATURE: Final = "script_signature"  # the entry of `extra` that holds the signature of a job's script
VALUES: Final = tuple(column.name for column in VALUE_COLUMNS)
JOB_COLUMNS: Final = (*KEY_COLUMNS, *VALUE_COLUMNS, QUALITY_COLUMN)
JOB_SCHEMA: Final = pl.Schema({column.name: column.dtype for column in JOB_COLUMNS})
STORED_SCHEMA: Final = pl.Schema({column.name: column.dtype for column in (*JOB_COLUMNS, *BOOKKEEPING_COLUMNS)})
FIELD_BIT: Final = {name: 1 << position for position, name in enumerate(VALUES)}
FROM_STEPS: Final = (
    "max_rss_bytes",
    "disk_read_bytes",
    "disk_write_bytes",
    "failed_step",
    "failed_step_exit_code",
    "failed_step_exit_signal",
)


@cache
def never_started() -> pl.Expr:
    """Whether a job was over before it ran: no start, no run time, and an end that needs neither.

    Such a job says nothing about success or failure: it is left out of rates, labels, trends, waste and settling. A log
    that tells no start times at all still tells run times, so that its jobs are not taken for such.
    """
    over = pl.col("state").is_in(sorted(state.value for state in OVER_BEFORE_START))
    return (over & pl.col("start_time").is_null() & (pl.col("elapsed_s").fill_null(0.0) <= 0.0)).fill_null(False)


def was_never_started(job: Mapping[str, Any]) -> bool:
    """The same of one job as a plain row."""
    return job["state"] in OVER_BEFORE_START and job["start_time"] is None and not (job["elapsed_s"] or 0.0) > 0.0


def field_mask(columns: set[str] | frozenset[str]) -> int:
    """The bit mask of a set of value columns."""
    return sum(FIELD_BIT[name] for name in columns if name in FIELD_BIT)


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with exactly the columns of the job schema: missing ones null, others dropped, types as declared."""
    columns = [
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in JOB_SCHEMA.items()
    ]
    return frame.select(columns)


def job_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """A job frame out of plain dictionaries; keys that are no column go to `extra`."""
    columns = {name: [row.get(name) for row in rows] for name in JOB_SCHEMA}
    for position, row in enumerate(rows):
        others = {name: str(row[name]) for name in row.keys() - JOB_SCHEMA.keys() if row[name] is not None}
        if others:
            extra = row.get("extra")
            columns["extra"][position] = {**(extra if isinstance(extra, dict) else {}), **others}
    # A request tells a dozen of the columns, and each takes its time to make: the others come from a row of nulls.
    frame = _NULLS[np.zeros(len(rows), np.int64)]
    for place, (name, values) in enumerate(columns.items()):
        if any(value is not None for value in values):
            frame.replace_column(place, pl.Series(name, values, dtype=JOB_SCHEMA[name]))
    return frame


_NULLS: Final = pl.DataFrame({name: [None] for name in JOB_SCHEMA}, schema=JOB_SCHEMA)


_JOB_ID: Final = re.compile(r"(\d{1,18})(?:[_.](\d{1,10}))?", re.ASCII)
_FORM: Final = re.compile(r"(\d{1,18})(?:_(\d{1,10}))?-(\d{1,17})-(\d{1,6})-(.{1,200})", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobRef:
    """The key of a job: ids wrap and repeat, so the submit time, the restart and the cluster belong to it."""

    cluster: str
    job_id: int
    array_task: int | None
    submit_time: datetime
    restart: int

    @classmethod
    def of(cls, job: dict[str, Any]) -> JobRef:
        """The reference of a row of the job frame."""
        return cls(job["cluster"], job["job_id"], job["array_task"], job["submit_time"], job["restart"] or 0)

    @classmethod
    def parse(cls, text: str) -> JobRef:
        """Read what `str` wrote."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"{text[:80]!r} does not name a job.", hint="Take the link from the table of jobs.")
        task = None if match[2] is None else int(match[2])
        submit_time = _EPOCH + timedelta(microseconds=int(match[3]))
        return cls(match[5], int(match[1]), task, submit_time, int(match[4]))

    def __str__(self) -> str:
        return f"{self.job}-{(self.submit_time - _EPOCH) // timedelta(microseconds=1)}-{self.restart}-{self.cluster}"

    @property
    def job(self) -> str:
        """The id as people write it: `12345`, or `12345_7` for a task of an array."""
        return f"{self.job_id}" if self.array_task is None else f"{self.job_id}_{self.array_task}"

    def is_row(self) -> pl.Expr:
        """Which row of a frame with the key's columns is this job."""
        return (
            (pl.col("job_id") == self.job_id)
            & (pl.col("submit_time") == self.submit_time)
            & pl.col("array_task").eq_missing(pl.lit(self.array_task, dtype=pl.Int64))
            & (pl.col("restart").fill_null(0) == self.restart)
            & (pl.col("cluster") == self.cluster)
        )


def is_job_id(text: str) -> bool:
    """Whether a text is an id as people write it: `12345`, `12345_7` for a task of an array, `12345.7` for a job of HTCondor."""
    return _JOB_ID.fullmatch(text) is not None


def job_number(text: str) -> int:
    """The number in front of an id as people write it: 12345 of `12345_7`; -1 where the text is no id."""
    match = _JOB_ID.fullmatch(text)
    return int(match[1]) if match else -1


def jobs_with_id(jobs: pl.DataFrame, text: str) -> pl.DataFrame:
    """The rows of exactly this id, in the order they are in; none where the text is no id.

    `12345` is that job, or all tasks of that array. The number that Slurm gives to a task of an array next to its place in it
    (`job_id_raw`) counts only where no job is called so: it belongs to a job that people know by another id.
    """
    match = _JOB_ID.fullmatch(text)
    if match is None:
        return jobs.clear()
    if match[2] is not None:
        return jobs.filter(job_id=int(match[1]), array_task=int(match[2]))
    matches = jobs.filter(job_id=int(match[1]))
    return matches if matches.height else jobs.filter(job_id_raw=int(match[1]))


def ref_text() -> pl.Expr:
    """The reference of every row of a frame with the key's columns, as text."""
    task = (
        pl.when(pl.col("array_task").is_not_null()).then(pl.concat_str(pl.lit("_"), pl.col("array_task"))).otherwise(pl.lit(""))
    )
    return pl.concat_str(
        pl.col("job_id"), task, pl.lit("-"), pl.col("submit_time").dt.epoch("us"), pl.lit("-"),
        pl.col("restart").fill_null(0), pl.lit("-"), pl.col("cluster"),
    ).alias("ref")  # fmt: skip


def job_text() -> pl.Expr:
    """Return the id of each row as people write it: `12345`, or `12345_7` for a task of an array."""
    return pl.concat_str(pl.col("job_id"), pl.concat_str(pl.lit("_"), pl.col("array_task")).fill_null(""))


def as_map(columns: dict[str, pl.Series]) -> pl.Series:
    """Columns of strings as one column of maps; a null value has no entry, a row without entries is null."""
    filled = {name: column for name, column in columns.items() if column.null_count() < len(column)}
    height = len(next(iter(columns.values())))
    if not filled:
        return no_map(height)
    rows = pl.DataFrame(filled).with_row_index("_row")
    entries = (
        rows.unpivot(index="_row", variable_name="key", value_name="value")
        .drop_nulls("value")
        .group_by("_row", maintain_order=False)
        .agg(pl.struct("key", "value").alias("entries"))
        .with_columns(pl.col("entries").cast(TEXT_MAP))
    )
    return rows.select("_row").join(entries, on="_row", how="left", maintain_order="left")["entries"]


def no_map(height: int) -> pl.Series:
    """As many nulls."""
    return pl.Series([None], dtype=TEXT_MAP).new_from_index(0, height)


def joined(first: pl.Series, second: pl.Series) -> pl.Series:
    """The entries of both maps of each row; where both have a key, the second's; null where neither has an entry."""
    both = pl.DataFrame({"first": first.cast(_ENTRIES), "second": second.cast(_ENTRIES)})
    entries = pl.concat_list(pl.col("first").fill_null([]), pl.col("second").fill_null([]))
    return both.select(pl.when(entries.list.len() > 0).then(entries)).to_series().cast(TEXT_MAP).rename(first.name)

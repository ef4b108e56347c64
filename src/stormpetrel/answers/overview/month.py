"""One month of the overview: its jobs, each with its latest prediction.

job rows + prediction rows of a month -> month_frame -> rows of the overview.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from stormpetrel.jobs import outcomes
from stormpetrel.jobs.advice import waiting
from stormpetrel.jobs.advice.waiting import COLUMNS as WAITING_COLUMNS
from stormpetrel.jobs.advice.waiting import WAITING_SCHEMA, waiting_columns
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.outcomes import failed
from stormpetrel.lifecycle.kept_frames import code_digest
from stormpetrel.records import jobs as job_records
from stormpetrel.records.cluster import Cluster
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, never_started
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.records.times import EARLIEST
from stormpetrel.store.tables import Table

_SHOWN: Final = (
    *KEY, "user", "account", "partition", "job_name", "state", "start_time", "end_time", "elapsed_s", "cpus", "nodes",
    "time_limit_s", "req_mem_bytes", "max_rss_bytes",
)  # fmt: skip
# What advice compares jobs by, and what profiles are worked out from; not shown.
_BEHIND: Final = (
    "job_id_raw", "script_path", "work_dir", "extra", "qos", "exit_code", "exit_signal", "failed_step_exit_code",
    "failed_step_exit_signal", "req_cpus", "req_nodes", "req_gpus", "gpus", "mem_bytes", "cpu_time_s", "busy_gpus", "quality",
)  # fmt: skip
PREDICTION_COLUMNS: Final = (
    "moment", "moment_time", "predicted_at", "late", "model_version", "risk", "flagged", "known", "likeliest", "profile",
)  # fmt: skip
_DERIVED: Final = {
    "job": pl.String(), "prediction": pl.String(), "confidence": pl.Float32(), "first_risk": pl.Float32(), "failed": pl.Boolean(),
    "never_started": pl.Boolean(),
    **WAITING_SCHEMA,
}  # fmt: skip
# What is read of the table; what only says why a job waits is not kept.
JOB_COLUMNS: Final = (*_SHOWN, *_BEHIND, *(name for name in WAITING_COLUMNS if name not in (*_SHOWN, *_BEHIND)))
OVERVIEW_SCHEMA: Final = pl.Schema(
    {**{name: JOB_SCHEMA[name] for name in _SHOWN}, **{name: PREDICTION_SCHEMA[name] for name in PREDICTION_COLUMNS}, **_DERIVED}
)
MONTH_SCHEMA: Final = pl.Schema({**OVERVIEW_SCHEMA, **{name: JOB_SCHEMA[name] for name in _BEHIND}})
PIECE_JOBS: Final = (
    100_000  # of a month that are made into rows of the overview at once: half a kilobyte each, several times over
)


def month_frame(
    jobs: pl.DataFrame,
    predictions: pl.DataFrame,
    failure_states: Iterable[str],
    dropped_states: Iterable[str],
    cluster: Cluster | None = None,
) -> pl.DataFrame:
    """Return the jobs and predictions of one month as rows of the overview (`MONTH_SCHEMA`), the latest submission first.

    With the cluster the rows of waiting jobs say which limit a job is above, and which value fits.
    """
    jobs = jobs.sort("submit_time", "job_id", "array_task", "restart", descending=True, nulls_last=True)
    frame = jobs.hstack(_latest(jobs, predictions)).hstack(waiting_columns(jobs, cluster))
    fails = pl.col("flagged")
    number = pl.col("extra").map.get("executable")  # all that is needed of it
    frame = frame.with_columns(
        cpus=pl.coalesce("cpus", "req_cpus"),  # a job that waits shows what it asks for
        nodes=pl.coalesce("nodes", "req_nodes"),
        extra=pl.when(number.is_not_null()).then("extra"),
        job=pl.concat_str(pl.col("job_id"), pl.concat_str(pl.lit("_"), pl.col("array_task")).fill_null("")),
        prediction=pl.when(fails).then(pl.lit("Fail")).when(~fails).then(pl.lit("Complete")),
        confidence=100 * pl.when(fails).then(pl.col("risk")).otherwise(1 - pl.col("risk")),
        failed=failed(failure_states, dropped_states),
        never_started=never_started(),
    )
    return frame.select([pl.col(name).cast(dtype) for name, dtype in MONTH_SCHEMA.items()]).rechunk()


def submission_spans(table: Table, files: Iterable[Path]) -> list[tuple[datetime, datetime]]:
    """Spans of submission that hold all rows of these files, the earliest first, with about `PIECE_JOBS` jobs each.

    A month of a large site is worked on span by span, so that its rows are never in memory several times over. Of files without
    rows there is one span, with nothing in it.
    """
    counts = table.scan(sorted(files)).group_by(hour=pl.col("submit_time").dt.truncate("1h")).len().sort("hour").collect()
    begins, jobs = [], PIECE_JOBS
    for hour, count in counts.iter_rows():
        if jobs + count > PIECE_JOBS:
            begins.append(hour)
            jobs = 0
        jobs += count
    if not begins:
        return [(EARLIEST, EARLIEST)]
    return list(pairwise([*begins, counts["hour"][-1] + timedelta(hours=1)]))


def submitted_within(span: tuple[datetime, datetime]) -> pl.Expr:
    """Whether a job was submitted in a span, its end not included."""
    return pl.col("submit_time").is_between(*span, closed="left")


def identity_of(files: Iterable[frozenset[Path]], failure_states: Iterable[str], dropped_states: Iterable[str]) -> dict[str, Any]:
    """What the frame of a month depends on beside its cluster: the files, the states, and the code."""
    return {
        "files": [sorted(path.name for path in part) for part in files],
        "states": [list(failure_states), list(dropped_states)],
        "code": code_digest((sys.modules[__name__], waiting, outcomes, job_records)),
        "polars": pl.__version__,
    }


def _latest(jobs: pl.DataFrame, predictions: pl.DataFrame) -> pl.DataFrame:
    """The latest prediction of each job, and the risk at its submission, in the order of the jobs."""
    order = pl.col("moment").replace_strict({str(m): n for n, m in enumerate(MOMENTS)}, default=-1, return_dtype=pl.Int8)
    predictions = predictions.sort(order, "predicted_at", maintain_order=True)
    latest = predictions.unique(KEY, keep="last")
    at_submit = predictions.filter(pl.col("moment") == "submit").unique(KEY, keep="first")
    first = at_submit.select(*KEY, first_risk="risk")
    rows = jobs.select(KEY)
    for part in (latest, first):
        rows = rows.join(part, on=list(KEY), how="left", nulls_equal=True, maintain_order="left")
    return rows.drop(KEY)


Answer = TypeVar("Answer")
Files = Mapping[str, frozenset[Path]]
_FILE_GONE: Final = (OSError, pl.exceptions.PolarsError)


def again(read: Callable[[], Answer]) -> Answer:
    """Read; once more where a compaction has removed a file from under the first try."""
    try:
        return read()
    except _FILE_GONE:
        return read()


def files_by_month(table: Table) -> Files:
    """Return the data files of each month (`2026-11`); a file carries its partition in its path."""
    months: dict[str, set[Path]] = {}
    for path in table.files():
        months.setdefault(path.parent.name.removeprefix("month="), set()).add(path)
    return {month: frozenset(files) for month, files in months.items()}


def read_rows(table: Table, chosen: pl.DataFrame, known: Files) -> pl.DataFrame:
    """Return the rows of a table that have the key of one of the chosen rows: only their months are read, only their ids kept.

    `known` are the files as they were at the last refresh; the table is listed anew only where these are gone.
    """
    wanted = chosen.select(KEY)
    months = wanted["submit_time"].dt.strftime("%Y-%m").unique().sort()
    ids = pl.col("job_id").is_in(wanted["job_id"].unique().implode())

    def read(files: Files) -> pl.DataFrame:
        paths: Iterable[Path] = (path for month in months for path in sorted(files.get(month, frozenset())))
        return table.scan(list(paths)).filter(ids).collect().join(wanted, on=list(KEY), how="semi", nulls_equal=True)

    try:
        return read(known)
    except _FILE_GONE:
        return again(lambda: read(files_by_month(table)))

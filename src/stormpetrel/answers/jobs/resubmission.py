"""Resubmissions: the same work tried again after it went wrong, with what was changed and the risk before and after.

one row of the overview + its user's rows -> find_tries -> earlier and later tries.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.answers.json_values import json_value
from stormpetrel.answers.schemas.job import Change, Try
from stormpetrel.jobs.keys import family
from stormpetrel.records.jobs import JobRef

REQUEST: Final = ("time_limit_s", "req_mem_bytes", "req_cpus", "req_nodes", "partition")
_CANCELLED: Final = "CANCELLED"
_WITHIN: Final = timedelta(days=14)
_NEAREST_JOBS: Final = 500  # jobs of the user before, and after
_MOST: Final = 5  # tries that are shown each way


def find_tries(job: pl.DataFrame, own: pl.DataFrame) -> tuple[tuple[Try, ...], tuple[Try, ...]]:
    """Earlier tries, the last one first, and later tries, the first one first; `own` are the user's rows.

    The same work is the same task of the same application in the same directory, under the same name where there is one. An
    earlier try went wrong (it failed, or somebody cancelled it) before this job was submitted; a later one came after this job
    had gone wrong. A run that went well ends the row of tries; one that the scheduler took back says nothing.
    """
    this = job.with_columns(family()).row(0, named=True)
    return tuple(_earlier(this, own)), tuple(_later(this, own))


def _earlier(this: dict[str, Any], own: pl.DataFrame) -> list[Try]:
    submitted = this["submit_time"]
    before = own.filter((pl.col("submit_time") >= submitted - _WITHIN) & (pl.col("end_time") <= submitted))
    tries: list[Try] = []
    after = this
    for row in _same_work(this, before.sort("submit_time", descending=True, maintain_order=True)):
        if not _went_wrong(row) or len(tries) == _MOST:
            break
        tries.append(_try(row, before=row, after=after))
        after = row
    return tries


def _later(this: dict[str, Any], own: pl.DataFrame) -> list[Try]:
    ended = this["end_time"]
    if ended is None or not _went_wrong(this):
        return []
    since = own.filter(pl.col("submit_time").is_between(ended, ended + _WITHIN))
    tries: list[Try] = []
    before = this
    for row in _same_work(this, since.sort("submit_time", maintain_order=True)):
        if len(tries) == _MOST:
            break
        if row["submit_time"] < before["end_time"]:  # sent off while the last try still ran
            continue
        tries.append(_try(row, before=before, after=row))
        if row["end_time"] is None or not _went_wrong(row):
            break
        before = row
    return tries


def _same_work(this: dict[str, Any], jobs: pl.DataFrame) -> list[dict[str, Any]]:
    task = pl.col("array_task").eq_missing(pl.lit(this["array_task"], dtype=pl.Int64))
    taken_back = pl.col("failed").is_null() & pl.col("end_time").is_not_null() & (pl.col("state") != _CANCELLED)
    near = jobs.filter(task & ~taken_back).head(_NEAREST_JOBS).with_columns(family())
    directory = pl.lit(this["work_dir"], dtype=pl.String)
    same_directory = (pl.col("work_dir") == directory).fill_null(True)  # where both are known
    application = pl.col("family") == pl.lit(this["family"], dtype=pl.String)
    if this["family"] is None:
        application, same_directory = pl.col("family").is_null(), (pl.col("work_dir") == directory).fill_null(False)
    relatives = near.filter(application & same_directory)
    namesakes = relatives.filter(pl.col("job_name") == pl.lit(this["job_name"], dtype=pl.String))
    return (relatives if namesakes.is_empty() else namesakes).to_dicts()


def _went_wrong(row: dict[str, Any]) -> bool:
    return bool(row["failed"]) or row["state"] == _CANCELLED


def _try(other: dict[str, Any], *, before: dict[str, Any], after: dict[str, Any]) -> Try:
    changes = [
        Change(column=name, before=json_value(before[name]), after=json_value(after[name]))
        for name in REQUEST
        if before[name] != after[name]
    ]
    ref = JobRef.of(other)
    return Try(
        ref=str(ref),
        job=ref.job,
        state=other["state"],
        failed=other["failed"],
        submit_time=other["submit_time"],
        changes=changes,
        risk_before=_risk(before),
        risk_after=_risk(after),
    )


def _risk(row: dict[str, Any]) -> float | None:
    risk = row["first_risk"] if row["first_risk"] is not None else row["risk"]
    return None if risk is None else float(risk)

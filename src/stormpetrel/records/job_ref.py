"""One job by its whole key, in a form that fits into a link: `12345_7-1718000000000000-0-cluster`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.errors import UsageError

_JOB_ID: Final = re.compile(r"(\d{1,18})(?:_(\d{1,10}))?", re.ASCII)
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
    """Whether a text is an id as people write it: `12345`, or `12345_7` for a task of an array."""
    return _JOB_ID.fullmatch(text) is not None


def jobs_with_id(jobs: pl.DataFrame, text: str) -> pl.DataFrame:
    """The rows of exactly this id, in the order they are in; none where the text is no id.

    `12345` is that job, or all tasks of that array. The number that Slurm gives to a task of an array beside its place in it
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

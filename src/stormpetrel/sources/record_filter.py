"""A source of which some records only are taken in: those of certain jobs, or in a certain state.

JobSource + rule -> Chosen -> the same source without the other records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.contract import Chunk, JobSource

OPEN_KEY: Final = ("job_id", "array_task", "submit_time")  # within a cluster, of one run of a job
_ID: Final = r"^(\d+)(?:_(\d+)|\+(\d+))?$"


class Chosen:
    """The records of a source for which a rule holds; everything else is the source's own."""

    def __init__(self, source: JobSource, rule: Callable[[pl.DataFrame], pl.Series]) -> None:
        self._source, self._rule = source, rule
        self.name, self.format, self.as_of = source.name, source.format, source.as_of
        self.size_bytes, self.notes, self.cursor = source.size_bytes, source.notes, source.cursor

    def fields(self) -> frozenset[str]:
        """The columns of the source."""
        return self._source.fields()

    def chunks(self) -> Iterator[Chunk]:
        """The chunks of the source, with the chosen records."""
        for chunk in self._source.chunks():
            yield self._chosen(chunk) if chunk.records.height else chunk

    def _chosen(self, chunk: Chunk) -> Chunk:
        records = chunk.records.filter(self._rule(chunk.records))
        steps = chunk.steps.join(records.select("record"), on="record", how="semi") if chunk.steps is not None else None
        dropped = chunk.records.height - records.height
        return replace(chunk, records=records, steps=steps, read=chunk.read - dropped)


def key_of(records: pl.DataFrame) -> pl.DataFrame:
    """Which run of which job each record is of (OPEN_KEY), out of sacct's text with Unix seconds or out of job rows."""
    if "jobid" not in records.columns:
        return records.select(OPEN_KEY)
    parts = records["jobid"].str.extract_groups(_ID).struct.unnest().cast(pl.Int64, strict=False)
    return parts.select(
        # The components of a heterogeneous job have consecutive ids, the leader's first.
        (pl.col("1") + pl.col("3").fill_null(0)).alias("job_id"),
        pl.col("2").cast(JOB_SCHEMA["array_task"]).alias("array_task"),
        (records["submit"].cast(pl.Int64, strict=False) * 1_000_000).cast(UTC_TIME).alias("submit_time"),
    )


def is_among(records: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """Which records are of one of these runs (OPEN_KEY)."""
    there = keys.select(OPEN_KEY).unique().with_columns(_there=pl.lit(True))
    joined = key_of(records).join(there, on=list(OPEN_KEY), how="left", nulls_equal=True, maintain_order="left")
    return joined["_there"].fill_null(False)

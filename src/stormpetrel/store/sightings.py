"""The table of sightings: when, and in which line of its source, each record was seen."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.tables import TableSpec

SIGHTINGS = TableSpec(
    "sightings",
    pl.Schema([("fingerprint", pl.Int64()), ("as_of", UTC_TIME), ("line", pl.Int64())]),
    partition_by=(),
    ranges=("as_of",),
    distinct=("fingerprint", "line"),
)


def sightings_of(records: pl.DataFrame, as_of: datetime) -> pl.DataFrame:
    """The fact that these records (`fingerprint`, `line`) were seen at a time, and where."""
    return records.select("fingerprint", pl.lit(as_of, dtype=UTC_TIME).alias("as_of"), "line")


def last_sightings(sightings: pl.LazyFrame) -> pl.LazyFrame:
    """When and where each record was seen last."""
    return sightings.sort("as_of", "line").unique("fingerprint", keep="last", maintain_order=True)

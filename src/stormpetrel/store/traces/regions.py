"""The table of known regions: which troubles people named, with the windows that they looked like.

KnownRegion's parts + example windows -> add -> KnownRegion; list, examples, remove. A region is there whole or not at all: all of
its rows are in one commit.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from stormpetrel.errors import NotThereError
from stormpetrel.records.regions import TRACE_REGION_SCHEMA, KnownRegion, RegionScope
from stormpetrel.records.times import month_of
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA
from stormpetrel.store.tables import TableSpec, TableStore

TRACE_REGIONS: Final = TableSpec(
    "trace_regions",
    pl.Schema({**TRACE_REGION_SCHEMA, "month": pl.String()}),
    partition_by=("month",),  # of when it was added
    ranges=("added",),
    distinct=("user", "system", "iowait"),
)
_ABOUT: Final = [name for name in TRACE_REGION_SCHEMA if name not in CPU_WINDOW_SCHEMA]


class TraceRegionStore(TableStore):
    """Reads and writes the known regions of a site."""

    spec = TRACE_REGIONS

    def add(
        self, name: str, scope: RegionScope, windows: pl.DataFrame, *, user: str, now: datetime, incident: int | None = None
    ) -> KnownRegion:
        """Keep a region with these example windows (a frame of CPU_WINDOW_SCHEMA, at least one row)."""
        region_id = secrets.token_hex(8)
        about = {"region_id": region_id, "name": name, "added": now, "added_by": user, "incident": incident, **scope.columns()}
        columns = [pl.lit(value, dtype=TRACE_REGION_SCHEMA[column]).alias(column) for column, value in about.items()]
        with self._writer_lock():
            self.table.append(windows.with_columns(columns).with_columns(month=month_of(pl.col("added"))))
        return KnownRegion(region_id, name, now.astimezone(UTC), user, incident, scope, windows.height)

    def read(self) -> pl.LazyFrame:
        """All regions with all their examples, as a frame of TRACE_REGION_SCHEMA."""
        return self.table.scan().select(list(TRACE_REGION_SCHEMA))

    def list(self) -> list[KnownRegion]:
        """The regions, the oldest first."""
        rows = self.table.scan().group_by(_ABOUT).len("examples").sort("added", "region_id").collect()
        return [_region(row) for row in rows.iter_rows(named=True)]

    def examples(self, region_id: str) -> pl.DataFrame:
        """The example windows of a region, as a frame of CPU_WINDOW_SCHEMA."""
        return self.table.scan().filter(pl.col("region_id") == region_id).select(list(CPU_WINDOW_SCHEMA)).collect()

    def remove(self, region_id: str) -> None:
        """Take a region back; NotThereError where there is none of this id."""
        with self._writer_lock():
            if not self.table.delete("region_id", region_id):
                raise NotThereError(f"There is no region {region_id}.", hint="List them: stormpetrel traces regions")

    def version(self) -> int:
        """A number that grows whenever a region is added or taken back."""
        return self.table.version()


def _region(row: dict[str, Any]) -> KnownRegion:
    scope = RegionScope(
        cluster=row["of_cluster"],
        job_type=row["of_job_type"],
        job_id=row["of_job"],
        node=row["of_node"],
        since=_utc(row["of_since"]),
        until=_utc(row["of_until"]),
    )
    added = _utc(row["added"])
    assert added is not None
    return KnownRegion(row["region_id"], row["name"], added, row["added_by"], row["incident"], scope, row["examples"])


def _utc(moment: object) -> datetime | None:
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None

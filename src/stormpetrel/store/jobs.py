"""The job table, one row per job, and the table of sightings: when each record was read. New records: ingest/commit.py."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

import polars as pl

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, STORED_SCHEMA, JobRef
from stormpetrel.records.states import UNFINISHED
from stormpetrel.records.times import UTC_TIME, month_of
from stormpetrel.store.source_health import ReadPositions
from stormpetrel.store.tables import Table, TableSpec, TableStore, WriterLock

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


JOBS = TableSpec(
    "jobs",
    STORED_SCHEMA,
    partition_by=("month",),
    ranges=("job_id", "submit_time", "start_time", "end_time"),
    distinct=("job_id", "submit_time", "eligible_time", "start_time", "end_time", "job_id_raw", "fingerprint"),
)


class JobStore(TableStore):
    """Reads and writes the job table of a site."""

    spec = JOBS

    def __init__(self, tables: Path, writer_lock: WriterLock, positions: ReadPositions | None = None) -> None:
        super().__init__(tables, writer_lock)
        self.sightings = Table(tables, SIGHTINGS)
        self._positions = positions

    def create(self) -> None:
        """Create the tables unless they are there."""
        super().create()
        self.sightings.create()

    def read_jobs(self, *, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The jobs submitted in a span of time, as a job frame."""
        rows = self.table.scan()
        if since is not None:
            rows = rows.filter(pl.col("month") >= f"{since:%Y-%m}", pl.col("submit_time") >= since)
        if until is not None:
            rows = rows.filter(pl.col("month") <= f"{until:%Y-%m}", pl.col("submit_time") < until)
        return rows.select(list(JOB_SCHEMA))

    def open_jobs(self) -> pl.DataFrame:
        """The jobs that wait or run as far as the table knows: KEY, `state`, `source` and `start_time`."""
        unfinished = [str(state) for state in UNFINISHED]
        rows = self.table.scan().filter(pl.col("state").is_in(unfinished))
        return rows.select(*KEY, "state", "source", "start_time").collect()

    def cursor(self, name: str) -> int | None:
        """How far a live source has been read: where its cursor was committed, or beyond that in vain."""
        committed = self.table.cursor(name)
        return (self._positions.position(name, beyond=committed) if self._positions else None) or committed

    def read_in_vain(self, cursor: Cursor) -> None:
        """Note that a live source has been read, and that there was nothing to commit."""
        if self._positions:
            self._positions.note(cursor.name, beyond=self.table.cursor(cursor.name), position=cursor.position)

    def see_again(self, records: pl.DataFrame, as_of: datetime) -> None:
        """Note that records already in the table (`fingerprint`, `line`) were seen at a later time than before."""
        if records.height:
            with self._writer_lock():
                self.sightings.append(sightings_of(records, as_of))

    def keys_near(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the keys in the table that could be those of the rows (KEY, `month`): same months, same span of ids."""
        if not rows.height:
            return pl.DataFrame(schema={name: STORED_SCHEMA[name] for name in (*KEY, "month")})
        return (
            self.table.scan()
            .filter(
                pl.col("month").is_in(rows["month"].unique().to_list()),
                pl.col("job_id").is_between(rows["job_id"].min(), rows["job_id"].max()),
            )
            .select(*KEY, "month")
            .collect()
        )

    def rows_of(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the stored rows of some keys (KEY, `month`)."""
        if not keys.height:
            return pl.DataFrame(schema=STORED_SCHEMA)
        candidates = self.table.scan().filter(
            pl.col("month").is_in(keys["month"].unique().to_list()), pl.col("job_id").is_in(keys["job_id"].unique().to_list())
        )
        return candidates.collect().join(keys.select(KEY), on=list(KEY), how="semi", nulls_equal=True)

    def rows_of_refs(self, refs: Sequence[JobRef]) -> pl.DataFrame:
        """Return the stored rows of some jobs by their references."""
        columns = {name: [getattr(ref, name) for ref in refs] for name in KEY}
        keys = pl.DataFrame(columns, schema={name: STORED_SCHEMA[name] for name in KEY}).unique()
        return self.rows_of(keys.with_columns(month=month_of(pl.col("submit_time"))))

    def sightings_of_records(self, fingerprints: pl.Series) -> pl.DataFrame:
        """Return when and where some records were seen."""
        return self.sightings.scan().filter(pl.col("fingerprint").is_in(fingerprints.to_list())).collect()

    def write(self, rows: pl.DataFrame, seen: pl.DataFrame, *, all_new: bool, cursor: Cursor | None = None) -> None:
        """Put rows in the stored schema into the table, in the place of those with their keys, all of them or none.

        Sightings are written first: a sighting without its row means nothing, a row always has its sighting.
        """
        with self._writer_lock():
            self.sightings.append(seen)
            if all_new or (not rows.height and cursor is not None):
                self.table.append(rows, cursor=cursor)
            elif rows.height:
                self.table.upsert(rows, on=KEY, nullable=("array_task",), cursor=cursor)

    def locked(self) -> AbstractContextManager[None]:
        """Be the only one who commits, for as long as what was read must stay true."""
        return self._writer_lock()

"""The job table: takes in job frames so that the result depends on what was read, not on how often or in which order.

JobFrame -> commit -> (kept, known, changed).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from stormpetrel.records.jobs import FIELD_BIT, JOB_SCHEMA, KEY, STORED_SCHEMA, TOLD_BY_STEPS
from stormpetrel.records.states import UNFINISHED
from stormpetrel.records.times import UTC_TIME, month_of
from stormpetrel.sources.contract import Cursor
from stormpetrel.store.known import KnownRecords, sightings_of
from stormpetrel.store.read_marks import ReadMarks
from stormpetrel.store.resolve import rank_of, resolve
from stormpetrel.store.tables import Table, TableSpec

JOBS = TableSpec(
    "jobs",
    STORED_SCHEMA,
    partition_by=("month",),
    ranges=("job_id", "submit_time", "start_time", "end_time"),
    distinct=("job_id", "submit_time", "eligible_time", "start_time", "end_time", "job_id_raw", "fingerprint"),
)
SIGHTINGS = TableSpec(
    "sightings",
    pl.Schema([("fingerprint", pl.Int64()), ("as_of", UTC_TIME), ("line", pl.Int64())]),
    partition_by=(),
    ranges=("as_of",),
    distinct=("fingerprint", "line"),
)


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of the rows of one commit."""

    kept: int = 0
    known: int = 0
    changed: int = 0


class JobStore:
    """Reads and writes the job table of a site."""

    def __init__(
        self, tables: Path, writer_lock: Callable[[], AbstractContextManager[None]], marks: ReadMarks | None = None
    ) -> None:
        self.table = Table(tables, JOBS)
        self.sightings = Table(tables, SIGHTINGS)
        self._writer_lock = writer_lock
        self._marks = marks

    def create(self) -> None:
        """Create the tables unless they are there."""
        self.table.create()
        self.sightings.create()

    def read_jobs(self, *, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The jobs submitted in a span of time, as a job frame."""
        rows = self.table.scan()
        if since is not None:
            rows = rows.filter(pl.col("month") >= f"{since:%Y-%m}", pl.col("submit_time") >= since)
        if until is not None:
            rows = rows.filter(pl.col("month") <= f"{until:%Y-%m}", pl.col("submit_time") < until)
        return rows.select(list(JOB_SCHEMA))

    def known_records(self, as_of: datetime, *, looking: bool = False) -> KnownRecords:
        """An index of what the table holds now, for a source of that time, or for one that is asked again and again."""
        return KnownRecords(self.table.scan(), self.sightings.scan(), as_of, looking=looking)

    def open_jobs(self) -> pl.DataFrame:
        """The jobs that wait or run as far as the table knows: KEY, `state`, `source` and `start_time`."""
        unfinished = [str(state) for state in UNFINISHED]
        rows = self.table.scan().filter(pl.col("state").is_in(unfinished))
        return rows.select(*KEY, "state", "source", "start_time").collect()

    def cursor(self, name: str) -> int | None:
        """How far a live source has been read: where its cursor was committed, or beyond that in vain."""
        committed = self.table.cursor(name)
        return (self._marks.position(name, beyond=committed) if self._marks else None) or committed

    def read_in_vain(self, cursor: Cursor) -> None:
        """Note that a live source has been read, and that there was nothing to commit."""
        if self._marks:
            self._marks.note(cursor.name, beyond=self.table.cursor(cursor.name), position=cursor.position)

    def see_again(self, records: pl.DataFrame, as_of: datetime) -> None:
        """Note that records already in the table (`fingerprint`, `line`) were seen at a later time than before."""
        if records.height:
            with self._writer_lock():
                self.sightings.append(sightings_of(records, as_of))

    def commit(
        self,
        jobs: pl.DataFrame,
        *,
        fields: int,
        as_of: datetime,
        seen_again: pl.DataFrame | None = None,
        cursor: Cursor | None = None,
        looking: bool = False,
    ) -> Committed:
        """Take in job rows (with `fingerprint` and `line` beside the schema's columns), all of them or none.

        Sightings are written first: a sighting without its row means nothing, a row always has its sighting. `seen_again` are
        records of the same source that the table holds already. With `looking` nothing is written where no row changes.
        """
        # What only steps tell is told by a record that has it: one without steps, or with a damaged one, erases nothing.
        untold = [pl.when(pl.col(name).is_null()).then(fields & FIELD_BIT[name]).otherwise(0) for name in TOLD_BY_STEPS]
        rows = jobs.with_columns(
            fields=(pl.lit(fields, dtype=pl.Int64) - pl.sum_horizontal(untold)).cast(pl.Int64),
            older=pl.lit(None, dtype=STORED_SCHEMA["older"]),
            month=month_of(pl.col("submit_time")),
        ).select(*STORED_SCHEMA)
        distinct = rows.unique("fingerprint", keep="first", maintain_order=True)
        repeated = rows.height - distinct.height
        if looking and not distinct.height:
            if cursor is not None:
                self.read_in_vain(cursor)
            return Committed(known=repeated)
        frames = [frame for frame in (jobs, seen_again) if frame is not None]
        seen = pl.concat([SIGHTINGS.schema.to_frame(), *(sightings_of(frame, as_of) for frame in frames)])
        with self._writer_lock():
            stored_keys = self._keys_near(distinct)
            if self._all_new(distinct, stored_keys):
                self.sightings.append(seen)
                self.table.append(distinct, cursor=cursor)
                return Committed(kept=distinct.height, known=repeated)
            return self._commit_with_conflicts(distinct, stored_keys, repeated, seen, cursor, looking)

    def _keys_near(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The keys in the table that could be those of the rows: same months, same span of ids."""
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

    @staticmethod
    def _all_new(rows: pl.DataFrame, stored_keys: pl.DataFrame) -> bool:
        """Whether no two of the rows, and none of the rows and the stored ones, are of the same job."""
        if rows.select(KEY).n_unique() < rows.height:
            return False
        if not stored_keys.height:
            return True
        return not rows.select(KEY).join(stored_keys, on=list(KEY), how="semi", nulls_equal=True).height

    def _commit_with_conflicts(
        self,
        rows: pl.DataFrame,
        stored_keys: pl.DataFrame,
        repeated: int,
        seen_now: pl.DataFrame,
        cursor: Cursor | None,
        looking: bool,
    ) -> Committed:
        stored = self._stored_rows(rows, stored_keys)
        fingerprints = pl.concat([stored["fingerprint"], rows["fingerprint"], _older_fingerprints(stored)]).unique()
        seen = self.sightings.scan().filter(pl.col("fingerprint").is_in(fingerprints.to_list())).collect()
        result = resolve(stored, rows, pl.concat([seen, seen_now]))
        written = result.filter(pl.col("change") != "untouched").drop("change")
        if looking and not written.height:
            if cursor is not None:
                self.read_in_vain(cursor)
            return Committed(known=rows.height + repeated)
        self.sightings.append(seen_now)
        if (result["change"] == "new").all():
            self.table.append(written, cursor=cursor)
        elif written.height:
            self.table.upsert(written, on=KEY, nullable=("array_task",), cursor=cursor)
        elif cursor is not None:
            self.table.append(written, cursor=cursor)
        counted = count_changes(rows, result)
        return Committed(kept=counted.kept, known=counted.known + repeated, changed=counted.changed)

    def _stored_rows(self, rows: pl.DataFrame, stored_keys: pl.DataFrame) -> pl.DataFrame:
        met = stored_keys.join(rows.select(KEY), on=list(KEY), how="semi", nulls_equal=True)
        if not met.height:
            return pl.DataFrame(schema=STORED_SCHEMA)
        candidates = self.table.scan().filter(
            pl.col("month").is_in(met["month"].unique().to_list()), pl.col("job_id").is_in(met["job_id"].unique().to_list())
        )
        return candidates.collect().join(met.select(KEY), on=list(KEY), how="semi", nulls_equal=True)


def count_changes(rows: pl.DataFrame, result: pl.DataFrame) -> Committed:
    """Kept, known and changed records, such that they add up to the rows.

    Of several records of one new job in a chunk the first counts as kept; each later one that beats what was there before it
    counts as changed, and the others as known: the same as if they had come in chunks of their own.
    """
    per_key = rows.with_row_index("_n").join(
        result.select(*KEY, "change"), on=list(KEY), how="left", nulls_equal=True, maintain_order="left"
    )
    first = pl.col("_n") == pl.col("_n").min().over(KEY)
    rank = rank_of(pl.col("state"), pl.col("source"))
    improved = rank > rank.cum_max().shift(1).over(KEY)
    outcome = (
        pl.when(pl.col("change").is_in(["same", "untouched"]))
        .then(pl.lit("known"))
        .when(first & (pl.col("change") == "new"))
        .then(pl.lit("kept"))
        .when(first)
        .then(pl.lit("changed"))
        .when(improved)
        .then(pl.lit("changed"))
        .otherwise(pl.lit("known"))
    )
    counts = dict(per_key.select(outcome.alias("outcome")).to_series().value_counts().iter_rows())
    return Committed(kept=counts.get("kept", 0), known=counts.get("known", 0), changed=counts.get("changed", 0))


def _older_fingerprints(stored: pl.DataFrame) -> pl.Series:
    layers = stored["older"].drop_nulls().explode()
    return layers.struct.field("fingerprint") if len(layers) else pl.Series(dtype=pl.Int64)

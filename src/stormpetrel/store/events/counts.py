"""The table of event counts: how many events of each kind, per bucket of time, as a whole and by place.

COUNT_SCHEMA frame -> replace (what a source says of a span now) or add (a log that was read on) -> what became of its buckets.
Rows and cursor are one commit: whatever is killed in between, nothing is counted twice and nothing is lost.

The table of background: queued jobs, slots, utilisation and the like, as a mean per bucket of time.

BACKGROUND_SCHEMA frame -> replace -> what became of its values; read -> frame. The cursor of a server is in the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import StoreBusyError, UsageError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import BACKGROUND_KEY, BACKGROUND_SCHEMA, COUNT_KEY, COUNT_SCHEMA, COVERED, WHOLE
from stormpetrel.records.times import month_of
from stormpetrel.store.events.gaps import Coverage, EventGap, GapReasons, coverage_of, gaps_of
from stormpetrel.store.tables import Committed, TableSpec, TableStore, WriterLock

EVENT_COUNTS: Final = TableSpec(
    "event_counts",
    pl.Schema({**COUNT_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start", "place"),  # of places, rows of the whole come first in a file: a series reads only their groups
    group_rows=131_072,
)
_ANYWHERE: Final = -1  # `add` does not ask where the reader began
_BUCKET: Final = ["source", "bucket_start", "bucket_s"]
_KEY: Final = list(COUNT_KEY)
_CELL: Final = ["bucket_start", "kind", "place", "value"]  # the key within one source and bucket length
_AT_ONCE: Final = 1_000_000  # rows of one replacement
_IS_COVERAGE: Final = pl.col("kind") == COVERED
_IS_WHOLE: Final = pl.col("place") == WHOLE
_PER_BUCKET: Final = pl.col("count").filter(_IS_WHOLE & ~_IS_COVERAGE).sum().over(_BUCKET)
EVENT_BACKGROUND: Final = TableSpec(
    "event_background",
    pl.Schema({**BACKGROUND_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start",),
    distinct=("value",),
)
_BACKGROUND_KEY: Final = list(BACKGROUND_KEY)


@dataclass(frozen=True, slots=True)
class _Span:
    """The part of the table that is replaced."""

    source: str
    bucket_s: int
    start: datetime
    end: datetime

    @property
    def inside(self) -> pl.Expr:
        """The rows that belong to it."""
        of_source = (pl.col("source") == self.source) & (pl.col("bucket_s") == self.bucket_s)
        return of_source & (pl.col("bucket_start") >= self.start) & (pl.col("bucket_start") < self.end)


class EventCountStore(TableStore):
    """Reads and writes the event counts of a site."""

    spec = EVENT_COUNTS

    def __init__(self, tables: Path, writer_lock: WriterLock) -> None:
        super().__init__(tables, writer_lock)
        self.reasons = GapReasons(tables, writer_lock)

    def create(self) -> None:
        """Create the tables unless they are there."""
        super().create()
        self.reasons.create()

    def read(
        self, *, since: datetime | None = None, until: datetime | None = None, places: bool = False, bucket_s: int | None = None
    ) -> pl.LazyFrame:
        """Counts of buckets that begin in a span of time, marks included, as a frame of COUNT_SCHEMA; by place if requested.

        Each source has its own rows; a count of zero has none. Partial counts of buckets without a mark are among them.
        """
        rows = self.table.between("bucket_start", since, until)
        if not places:
            rows = rows.filter(_IS_WHOLE)
        if bucket_s is not None:
            rows = rows.filter(pl.col("bucket_s") == bucket_s)
        return rows.filter(_IS_COVERAGE | (pl.col("count") != 0)).select(list(COUNT_SCHEMA))

    def cursor(self, name: str) -> int | None:
        """Where a source was left."""
        return self.table.cursor(name)

    def sources(self) -> list[str]:
        """The names of all sources that have reported anything."""
        return self.read().select(pl.col("source").unique().sort()).collect().to_series().to_list()

    def seen(self) -> pl.DataFrame:
        """Each source and bucket length: how many buckets it has seen whole, the first and the last of them, and their events."""
        coverage = self.read().filter(_IS_COVERAGE).group_by("source", "bucket_s")
        span = coverage.agg(
            buckets=pl.len(),
            first=pl.col("bucket_start").min(),
            last=pl.col("bucket_start").max(),
            events=pl.col("count").sum(),
        )
        return span.sort("source", "bucket_s").collect()

    def overlapping(self, source: str, first: datetime, last: datetime) -> list[str]:
        """Other sources of the same sort (tables, event logs) that have counted the same time."""
        sort = source.partition(":")[0]
        near = self.read(since=first, until=last).filter(pl.col("source") != source, pl.col("source").str.starts_with(f"{sort}:"))
        return near.select(pl.col("source").unique().sort()).collect().to_series().to_list()

    def drop(self, source: str) -> int:
        """Forget all that a source has reported; how many rows."""
        with self._writer_lock():
            self.reasons.drop(source)
            return self.table.delete("source", source)

    def coverage(self, *, bucket_s: int, source: str | None = None) -> Coverage:
        """Which buckets were seen whole, from the first mark to the last; by all sources together, or by one."""
        covered = self.read(bucket_s=bucket_s).filter(_IS_COVERAGE).select("source", "bucket_start")
        if source is not None:
            covered = covered.filter(pl.col("source") == source)
        return coverage_of(covered.collect(), bucket_s)

    def gaps(
        self, *, bucket_s: int, since: datetime | None = None, until: datetime | None = None, source: str | None = None
    ) -> list[EventGap]:
        """The stretches that were not seen whole, oldest first, with the reason where a source gave one.

        Between the first covered bucket and the last, and where a source has reported that it could not see.
        """
        return gaps_of(self.coverage(bucket_s=bucket_s, source=source), self.reasons.read(source), since=since, until=until)

    def replace(
        self,
        counts: pl.DataFrame,
        *,
        source: str,
        start: datetime,
        end: datetime,
        bucket_s: int,
        cursor: Cursor | None = None,
    ) -> Committed:
        """Replace the counts of a source in [start, end) by new ones; how many buckets are new, known, changed.

        A bucket that was seen whole before and is not now stays as it was: half a look says less than a whole one. Very many rows
        are taken month by month, the cursor with the last: killed in between, the same span is read again.
        """
        new = counts.filter(pl.col("source") == source, pl.col("bucket_s") == bucket_s).select(list(COUNT_SCHEMA))
        pieces = _months(start, end) if new.height > _AT_ONCE else [(start, end)]
        done = Committed()
        for first, last in pieces:
            piece = _Span(source, bucket_s, first, last)
            committed = self._replace(new.filter(piece.inside), piece, cursor if last == end else None)
            done = Committed(done.kept + committed.kept, done.known + committed.known, done.changed + committed.changed)
        return done

    def _replace(self, new: pl.DataFrame, span: _Span, cursor: Cursor | None) -> Committed:
        new = new.filter(_IS_COVERAGE | (pl.col("count") != 0)).unique(_CELL, keep="last", maintain_order=True)
        with self._writer_lock():
            stored = self._stored(span.inside, span.start, span.end)
            new, stored = _without_partial_coverage(new, stored)
            written = _differences(new, stored)
            self._write(written, known=stored, cursor=self._onward(cursor))
        return _judged(pl.concat([new, stored]), stored, written)

    def add(self, counts: pl.DataFrame, *, cursor: Cursor, after: int | None = _ANYWHERE) -> Committed:
        """Add counts of events that were not seen before, together with the cursor that says so; only once.

        `after` is where the reader began: StoreBusyError if another process has read on since, and nothing is added. A mark
        tells how many events its bucket holds once they are added.
        """
        new = counts.filter(_IS_COVERAGE | (pl.col("count") != 0)).select(list(COUNT_SCHEMA))
        if new.height and (new["count"].min() or 0) < 0:  # type: ignore[operator]
            raise UsageError("A count of events is below zero.", hint="This is a defect of the source; nothing was added.")
        new = new.group_by(_KEY, maintain_order=True).agg(pl.col("count").sum())
        with self._writer_lock():
            there = self.cursor(cursor.name)
            if there is not None and there >= cursor.position:
                return Committed(known=new.select(_BUCKET).n_unique())
            if after not in (_ANYWHERE, there):
                raise StoreBusyError(
                    f"Another process has read on in {cursor.name} meanwhile; nothing was added.",
                    hint="Run the same command again.",
                )
            stored = self._stored_buckets(new)
            summed = pl.concat([stored, new]).group_by(_KEY).agg(pl.col("count").sum())
            summed = summed.with_columns(count=pl.when(_IS_COVERAGE).then(_PER_BUCKET).otherwise("count"))
            written = summed.join(stored, on=[*_KEY, "count"], how="anti")
            self._write(written, known=stored, cursor=cursor)
        return _judged(new, stored, written)

    def _write(self, rows: pl.DataFrame, *, known: pl.DataFrame, cursor: Cursor | None) -> None:
        """Rows and cursor in one commit; without either, nothing."""
        ordered = rows.with_columns(month=month_of(pl.col("bucket_start"))).sort("month", "place", "bucket_start")
        if rows.height and known.height and rows.join(known, on=_KEY, how="semi").height:
            self.table.upsert(ordered, on=_KEY, nullable=(), cursor=cursor)
        else:
            self.table.append(ordered, cursor=cursor)

    def _stored(self, which: pl.Expr, start: datetime, end: datetime) -> pl.DataFrame:
        """The rows of some months, by a condition; zeros that stand for what has vanished are among them."""
        first, last = (pl.lit(f"{moment.astimezone(UTC):%Y-%m}") for moment in (start, end))
        months = pl.col("month").is_between(first, last)
        return self.table.scan().filter(months, which).select(list(COUNT_SCHEMA)).collect()

    def _stored_buckets(self, new: pl.DataFrame) -> pl.DataFrame:
        first, last = new["bucket_start"].min(), new["bucket_start"].max()
        if not isinstance(first, datetime) or not isinstance(last, datetime):
            return new.clear()
        near = self._stored(pl.col("bucket_start").is_between(first, last), first, last)
        return near.join(new.select(_BUCKET).unique(), on=_BUCKET, how="semi")

    def _onward(self, cursor: Cursor | None) -> Cursor | None:
        """The cursor, unless the table's own is as far: it never moves back, and no commit is made for nothing."""
        if cursor is None:
            return None
        there = self.cursor(cursor.name)
        return cursor if there is None or cursor.position > there else None


def _months(start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """A span, cut where months begin."""
    edges = [start]
    while edges[-1] < end:
        following = (edges[-1].astimezone(UTC).replace(day=1) + timedelta(days=32)).replace(day=1)
        edges.append(min(end, following.replace(hour=0, minute=0, second=0, microsecond=0)))
    return list(pairwise(edges))


def _differences(new: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """The rows of one source that are new or other than stored; what is reported no more becomes a zero."""
    if not stored.height:
        return new
    both = stored.join(new, on=_CELL, how="full", suffix="_new", coalesce=True)
    was, now = pl.col("count"), pl.col("count_new").fill_null(0)
    named = [pl.coalesce(name, f"{name}_new").alias(name) for name in ("source", "bucket_s")]
    return both.filter(was.is_null() | (was != now)).select(*named, *_CELL, now.alias("count")).select(list(COUNT_SCHEMA))


def _without_partial_coverage(new: pl.DataFrame, stored: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """New and stored rows, without the buckets that only the stored rows have seen whole."""
    seen, sees = (frame.filter(_IS_COVERAGE).select(_BUCKET) for frame in (stored, new))
    only_before = seen.join(sees, on=_BUCKET, how="anti")
    if not only_before.height:
        return new, stored
    return tuple(frame.join(only_before, on=_BUCKET, how="anti") for frame in (new, stored))  # type: ignore[return-value]


def _judged(concerned: pl.DataFrame, stored: pl.DataFrame, written: pl.DataFrame) -> Committed:
    """New, known and changed buckets."""
    buckets, before, touched = (frame.select(_BUCKET).unique() for frame in (concerned, stored, written))
    old = buckets.join(before, on=_BUCKET, how="semi")
    changed = old.join(touched, on=_BUCKET, how="semi").height
    return Committed(kept=buckets.height - old.height, known=old.height - changed, changed=changed)


class EventBackgroundStore(TableStore):
    """Reads and writes the background of a site's events."""

    spec = EVENT_BACKGROUND

    def read(self, *, since: datetime | None = None, until: datetime | None = None, bucket_s: int | None = None) -> pl.LazyFrame:
        """Values of buckets that begin in a span of time, as a frame of BACKGROUND_SCHEMA."""
        rows = self.table.between("bucket_start", since, until)
        if bucket_s is not None:
            rows = rows.filter(pl.col("bucket_s") == bucket_s)
        return rows.select(list(BACKGROUND_SCHEMA))

    def cursor(self, name: str) -> int | None:
        """Where a server was left."""
        return self.table.cursor(name)

    def replace(
        self,
        values: pl.DataFrame,
        *,
        source: str,
        start: datetime,
        end: datetime,
        bucket_s: int,
        cursor: Cursor | None = None,
    ) -> Committed:
        """Take what a server says of [start, end) now; how many values are new, known, changed.

        A value that it does not tell any more stays: servers thin out and drop what is old.
        """
        inside = (pl.col("source") == source) & (pl.col("bucket_s") == bucket_s)
        inside &= (pl.col("bucket_start") >= start) & (pl.col("bucket_start") < end)
        values_inside = values.select(list(BACKGROUND_SCHEMA)).filter(inside, pl.col("value").is_finite())
        values_inside = values_inside.unique(_BACKGROUND_KEY, keep="last", maintain_order=True)
        with self._writer_lock():
            months = pl.col("month").is_between(pl.lit(f"{start:%Y-%m}"), pl.lit(f"{end:%Y-%m}"))
            stored = self.table.scan().filter(months, inside).select(list(BACKGROUND_SCHEMA)).collect()
            both = values_inside.join(stored, on=_BACKGROUND_KEY, how="left", suffix="_was", maintain_order="left")
            new = both.filter(pl.col("value_was").is_null()).height
            written = both.filter(pl.col("value").ne_missing(pl.col("value_was"))).drop("value_was")
            rows = written.with_columns(month=month_of(pl.col("bucket_start")))
            if written.height > new:
                self.table.upsert(rows, on=_BACKGROUND_KEY, nullable=(), cursor=self._onward(cursor))
            else:
                self.table.append(rows, cursor=self._onward(cursor))
        return Committed(kept=new, known=values_inside.height - written.height, changed=written.height - new)

    def _onward(self, cursor: Cursor | None) -> Cursor | None:
        """The cursor, unless the table's own is as far."""
        there = self.cursor(cursor.name) if cursor else None
        return cursor if cursor and (there is None or cursor.position > there) else None

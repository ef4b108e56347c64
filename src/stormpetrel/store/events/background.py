"""The table of background: queued jobs, slots, utilisation and the like, as a mean per bucket of time.

BACKGROUND_SCHEMA frame -> replace -> what became of its values; read -> frame. The cursor of a server is in the same commit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import BACKGROUND_KEY, BACKGROUND_SCHEMA
from stormpetrel.records.times import month_of
from stormpetrel.store.tables import Committed, TableSpec, TableStore

EVENT_BACKGROUND: Final = TableSpec(
    "event_background",
    pl.Schema({**BACKGROUND_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start",),
    distinct=("value",),
)
_KEY: Final = list(BACKGROUND_KEY)


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
        values_inside = values_inside.unique(_KEY, keep="last", maintain_order=True)
        with self._writer_lock():
            months = pl.col("month").is_between(pl.lit(f"{start:%Y-%m}"), pl.lit(f"{end:%Y-%m}"))
            stored = self.table.scan().filter(months, inside).select(list(BACKGROUND_SCHEMA)).collect()
            both = values_inside.join(stored, on=_KEY, how="left", suffix="_was", maintain_order="left")
            new = both.filter(pl.col("value_was").is_null()).height
            written = both.filter(pl.col("value").ne_missing(pl.col("value_was"))).drop("value_was")
            rows = written.with_columns(month=month_of(pl.col("bucket_start")))
            if written.height > new:
                self.table.upsert(rows, on=_KEY, nullable=(), cursor=self._onward(cursor))
            else:
                self.table.append(rows, cursor=self._onward(cursor))
        return Committed(kept=new, known=values_inside.height - written.height, changed=written.height - new)

    def _onward(self, cursor: Cursor | None) -> Cursor | None:
        """The cursor, unless the table's own is as far."""
        there = self.cursor(cursor.name) if cursor else None
        return cursor if cursor and (there is None or cursor.position > there) else None

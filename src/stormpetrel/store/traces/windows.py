"""The table of CPU windows: what the models of traces learn from and score.

a frame of CPU_WINDOW_SCHEMA -> commit -> (kept, known, changed). Read again and found equal, a window is not written again; read
again and found different (a late sample has filled a gap), it replaces the row. A live source's cursor is in the same commit.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.times import month_of
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA, WINDOW_KEY
from stormpetrel.store.tables import Committed, TableSpec, TableStore

CPU_WINDOWS: Final = TableSpec(
    "cpu_windows",
    pl.Schema({**CPU_WINDOW_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "cpu"),
    distinct=("user", "system", "iowait"),
    group_rows=8192,  # a day of a node with 128 threads is 110,592 windows of 1.2 kB
)
_MEASURED: Final = [name for name in CPU_WINDOW_SCHEMA if name not in WINDOW_KEY]


class CpuWindowStore(TableStore):
    """Reads and writes the CPU windows of a site."""

    spec = CPU_WINDOWS

    def read(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        nodes: Collection[str] | None = None,
        traces: Collection[str] | None = None,
        splits: Collection[str] | None = None,
    ) -> pl.LazyFrame:
        """The windows that begin in a span of time, of some nodes, traces or splits, as a frame of CPU_WINDOW_SCHEMA."""
        rows = self.table.between("window_start", since, until)
        for column, wanted in (("node", nodes), ("trace", traces), ("split", splits)):
            if wanted is not None:
                rows = rows.filter(pl.col(column).is_in([str(value) for value in wanted]))
        return rows.select(list(CPU_WINDOW_SCHEMA))

    def cursor(self, name: str) -> int | None:
        """Where a live source was left."""
        return self.table.cursor(name)

    def commit(self, frame: pl.DataFrame, *, cursor: Cursor | None = None) -> Committed:
        """Take in windows (and move a cursor), all of them or none."""
        rows = frame.select(list(CPU_WINDOW_SCHEMA)).with_columns(month=month_of(pl.col("window_start")))
        distinct = rows.unique(WINDOW_KEY, keep="last", maintain_order=True)
        with self._writer_lock():
            stored = self._stored(distinct)
            if not stored.height:
                self.table.append(distinct, cursor=cursor)
                return Committed(kept=distinct.height, known=rows.height - distinct.height)
            both = distinct.join(stored, on=WINDOW_KEY, how="left", suffix="_stored", maintain_order="left")
            same = pl.all_horizontal([pl.col(name).eq_missing(pl.col(f"{name}_stored")) for name in _MEASURED])
            judged = both.select(is_new=pl.col("step_s_stored").is_null(), is_same=same)
            is_new, is_same = judged["is_new"], judged["is_same"]
            changed = distinct.filter(~is_new & ~is_same)
            if changed.height:
                self.table.upsert(distinct.filter(~is_same), on=WINDOW_KEY, nullable=(), cursor=cursor)
            else:
                self.table.append(distinct.filter(is_new), cursor=cursor)
        kept = int(is_new.sum())
        return Committed(kept=kept, known=rows.height - kept - changed.height, changed=changed.height)

    def _stored(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows in the table that have the keys of these."""
        if not rows.height:
            return pl.DataFrame(schema=CPU_WINDOW_SCHEMA)
        near = self.table.scan().filter(
            pl.col("month").is_in(rows["month"].unique().to_list()),
            pl.col("window_start").is_between(rows["window_start"].min(), rows["window_start"].max()),
        )
        met = near.select(WINDOW_KEY).collect().join(rows, on=WINDOW_KEY, how="semi")
        if not met.height:  # the usual case: nothing of the values is read
            return pl.DataFrame(schema=CPU_WINDOW_SCHEMA)
        return near.select(list(CPU_WINDOW_SCHEMA)).collect().join(met, on=WINDOW_KEY, how="semi")

"""The tables of CPU traces: windows, scores of windows (and of event buckets), of nodes as a whole, and known regions.

frame of windows or scores -> append -> rows, with the cursor of their source in the same commit. KnownRegion's parts + example
windows -> add -> KnownRegion: a region is there whole or not at all, since all of its rows are in one commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

import polars as pl

from stormpetrel.errors import NotThereError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import EVENT_SCORE_KEY, EVENT_SCORE_SCHEMA
from stormpetrel.records.regions import TRACE_REGION_SCHEMA, KnownRegion, RegionScope
from stormpetrel.records.times import month_of
from stormpetrel.records.trace_coverage import TRACE_COVERAGE_SCHEMA
from stormpetrel.records.window_frames import (
    CPU_WINDOW_SCHEMA,
    JOB_START_SCHEMA,
    NODE_KEY,
    NODE_METRIC_SCHEMA,
    NODE_METRICS,
    NODE_SCORE_SCHEMA,
    SLIDING_KEY,
    SLIDING_SCORE_SCHEMA,
    TRACE_SCORE_SCHEMA,
    WINDOW_KEY,
)
from stormpetrel.store.tables import Committed, TableSpec, TableStore

CPU_WINDOWS: Final = TableSpec(
    "cpu_windows",
    pl.Schema({**CPU_WINDOW_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "cpu"),
    distinct=("user", "system", "iowait"),
    group_rows=8192,  # a day of a node with 128 threads is 110,592 windows of 1.2 kB
)
JOB_STARTS: Final = TableSpec(
    "job_starts",
    pl.Schema({**JOB_START_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "job_id"),
    distinct=("user", "system", "iowait"),
    group_rows=8192,
)
JOB_START_SCORES: Final = TableSpec(
    "job_start_scores",
    pl.Schema({**TRACE_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("score", "x", "y", "bad_io_distance", "embedding"),
)
_MEASURED: Final = [name for name in CPU_WINDOW_SCHEMA if name not in WINDOW_KEY]
EVENT_SCORES: Final = TableSpec(
    "event_scores",
    pl.Schema({**EVENT_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start", "model_version"),
    distinct=("score",),
)
TRACE_SCORES: Final = TableSpec(
    "trace_scores",
    pl.Schema({**TRACE_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("score", "x", "y", "bad_io_distance", "embedding"),
)
TRACE_REGIONS: Final = TableSpec(
    "trace_regions",
    pl.Schema({**TRACE_REGION_SCHEMA, "month": pl.String()}),
    partition_by=("month",),  # of when it was added
    ranges=("added",),
    distinct=("user", "system", "iowait"),
)
_ABOUT: Final = [name for name in TRACE_REGION_SCHEMA if name not in CPU_WINDOW_SCHEMA]


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


class JobStartStore(TableStore):
    """Reads and writes the first windows of jobs."""

    spec = JOB_STARTS

    def read(self, *, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The windows that begin in a span of time, as a frame of JOB_START_SCHEMA."""
        return self.table.between("window_start", since, until).select(list(JOB_START_SCHEMA))

    def append(self, windows: pl.DataFrame) -> int:
        """Add what is not there yet, in one commit; how many rows."""
        if not windows.height:
            return 0
        with self._writer_lock():
            return self.table.append_new(windows, key=WINDOW_KEY, column="window_start")


class ScoreStore(TableStore):
    """Reads and writes the scores of one family; a subclass names the table, its key and its time."""

    key: ClassVar[tuple[str, ...]]
    time: ClassVar[str]  # the column by whose months the table is parted

    def read(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> pl.LazyFrame:
        """Scores of what begins in a span of time, of all models or of one."""
        rows = self.table.between(self.time, since, until)
        if model is not None:
            rows = rows.filter(pl.col("model") == model)
        if version is not None:
            rows = rows.filter(pl.col("model_version") == version)
        return rows.select([name for name in self.spec.schema if name not in self.spec.partition_by])

    def append(self, scores: pl.DataFrame) -> int:
        """Add the scores that are not there yet, in one commit; how many.

        Whether they are there is checked under the lock of writers: two who score the same at once write it once.
        """
        with self._writer_lock():
            return self.table.append_new(scores, key=self.key, column=self.time)


class EventScoreStore(ScoreStore):
    """The scores of buckets of events; they stay as they were, also when events of that bucket come later."""

    spec = EVENT_SCORES
    key = EVENT_SCORE_KEY
    time = "bucket_start"


class TraceScoreStore(ScoreStore):
    """The scores of CPU windows."""

    spec = TRACE_SCORES
    key = (*WINDOW_KEY, "model", "model_version")
    time = "window_start"

    def append_moment(self, scores: pl.DataFrame, start: datetime) -> int:
        """Add what was kept of the scores of a moment, in one commit; how many rows.

        A node with rows that stand for others stays as it was: the same moment read twice, with a sample more, would be counted
        twice.
        """
        version = ["cluster", "trace", "node", "model", "model_version"]
        with self._writer_lock():
            rows = self.table.between(self.time, start, start + timedelta(microseconds=1))
            sampled = rows.filter(pl.col("stands_for") > 1).select(version).unique().collect()
            return self.table.append_new(scores.join(sampled, on=version, how="anti"), key=self.key, column=self.time)


class JobStartScoreStore(ScoreStore):
    """The scores of the first windows of jobs."""

    spec = JOB_START_SCORES
    key = (*WINDOW_KEY, "model", "model_version")
    time = "window_start"


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


NODE_METRIC_TABLE: Final = TableSpec(
    "node_metrics",
    pl.Schema({**NODE_METRIC_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start",),
    distinct=NODE_METRICS,
)
NODE_SCORE_TABLE: Final = TableSpec(
    "node_scores",
    pl.Schema({**NODE_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("score", "now", "embedding"),
)


class NodeMetricStore(TableStore):
    """The other metrics of nodes."""

    spec = NODE_METRIC_TABLE

    def read(self, *, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The metrics of what begins in a span of time, as a frame of NODE_METRIC_SCHEMA."""
        return self.table.between("window_start", since, until).select(list(NODE_METRIC_SCHEMA))

    def append(self, metrics: pl.DataFrame) -> int:
        """Add what is not there yet, in one commit; how many rows."""
        if not metrics.height:
            return 0
        with self._writer_lock():
            return self.table.append_new(metrics, key=NODE_KEY, column="window_start")


class NodeScoreStore(ScoreStore):
    """The scores of nodes, and of all nodes together."""

    spec = NODE_SCORE_TABLE
    key = (*NODE_KEY, "level", "model", "model_version")
    time = "window_start"


SLIDING_SCORES: Final = TableSpec(
    "sliding_scores",
    pl.Schema({**SLIDING_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("peak",),
)


class SlidingScoreStore(ScoreStore):
    """What the sliding score came to in spans of about a minute."""

    spec = SLIDING_SCORES
    key = SLIDING_KEY
    time = "window_start"


TRACE_COVERAGE: Final = TableSpec(
    "trace_coverage",
    pl.Schema({**TRACE_COVERAGE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start",),
    distinct=("lag_s", "load"),
)


class TraceCoverageStore(TableStore):
    """Which nodes were judged in a window, and which are in the next; a window without a row was judged in full."""

    spec = TRACE_COVERAGE

    def read(self, *, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The rows of windows that begin in a span of time, as a frame of TRACE_COVERAGE_SCHEMA."""
        return self.table.between("window_start", since, until).select(list(TRACE_COVERAGE_SCHEMA))

    def newest(self) -> dict[str, Any] | None:
        """The row of the newest window that has one."""
        rows = self.read().sort("window_start").tail(1).collect().to_dicts()
        return rows[0] if rows else None

    def append(self, row: dict[str, Any]) -> int:
        """Add the row of a window; one that is there stays, and 0 is returned."""
        with self._writer_lock():
            return self.table.append_new(
                pl.DataFrame([row], schema=TRACE_COVERAGE_SCHEMA), key=("cluster", "window_start"), column="window_start"
            )

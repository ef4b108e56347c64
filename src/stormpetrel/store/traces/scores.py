"""Tables of scores: scores of a model for each window or bucket, once per version of the model.

a frame of the table's schema -> append -> rows that were new; read -> frame. A score that was written is not changed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, Final

import polars as pl

from stormpetrel.records.events import EVENT_SCORE_KEY, EVENT_SCORE_SCHEMA
from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA, WINDOW_KEY
from stormpetrel.store.tables import TableSpec, TableStore

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

        Whether they are there is asked under the lock of writers: two who score the same at once write it once.
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

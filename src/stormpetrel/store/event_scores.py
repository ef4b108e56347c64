"""The table of event scores: what a model said of each bucket, once per version of the model.

EVENT_SCORE_SCHEMA frame -> append -> rows that were new; read -> frame. What has been said stays said, also when events of that
bucket come later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.events import EVENT_SCORE_KEY, EVENT_SCORE_SCHEMA
from stormpetrel.store.tables import Table, TableSpec

EVENT_SCORES: Final = TableSpec(
    "event_scores",
    pl.Schema({**EVENT_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start", "model_version"),
    distinct=("score",),
)
_KEY: Final = list(EVENT_SCORE_KEY)


class EventScoreStore:
    """Reads and writes the event scores of a site."""

    def __init__(self, tables: Path, writer_lock: Callable[[], AbstractContextManager[None]]) -> None:
        self.table = Table(tables, EVENT_SCORES)
        self._writer_lock = writer_lock

    def create(self) -> None:
        """Create the table unless it is there."""
        self.table.create()

    def read(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> pl.LazyFrame:
        """Scores of buckets that begin in a span of time, of all models or of one, as a frame of EVENT_SCORE_SCHEMA."""
        rows = self.table.between("bucket_start", since, until)
        if model is not None:
            rows = rows.filter(pl.col("model") == model)
        if version is not None:
            rows = rows.filter(pl.col("model_version") == version)
        return rows.select(list(EVENT_SCORE_SCHEMA))

    def append(self, scores: pl.DataFrame) -> int:
        """Add the scores that are not there yet, in one commit; how many. Asked under the lock: two who score write once."""
        with self._writer_lock():
            return self.table.append_new(scores, key=_KEY, column="bucket_start")

"""The table of trace scores: what a model said of each window, once per version of the model.

TRACE_SCORE_SCHEMA frame -> append -> rows that were new; read -> frame.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA, WINDOW_KEY
from stormpetrel.store.tables import Table, TableSpec

TRACE_SCORES: Final = TableSpec(
    "trace_scores",
    pl.Schema({**TRACE_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("score", "x", "y", "bad_io_distance"),
)
_SCORED_KEY: Final = (*WINDOW_KEY, "model", "model_version")


class TraceScoreStore:
    """Reads and writes the trace scores of a site."""

    def __init__(self, tables: Path, writer_lock: Callable[[], AbstractContextManager[None]]) -> None:
        self.table = Table(tables, TRACE_SCORES)
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
        """Scores of windows that begin in a span of time, of all models or of one, as a frame of TRACE_SCORE_SCHEMA."""
        rows = self.table.between("window_start", since, until)
        if model is not None:
            rows = rows.filter(pl.col("model") == model)
        if version is not None:
            rows = rows.filter(pl.col("model_version") == version)
        return rows.select(list(TRACE_SCORE_SCHEMA))

    def append(self, scores: pl.DataFrame) -> int:
        """Add the scores that are not there yet, in one commit; how many.

        Whether they are there is asked under the lock of writers: two who score the same windows at once write them once.
        """
        with self._writer_lock():
            return self.table.append_new(scores, key=_SCORED_KEY, column="window_start")

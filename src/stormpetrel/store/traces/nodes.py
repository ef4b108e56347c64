"""Tables of nodes as a whole: their other metrics at each moment, and what a model made of a node and of all nodes together.

frames of NODE_METRIC_SCHEMA and NODE_SCORE_SCHEMA -> append -> rows that were new; read -> frame. What was written stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.records.window_frames import NODE_KEY, NODE_METRIC_SCHEMA, NODE_METRICS, NODE_SCORE_SCHEMA
from stormpetrel.store.tables import TableSpec, TableStore
from stormpetrel.store.traces.scores import ScoreStore

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

"""The prediction table: appended by one watcher, read by everybody.

Predictions and the horizon up to which events have been judged travel in the same commit: killed anywhere, the next watcher goes
on where the last one stopped, and says nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.records.times import month_of
from stormpetrel.sources.contract import Cursor
from stormpetrel.store.tables import Table, TableSpec

PREDICTIONS: Final = TableSpec(
    "predictions",
    pl.Schema({**PREDICTION_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("job_id", "submit_time", "moment_time", "predicted_at"),
    distinct=("job_id", "risk"),
)
_HORIZON: Final = "watch-horizon"
_BEGAN: Final = "watch-began"


class PredictionStore:
    """Reads and writes the prediction table of a site."""

    def __init__(self, tables: Path, writer_lock: Callable[[], AbstractContextManager[None]]) -> None:
        self.table = Table(tables, PREDICTIONS)
        self._writer_lock = writer_lock

    def create(self) -> None:
        """Create the table unless it is there."""
        self.table.create()

    def read(self, *, since: datetime | None = None) -> pl.LazyFrame:
        """Predictions for jobs submitted from `since` on, as a prediction frame."""
        rows = self.table.scan()
        if since is not None:
            rows = rows.filter(pl.col("month") >= f"{since:%Y-%m}", pl.col("submit_time") >= since)
        return rows.select(list(PREDICTION_SCHEMA))

    def append(self, predictions: pl.DataFrame, *, horizon: datetime) -> None:
        """Add predictions, and move the horizon with them, in one commit."""
        with self._writer_lock():
            rows = predictions.with_columns(month=month_of(pl.col("submit_time")))
            self.table.append(rows, cursor=Cursor(_HORIZON, _position(horizon)))

    def begin(self, moment: datetime) -> None:
        """Remember that watching began: events up to this moment are never judged."""
        with self._writer_lock():
            empty = pl.DataFrame(schema=PREDICTIONS.schema)
            self.table.append(empty, cursor=Cursor(_BEGAN, _position(moment)))

    def began(self) -> datetime | None:
        """When watching began; None where it has not yet."""
        return _moment(self.table.cursor(_BEGAN))

    def horizon(self) -> datetime | None:
        """Up to when events have been judged."""
        return max(filter(None, (_moment(self.table.cursor(_HORIZON)), self.began())), default=None)


def _position(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _moment(position: int | None) -> datetime | None:
    return None if position is None else datetime.fromtimestamp(position / 1e6, UTC)

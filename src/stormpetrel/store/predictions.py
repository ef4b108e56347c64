"""The prediction table: appended by one watcher, read by everybody.

Predictions and the horizon up to which events have been judged travel in the same commit: killed anywhere, the next watcher goes
on where the last one stopped, and says nothing twice. A prediction counts as made when its commit can be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import polars as pl

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.predictions import PREDICTION_SCHEMA, readable_from
from stormpetrel.records.times import month_of
from stormpetrel.store.tables import TableSpec, TableStore, WriterLock

PREDICTIONS: Final = TableSpec(
    "predictions",
    pl.Schema({**PREDICTION_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("job_id", "submit_time", "moment_time", "predicted_at"),
    distinct=("job_id", "risk"),
)
_TOLERANCE: Final = timedelta(seconds=1)  # by which the time in the table may differ from that of the commit
_RECENT: Final = 9  # commits whose duration tells what the next one will take
_HORIZON: Final = "watch-horizon"
_BEGAN: Final = "watch-began"


class PredictionStore(TableStore):
    """Reads and writes the prediction table of a site."""

    spec = PREDICTIONS

    def __init__(self, tables: Path, writer_lock: WriterLock) -> None:
        super().__init__(tables, writer_lock)
        self._took_s: deque[float] = deque(maxlen=_RECENT)

    def read(self, *, since: datetime | None = None) -> pl.LazyFrame:
        """Predictions for jobs submitted from `since` on, as a prediction frame."""
        rows = self.table.scan()
        if since is not None:
            rows = rows.filter(pl.col("month") >= f"{since:%Y-%m}", pl.col("submit_time") >= since)
        return rows.select(list(PREDICTION_SCHEMA))

    def append(self, predictions: pl.DataFrame, *, horizon: datetime) -> None:
        """Add predictions as they are, and move the horizon with them, in one commit."""
        with self._writer_lock():
            self._commit(predictions, horizon)

    def publish(
        self, predictions: pl.DataFrame, *, horizon: datetime, clock: Callable[[], datetime], pace: float = 1.0
    ) -> pl.DataFrame:
        """Add predictions and move the horizon in one commit; returned with the time from which on others can read them.

        A row is written before its commit is there, so it gets the time at which that is to be expected: now, once nobody else
        writes, and as long as commits took lately. Then the clock is examined again. Where the table is wrong by more than a
        second, or about `late`, it is corrected.
        """
        with self._writer_lock():
            began = clock()
            expected = readable_from(predictions, began + timedelta(seconds=median(self._took_s or [0.0])), pace=pace)
            self._commit(expected, horizon)
            there = clock()
            self._took_s.append(max(0.0, (there - began).total_seconds()))
            measured = readable_from(predictions, there, pace=pace)
            if _differ(expected, measured, _TOLERANCE * pace):
                self._correct(expected, measured)
        return measured

    def _commit(self, predictions: pl.DataFrame, horizon: datetime) -> None:
        rows = predictions.with_columns(month=month_of(pl.col("submit_time")))
        self.table.append(rows, cursor=Cursor(_HORIZON, _position(horizon)))

    def _correct(self, expected: pl.DataFrame, measured: pl.DataFrame) -> None:
        """Put the measured time in place of the expected one, in the rows of the last commit."""
        oldest, newest = measured["moment_time"].min(), measured["moment_time"].max()
        last_late = measured.filter("late")["moment_time"].max()
        self.table.update(
            {
                "predicted_at": _sql_time(measured["predicted_at"][0]),
                "late": "false" if last_late is None else f"moment_time <= {_sql_time(last_late)}",
            },
            where=f"predicted_at = {_sql_time(expected['predicted_at'][0])} "
            f"AND moment_time BETWEEN {_sql_time(oldest)} AND {_sql_time(newest)}",
        )

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


def _differ(expected: pl.DataFrame, measured: pl.DataFrame, tolerance: timedelta) -> bool:
    """Whether predictions could be read at another time than their rows say, or one of them is wrongly called late or in time."""
    apart = abs(measured["predicted_at"][0] - expected["predicted_at"][0]) if measured.height else timedelta()
    return apart > tolerance or not measured["late"].equals(expected["late"])


def _sql_time(moment: object) -> str:
    return f"'{moment:%Y-%m-%dT%H:%M:%S.%f}Z'"

"""The table of shadow scores: what a challenger in shadow says beside the model in use, kept apart from everything that alarms.

SHADOW_SCHEMA frame -> replace -> shadow_scores. Rows of a family are those of its present shadow: they are made anew each night.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.jobs import JOB_SCHEMA, KEY
from stormpetrel.records.times import UTC_TIME, month_of
from stormpetrel.store.tables import TableSpec, TableStore

SHADOW_SCHEMA: Final = pl.Schema(
    {
        "family": pl.String(),
        "training": pl.String(),  # in shadow
        "champion": pl.String(),  # in use then
        "subject": pl.String(),  # moment of a job, node, or bucket of counts
        **{name: JOB_SCHEMA[name] for name in KEY},  # of jobs; null for nodes and buckets
        "time": UTC_TIME,
        "score": pl.Float64(),
        "flagged": pl.Boolean(),
        "champion_score": pl.Float64(),
        "champion_flagged": pl.Boolean(),
        "failed": pl.Boolean(),  # what became of the job; null where nobody knows
    }
)
SHADOW_SCORES: Final = TableSpec(
    "shadow_scores",
    pl.Schema({**SHADOW_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("time",),
    distinct=("score", "champion_score"),
)


class ShadowScoreStore(TableStore):
    """Reads and writes shadow scores."""

    spec = SHADOW_SCORES

    def read(self, family: str | None = None) -> pl.LazyFrame:
        """The rows of a family, or all."""
        rows = self.table.scan()
        return (rows if family is None else rows.filter(pl.col("family") == family)).select(list(SHADOW_SCHEMA))

    def replace(self, family: str, rows: pl.DataFrame) -> None:
        """Put these rows in the place of the family's, in one commit."""
        months = pl.coalesce("submit_time", "time")  # a job is forgotten by the month of its submission
        with self._writer_lock():
            others = self.table.scan().filter(pl.col("family") != family).collect()
            new = rows.select(list(SHADOW_SCHEMA)).with_columns(month=month_of(months))
            self.table.overwrite(pl.concat([others, new.select(others.columns)]))

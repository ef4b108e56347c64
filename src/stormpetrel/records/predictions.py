"""The prediction frame: what was predicted for a job at one of its moments, and with which model.

A prediction is never changed afterwards; what became of the job stands in the job table.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.jobs import KEY_COLUMNS, Column
from stormpetrel.records.times import UTC_TIME

VALUE_COLUMNS: Final = (
    Column("moment", pl.String, "when in the job's life: `submit`, `start` or `2min`"),
    Column("moment_time", UTC_TIME, "when that was"),
    Column("as_of", UTC_TIME, "up to when the history was known: the moment itself, or later where it was heard of late"),
    Column("predicted_at", UTC_TIME, "when it could be read in the table: the time of its commit"),
    Column("late", pl.Boolean, "could be read only more than ten seconds after the moment"),
    Column("model_version", pl.Int32, "version of the model `jobs-<moment>` in the registry; below zero: of the prior"),
    Column("risk", pl.Float32, "probability that the job fails"),
    Column("threshold", pl.Float32, "risk from which it was flagged"),
    Column("flagged", pl.Boolean, "whether it was"),
    Column("known", pl.Boolean, "false where user or application were new: the habit of jobs that look alike"),
    Column("likeliest", pl.String, "the outcome that a failure would most likely be"),
    Column("likeliest_probability", pl.Float32, "its probability"),
    Column("profile", pl.Int32, "profile of the request"),
    Column("base", pl.Float32, "log-odds before anything was known"),
    Column("reason_features", pl.List(pl.String), "the strongest reasons, strongest first: feature"),
    Column("reason_words", pl.List(pl.String), "the same in words"),
    Column("reason_contributions", pl.List(pl.Float32), "contribution in log-odds; above zero speaks for a failure"),
)
PREDICTION_SCHEMA: Final = pl.Schema({column.name: column.dtype for column in (*KEY_COLUMNS, *VALUE_COLUMNS)})
LATE_AFTER_S: Final = 10.0


def version_text(version: int) -> str:
    """A model version as people read it: `3`, or `prior-1` for the prior that comes with the package."""
    return f"prior-{-version}" if version < 0 else str(version)


def readable_from(predictions: pl.DataFrame, moment: datetime, *, pace: float = 1.0) -> pl.DataFrame:
    """The predictions as made at a moment, and late if that is too long after theirs.

    Ten seconds are ten of the people who wait: `pace` seconds of the site's clock pass in each of them.
    """
    late = pl.lit(moment) - pl.col("moment_time") > timedelta(seconds=LATE_AFTER_S * pace)
    return predictions.with_columns(predicted_at=pl.lit(moment).cast(UTC_TIME), late=late)

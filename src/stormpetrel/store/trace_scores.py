"""The table of trace scores: what a model said of each window, as a frame of TRACE_SCORE_SCHEMA."""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA, WINDOW_KEY
from stormpetrel.store.scores import ScoreStore
from stormpetrel.store.tables import TableSpec

TRACE_SCORES: Final = TableSpec(
    "trace_scores",
    pl.Schema({**TRACE_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("window_start", "model_version"),
    distinct=("score", "x", "y", "bad_io_distance"),
)


class TraceScoreStore(ScoreStore):
    """Reads and writes the trace scores of a site."""

    spec = TRACE_SCORES
    key = (*WINDOW_KEY, "model", "model_version")
    time = "window_start"

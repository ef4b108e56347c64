"""The table of event scores: what a model said of each bucket, as a frame of EVENT_SCORE_SCHEMA.

It stays as it was said, also when events of that bucket come later.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.events import EVENT_SCORE_KEY, EVENT_SCORE_SCHEMA
from stormpetrel.store.scores import ScoreStore
from stormpetrel.store.tables import TableSpec

EVENT_SCORES: Final = TableSpec(
    "event_scores",
    pl.Schema({**EVENT_SCORE_SCHEMA, "month": pl.String()}),
    partition_by=("month",),
    ranges=("bucket_start", "model_version"),
    distinct=("score",),
)


class EventScoreStore(ScoreStore):
    """Reads and writes the event scores of a site."""

    spec = EVENT_SCORES
    key = EVENT_SCORE_KEY
    time = "bucket_start"

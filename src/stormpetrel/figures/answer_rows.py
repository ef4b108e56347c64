"""Rows of an answer as the frame that a figure is drawn from.

list of frozen models -> frame_of -> one row each, in their order; a frame stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.base import Answer


def frame_of(rows: pl.DataFrame | Sequence[Answer]) -> pl.DataFrame:
    """Return the rows as a frame with a column for each field; without any rows it has no columns."""
    if isinstance(rows, pl.DataFrame):
        return rows
    return pl.DataFrame([row.model_dump() for row in rows], infer_schema_length=None)

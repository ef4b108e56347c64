"""Rows of a frame as JSON: the declared schema of a frame -> the model of one of its rows, so that the two cannot drift apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime
from typing import Any

import polars as pl
from pydantic import Field, create_model

from stormpetrel.faces.api.asking import Told


def row_model(
    name: str,
    schema: Mapping[str, pl.DataType],
    *,
    doc: str,
    meaning: Mapping[str, str],
    always: Collection[str] = (),
    examples: Mapping[str, Any] | None = None,
) -> Any:
    """The model of a row; every column may be null, except those that are `always` there."""
    fields: dict[str, Any] = {}
    for column, dtype in schema.items():
        kind = _python_type(dtype)
        example = [examples[column]] if examples and column in examples else None
        fields[column] = (kind if column in always else kind | None, Field(description=meaning.get(column), examples=example))
    return create_model(name, __base__=Told, __doc__=doc, **fields)


def _python_type(dtype: pl.DataType) -> Any:
    if isinstance(dtype, pl.Datetime):
        return datetime
    if dtype.is_float():
        return float
    kinds: dict[pl.DataType, Any] = {pl.String(): str, pl.Boolean(): bool, pl.Date(): date}
    return kinds.get(dtype, int)

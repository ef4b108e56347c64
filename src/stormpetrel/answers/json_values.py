"""Values of a frame as JSON: times in ISO form, null for a number that is not finite."""

from __future__ import annotations

from datetime import date, datetime
from math import isfinite
from typing import Any

import polars as pl


def json_value(value: Any) -> Any:
    """Return one value as JSON."""
    match value:
        case float():
            return value if isfinite(value) else None
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(name): json_value(one) for name, one in value.items()}
        case list() | tuple():
            return [json_value(one) for one in value]
    return value


def json_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as JSON, in their order."""
    return [json_value(row) for row in frame.iter_rows(named=True)]

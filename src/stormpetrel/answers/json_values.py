"""Values of a frame as JSON: times in ISO form, null for a number that is not finite."""

from __future__ import annotations

from datetime import date, datetime
from math import isfinite
from typing import Any


def json_value(value: Any) -> Any:
    """Return one value as JSON."""
    match value:
        case float():
            return value if isfinite(value) else None
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(name): json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return value

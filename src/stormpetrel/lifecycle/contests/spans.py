"""The spans that challengers learn from: the previous day, the previous week, everything that is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta


def spans_of(days: Sequence[float], until: datetime) -> Iterator[tuple[float, datetime | None]]:
    """The days of each span and when it begins, None where it is everything; each once, the longest last."""
    for number in sorted(set(days), key=lambda span: span or float("inf")):
        yield number, until - timedelta(days=number) if number else None


def span_name(days: float) -> str:
    """What a span is called: `1 day`, `7 days`, `everything`."""
    return "everything" if not days else f"{days:g} day{'' if days == 1 else 's'}"

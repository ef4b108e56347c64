"""Questions to a site's tables in SQL, and the rows that answer them, as `stormpetrel sql --json` prints them."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from pydantic import Field, PlainSerializer

from stormpetrel.answers.schemas.base import Answer, Question


def json_cell(value: Any) -> str | int | float | bool | None:
    """A value of a table as JSON has it: times and lists as text, null for a number that is none."""
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


Cell = Annotated[Any, PlainSerializer(json_cell)]


class SqlQuestion(Question):
    """One query, which can only read."""

    query: str = Field(examples=["select state, count(*) n from jobs group by state"])
    limit: int | None = Field(default=None, ge=1, description="rows at most; null: all")
    files: bool = Field(default=False, description="whether it may read files of this machine")


class SqlAnswer(Answer):
    """Rows of a query, or the tables with their columns."""

    columns: list[str]
    rows: list[dict[str, Cell]]
    is_cut: bool = Field(default=False, description="whether there are more rows than were asked for")

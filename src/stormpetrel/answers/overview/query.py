"""Queries of a table: how it is sorted, filtered and paged, for a page, a link or another program.

TableQuery -> Overview.page -> TablePage.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from stormpetrel.errors import UsageError

KINDS: Final = (
    "equals", "not_equal", "contains", "not_contains", "starts_with", "ends_with", "less", "less_equal", "greater",
    "greater_equal", "between", "blank", "not_blank", "is_in",
)  # fmt: skip
MOST_ROWS: Final = 10_000  # of one page; more is a matter for several


@dataclass(frozen=True, slots=True)
class TableFilter:
    """One condition on one column; `value_to` is the upper end of `between`, both ends belong to it.

    `contains`, `starts_with` and `ends_with` do not mind capitals, the others do. A day (`2026-11-15`) stands for all of it, in
    UTC. A missing value is blank; it is never equal, less or greater, and always unequal.
    """

    column: str
    kind: str
    value: Any = None
    value_to: Any = None


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which rows, in which order: all filters must hold; sorted by (column, descending), missing values last.

    `search` finds the beginning of a job's id, or a part of its user, account, partition or name.
    """

    sort: tuple[tuple[str, bool], ...] = (("submit_time", True),)
    filters: tuple[TableFilter, ...] = ()
    search: str = ""
    offset: int = 0
    limit: int = 100

    def check(self, columns: Iterable[str]) -> None:
        """Refuse columns and kinds that do not exist, and pages that make no sense."""
        known = list(columns)
        for column in (*(column for column, _ in self.sort), *(condition.column for condition in self.filters)):
            if column not in known:
                raise UsageError(f"The table has no column {column[:80]!r}.", hint=_did_you_mean(column, known))
        for condition in self.filters:
            if condition.kind not in KINDS:
                raise UsageError(f"Unknown kind of filter {condition.kind[:80]!r}.", hint=_did_you_mean(condition.kind, KINDS))
        if self.offset < 0 or not 0 <= self.limit <= MOST_ROWS:
            raise UsageError(
                f"There is no page of {self.limit} rows from row {self.offset} on.",
                hint=f"Ask for at most {MOST_ROWS} rows, from 0 on.",
            )


@dataclass(frozen=True, slots=True)
class TablePage:
    """Some rows of a table, and how many there are in all."""

    rows: pl.DataFrame = field(repr=False)
    total: int


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."

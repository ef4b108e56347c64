"""Pages of the overview: which rows match a query, and which of them are on the page.

indices of months + Viewer + TableQuery -> OverviewRows.page -> (row numbers of the page, rows in all).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.overview.column_index import STANDS_FOR, Keys, Mask, MonthIndex, Rows, page_of, sort_keys
from stormpetrel.answers.overview.month import OVERVIEW_SCHEMA
from stormpetrel.answers.overview.query import TableFilter, TableQuery
from stormpetrel.answers.overview.stored_month import StoredMonth
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import UsageError
from stormpetrel.records.jobs import JobRef

_Holds = Callable[[pl.Series], pl.Series]
_NEGATIVE: Final = ("not_equal", "not_contains")
_DAY: Final = timedelta(days=1)
_DAY_LENGTH: Final = len("2026-11-15")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_LIKE_AN_ID: Final = re.compile(r"[0-9_]+")
_SEARCHED: Final = ("user", "account", "partition", "job_name")
_SORTED_BY_MONTH: Final = 2_000  # rows of a page and before it, up to which each month is sorted on its own


@dataclass(frozen=True, slots=True)
class WordTest:
    """The test of a text: whether it wants to see small letters only, and whether a missing text passes."""

    holds: _Holds
    folded: bool
    missing: bool


def word_test(wanted: TableFilter) -> WordTest:
    """Return the test of a condition on a text column."""
    folded = wanted.kind in ("contains", "not_contains", "starts_with", "ends_with")
    return WordTest(_word_holds(wanted), folded, missing=wanted.kind in (*_NEGATIVE, "blank"))


def _word_holds(wanted: TableFilter) -> _Holds:
    match wanted.kind:
        case "blank":
            return lambda words: words == ""
        case "not_blank":
            return lambda words: words != ""
        case "is_in":
            several = [_text(wanted, value) for value in _several(wanted)]
            return lambda words: words.is_in(several)
    text = _text(wanted, wanted.value)
    small = text.lower()
    tests: dict[str, _Holds] = {
        "equals": lambda words: words == text,
        "not_equal": lambda words: words != text,
        "contains": lambda words: words.str.contains(small, literal=True),
        "not_contains": lambda words: ~words.str.contains(small, literal=True),
        "starts_with": lambda words: words.str.starts_with(small),
        "ends_with": lambda words: words.str.ends_with(small),
    }
    if wanted.kind not in tests:
        raise UsageError(f"'{wanted.column}' is a text: '{wanted.kind}' does not fit it.", hint=f"Use {', '.join(tests)}.")
    return tests[wanted.kind]


def condition(wanted: TableFilter, dtype: pl.DataType) -> pl.Expr:
    """Return a condition on a column of numbers, times or booleans as an expression."""
    column = pl.col(wanted.column)
    match wanted.kind:
        case "blank":
            return column.is_null()
        case "not_blank":
            return column.is_not_null()
        case "is_in":
            return pl.any_horizontal(*(_equals(wanted, dtype, value) for value in _several(wanted)), pl.lit(False))
        case "equals":
            return _equals(wanted, dtype, wanted.value)
        case "not_equal":
            return ~_equals(wanted, dtype, wanted.value)
    if dtype == pl.Boolean or wanted.kind not in ("less", "less_equal", "greater", "greater_equal", "between"):
        raise UsageError(
            f"'{wanted.column}' is no text: '{wanted.kind}' does not fit it.", hint="Use equals, less, greater or between."
        )
    return _compared(wanted, dtype).fill_null(False)


def is_job(wanted: TableFilter) -> pl.Expr:
    """Return the condition that a job is, or is not, the one (or one of several) of a reference."""
    if wanted.kind not in ("equals", "not_equal", "is_in"):
        raise UsageError(f"A reference is a whole: '{wanted.kind}' does not fit it.", hint="Use equals or is_in; or search.")
    refs = [JobRef.parse(str(value)) for value in (_several(wanted) if wanted.kind == "is_in" else (wanted.value,))]
    matches = pl.any_horizontal(*(ref.is_row() for ref in refs), pl.lit(False))
    return ~matches if wanted.kind == "not_equal" else matches


def _equals(wanted: TableFilter, dtype: pl.DataType, value: Any) -> pl.Expr:
    low, high = _span(wanted, dtype, value)
    column = pl.col(wanted.column)
    return (column.eq(low) if low == high else column.ge(low) & column.lt(high)).fill_null(False)


def _compared(wanted: TableFilter, dtype: pl.DataType) -> pl.Expr:
    column, (low, high) = pl.col(wanted.column), _span(wanted, dtype, wanted.value)
    whole = low != high  # a day: what comes after it begins where it ends
    match wanted.kind:
        case "less":
            return column.lt(low)
        case "less_equal":
            return column.lt(high) if whole else column.le(low)
        case "greater":
            return column.ge(high) if whole else column.gt(low)
        case "greater_equal":
            return column.ge(low)
    to_low, to_high = _span(wanted, dtype, wanted.value_to)
    return column.ge(low) & (column.lt(to_high) if to_low != to_high else column.le(to_low))


def _span(wanted: TableFilter, dtype: pl.DataType, value: Any) -> tuple[Any, Any]:
    """What a value stands for: twice itself, or the begin and the end of a day."""
    try:
        if isinstance(dtype, pl.Datetime):
            return _time_span(value)
        if dtype == pl.Boolean:
            truth = _TRUTHS[str(value).lower()]
            return truth, truth
        number = _number(value)
        return number, number
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        expected = "a time such as 2026-11-15T12:00" if isinstance(dtype, pl.Datetime) else "true or false"
        expected = expected if isinstance(dtype, pl.Datetime) or dtype == pl.Boolean else "a number"
        raise UsageError(f"{str(value)[:80]!r} does not fit the column '{wanted.column}'.", hint=f"Write {expected}.") from error


def _number(value: Any) -> int | float:
    try:
        return int(str(value))  # job ids are longer than a float is exact
    except ValueError:
        number = float(value)
        if number != number:
            raise
        return number


def _time_span(value: Any) -> tuple[datetime, datetime]:
    whole_day = (isinstance(value, date) and not isinstance(value, datetime)) or len(str(value)) == _DAY_LENGTH
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment, moment + _DAY if whole_day else moment


def _several(wanted: TableFilter) -> list[Any]:
    if isinstance(wanted.value, str) or not hasattr(wanted.value, "__iter__"):
        raise UsageError(f"'is_in' on '{wanted.column}' needs several values.", hint="Pass a list.")
    return list(wanted.value)


def _text(wanted: TableFilter, value: Any) -> str:
    if value is None or isinstance(value, list | tuple | dict | set | frozenset):
        raise UsageError(f"'{wanted.kind}' on '{wanted.column}' needs a text.", hint="For missing values use blank or not_blank.")
    return str(value)


class OverviewRows:
    """The rows of the overview to be searched: months, one below the other, by their indices."""

    def __init__(self, indices: Sequence[MonthIndex]) -> None:
        self._indices = indices
        self._starts = np.cumsum([0, *(index.height for index in indices)])

    def page(self, viewer: Viewer, query: TableQuery) -> tuple[Rows, int]:
        """Return the row numbers of a page, in the order of the query, and how many rows match in all."""
        viewer.require(READ)
        rows = np.flatnonzero(self._matching(viewer, query))
        keys = self._sort_keys(query)
        last = query.offset + query.limit
        if keys and last <= _SORTED_BY_MONTH and any(isinstance(index, StoredMonth) for index in self._indices):
            bounds = np.searchsorted(rows, self._starts)  # what is on the page is among the first of its month
            parts = [page_of(rows[low:high], keys, 0, last) for low, high in pairwise(bounds.tolist())]
            return page_of(np.sort(np.concatenate(parts)), keys, query.offset, query.limit), len(rows)
        return page_of(rows, keys, query.offset, query.limit), len(rows)

    def _matching(self, viewer: Viewer, query: TableQuery) -> Mask:
        matches = np.ones(self._starts[-1], dtype=np.bool_)
        if not viewer.is_admin:
            matches &= self._words("user", word_test(TableFilter("user", "equals", viewer.user)))
        for column_filter in query.filters:
            matches &= self._filtered(column_filter)
        if query.search.strip():
            matches &= self._searched(query.search.strip())
        return matches

    def _filtered(self, column_filter: TableFilter) -> Mask:
        if column_filter.column == "ref":
            return self._holds(is_job(column_filter))
        dtype = OVERVIEW_SCHEMA[column_filter.column]
        if dtype == pl.String:
            return self._words(column_filter.column, word_test(column_filter))
        return self._holds(condition(column_filter, dtype))

    def _searched(self, text: str) -> Mask:
        matches = np.zeros(self._starts[-1], dtype=np.bool_)
        if _LIKE_AN_ID.fullmatch(text):
            matches |= self._holds(pl.col("job").str.starts_with(text))
        for column in _SEARCHED:
            matches |= self._words(column, word_test(TableFilter(column, "contains", text)))
        return matches

    def _words(self, column: str, test: WordTest) -> Mask:
        if column == "job":  # hardly two are the same, and there are no capitals among digits
            return self._holds(pl.col("job").map_batches(test.holds, return_dtype=pl.Boolean).fill_null(test.missing))
        parts = [index.matches(column, test.holds, missing=test.missing, folded=test.folded) for index in self._indices]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)

    def _holds(self, condition: pl.Expr) -> Mask:
        parts = [index.holds(condition) for index in self._indices]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)

    def _sort_keys(self, query: TableQuery) -> list[Callable[[Rows], Keys]]:
        """What the rows are sorted by, one after the other."""
        columns = [(real, descending) for column, descending in query.sort for real in STANDS_FOR.get(column, (column,))]
        return [
            key
            for column, descending in columns
            for key in sort_keys(self._indices, column, is_text=OVERVIEW_SCHEMA[column] == pl.String, descending=descending)
        ]

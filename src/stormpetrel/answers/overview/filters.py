"""Filters of the overview: a condition on a column -> which rows match.

TableFilter -> a Polars expression for numbers and times, a test of distinct words for texts. What a person typed is text
throughout, never a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.answers.overview.query import TableFilter
from stormpetrel.errors import UsageError
from stormpetrel.records.job_ref import JobRef

_Holds = Callable[[pl.Series], pl.Series]
_NEGATIVE: Final = ("not_equal", "not_contains")
_DAY: Final = timedelta(days=1)
_DAY_LENGTH: Final = len("2026-11-15")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class WordTest:
    """The test of a text: whether it wants to see small letters only, and whether a missing text passes."""

    holds: _Holds
    folded: bool
    missing: bool


def word_test(one: TableFilter) -> WordTest:
    """Return the test of a condition on a text column."""
    folded = one.kind in ("contains", "not_contains", "starts_with", "ends_with")
    return WordTest(_word_holds(one), folded, missing=one.kind in (*_NEGATIVE, "blank"))


def _word_holds(one: TableFilter) -> _Holds:
    match one.kind:
        case "blank":
            return lambda words: words == ""
        case "not_blank":
            return lambda words: words != ""
        case "is_in":
            several = [_text(one, value) for value in _several(one)]
            return lambda words: words.is_in(several)
    text = _text(one, one.value)
    small = text.lower()
    tests: dict[str, _Holds] = {
        "equals": lambda words: words == text,
        "not_equal": lambda words: words != text,
        "contains": lambda words: words.str.contains(small, literal=True),
        "not_contains": lambda words: ~words.str.contains(small, literal=True),
        "starts_with": lambda words: words.str.starts_with(small),
        "ends_with": lambda words: words.str.ends_with(small),
    }
    if one.kind not in tests:
        raise UsageError(f"'{one.column}' is a text: '{one.kind}' does not fit it.", hint=f"Use {', '.join(tests)}.")
    return tests[one.kind]


def condition(one: TableFilter, dtype: pl.DataType) -> pl.Expr:
    """Return a condition on a column of numbers, times or booleans as an expression."""
    column = pl.col(one.column)
    match one.kind:
        case "blank":
            return column.is_null()
        case "not_blank":
            return column.is_not_null()
        case "is_in":
            return pl.any_horizontal(*(_equals(one, dtype, value) for value in _several(one)), pl.lit(False))
        case "equals":
            return _equals(one, dtype, one.value)
        case "not_equal":
            return ~_equals(one, dtype, one.value)
    if dtype == pl.Boolean or one.kind not in ("less", "less_equal", "greater", "greater_equal", "between"):
        raise UsageError(
            f"'{one.column}' is no text: '{one.kind}' does not fit it.", hint="Use equals, less, greater or between."
        )
    return _compared(one, dtype).fill_null(False)


def is_job(one: TableFilter) -> pl.Expr:
    """Return the condition that a job is, or is not, the one (or one of several) of a reference."""
    if one.kind not in ("equals", "not_equal", "is_in"):
        raise UsageError(f"A reference is a whole: '{one.kind}' does not fit it.", hint="Use equals or is_in; or search.")
    refs = [JobRef.parse(str(value)) for value in (_several(one) if one.kind == "is_in" else (one.value,))]
    matches = pl.any_horizontal(*(ref.is_row() for ref in refs), pl.lit(False))
    return ~matches if one.kind == "not_equal" else matches


def _equals(one: TableFilter, dtype: pl.DataType, value: Any) -> pl.Expr:
    low, high = _span(one, dtype, value)
    column = pl.col(one.column)
    return (column.eq(low) if low == high else column.ge(low) & column.lt(high)).fill_null(False)


def _compared(one: TableFilter, dtype: pl.DataType) -> pl.Expr:
    column, (low, high) = pl.col(one.column), _span(one, dtype, one.value)
    whole = low != high  # a day: what comes after it begins where it ends
    match one.kind:
        case "less":
            return column.lt(low)
        case "less_equal":
            return column.lt(high) if whole else column.le(low)
        case "greater":
            return column.ge(high) if whole else column.gt(low)
        case "greater_equal":
            return column.ge(low)
    to_low, to_high = _span(one, dtype, one.value_to)
    return column.ge(low) & (column.lt(to_high) if to_low != to_high else column.le(to_low))


def _span(one: TableFilter, dtype: pl.DataType, value: Any) -> tuple[Any, Any]:
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
        raise UsageError(f"{str(value)[:80]!r} does not fit the column '{one.column}'.", hint=f"Write {expected}.") from error


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


def _several(one: TableFilter) -> list[Any]:
    if isinstance(one.value, str) or not hasattr(one.value, "__iter__"):
        raise UsageError(f"'is_in' on '{one.column}' needs several values.", hint="Pass a list.")
    return list(one.value)


def _text(one: TableFilter, value: Any) -> str:
    if value is None or isinstance(value, list | tuple | dict | set | frozenset):
        raise UsageError(f"'{one.kind}' on '{one.column}' needs a text.", hint="For missing values use blank or not_blank.")
    return str(value)

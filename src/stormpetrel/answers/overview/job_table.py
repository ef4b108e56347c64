"""The table of jobs: the columns of the overview as rows of an answer, and how they are requested.

JobsQuestion -> table_query -> TableQuery; rows of the overview -> job_rows -> JobRow.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.answers.overview.overview import OVERVIEW_SCHEMA, TableFilter, TableQuery
from stormpetrel.answers.schemas.jobs import JobRow, JobsQuestion

COLUMNS: Final = {"ref": pl.String(), **OVERVIEW_SCHEMA}
_EQUAL: Final = (
"user", "account", "partition", "job_name", "cluster", "prediction", "likeliest", "flagged", "known", "failed",
"never_started", "waiting", "never_runs",
)  # fmt: skip
_BOUNDS: Final = {
    "risk_min": ("risk", "greater_equal"),
    "risk_max": ("risk", "less_equal"),
    "submitted_since": ("submit_time", "greater_equal"),
    "submitted_until": ("submit_time", "less_equal"),
    "ended_since": ("end_time", "greater_equal"),
    "ended_until": ("end_time", "less_equal"),
}


def table_query(question: JobsQuestion) -> TableQuery:
    """Return the same question as the overview takes it."""
    return TableQuery(
        sort=tuple((text.removeprefix("-"), text.startswith("-")) for text in question.sort),
        filters=tuple(_filters(question)),
        search=question.search,
        offset=(question.page - 1) * question.limit,
        limit=question.limit,
    )


def _filters(question: JobsQuestion) -> list[TableFilter]:
    values = {name: value for name, value in dict(question).items() if value is not None}
    filters = [TableFilter(column, "equals", values[column]) for column in _EQUAL if column in values]
    filters += [TableFilter(column, kind, values[name]) for name, (column, kind) in _BOUNDS.items() if name in values]
    if question.state:
        filters.append(TableFilter("state", "is_in", [str(state) for state in question.state]))
    return filters


def job_rows(frame: pl.DataFrame) -> list[JobRow]:
    """Rows of the overview as JSON has them: six digits of a risk are enough."""
    numbers = [pl.col(name).cast(pl.Float64).round(6) for name, dtype in COLUMNS.items() if dtype == pl.Float32]
    return [JobRow.model_construct(**row) for row in frame.select(list(COLUMNS)).with_columns(numbers).iter_rows(named=True)]

"""Pages of the overview: which rows match a query, and which of them are on the page.

rows and their indices + Viewer + TableQuery -> OverviewRows.page -> (row numbers of the page, rows in all).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.answers.overview.column_index import STANDS_FOR, ColumnIndex, Keys, Mask, Rows, page_of, sort_keys
from stormpetrel.answers.overview.filters import WordTest, condition, is_job, word_test
from stormpetrel.answers.overview.month import OVERVIEW_SCHEMA
from stormpetrel.answers.overview.query import TableFilter, TableQuery
from stormpetrel.answers.viewer import READ, Viewer

_LIKE_AN_ID: Final = re.compile(r"[0-9_]+")
_SEARCHED: Final = ("user", "account", "partition", "job_name")


class OverviewRows:
    """The rows of the overview to be searched: frames of months, one below the other, each with its index."""

    def __init__(self, frame: pl.DataFrame, indices: list[ColumnIndex]) -> None:
        self._frame = frame
        self._indices = indices

    def page(self, viewer: Viewer, query: TableQuery) -> tuple[Rows, int]:
        """Return the row numbers of a page, in the order of the query, and how many rows match in all."""
        viewer.require(READ)
        rows = np.flatnonzero(self._matching(viewer, query))
        return page_of(rows, self._sort_keys(query), query.offset, query.limit), len(rows)

    def _matching(self, viewer: Viewer, query: TableQuery) -> Mask:
        matches = np.ones(self._frame.height, dtype=np.bool_)
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
        matches = np.zeros(self._frame.height, dtype=np.bool_)
        if _LIKE_AN_ID.fullmatch(text):
            matches |= self._holds(pl.col("job").str.starts_with(text))
        for column in _SEARCHED:
            matches |= self._words(column, word_test(TableFilter(column, "contains", text)))
        return matches

    def _words(self, column: str, test: WordTest) -> Mask:
        if column == "job":  # hardly two are the same, and there are no capitals among digits
            return test.holds(self._frame["job"]).fill_null(test.missing).to_numpy()
        parts = [index.matches(column, test.holds, missing=test.missing, folded=test.folded) for index in self._indices]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)

    def _holds(self, condition: pl.Expr) -> Mask:
        return self._frame.select(condition.alias("holds")).to_series().to_numpy()

    def _sort_keys(self, query: TableQuery) -> list[Callable[[Rows], Keys]]:
        """What the rows are sorted by, one after the other."""
        columns = [(real, descending) for column, descending in query.sort for real in STANDS_FOR.get(column, (column,))]
        return [
            key
            for column, descending in columns
            for key in sort_keys(self._indices, column, is_text=OVERVIEW_SCHEMA[column] == pl.String, descending=descending)
        ]

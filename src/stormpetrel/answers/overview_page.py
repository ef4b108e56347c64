"""Pages of the overview: which rows a question asks for, and which of them stand on the page.

rows and their indices + Viewer + TableQuery -> page_rows -> (row numbers of the page, rows in all).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.answers.column_index import STANDS_FOR, ColumnIndex, Keys, Mask, Rows, page_of, sort_keys
from stormpetrel.answers.overview_month import OVERVIEW_SCHEMA
from stormpetrel.answers.table_filters import WordTest, condition, is_job, word_test
from stormpetrel.answers.table_query import TableFilter, TableQuery
from stormpetrel.answers.viewer import READ, Viewer

_LIKE_AN_ID: Final = re.compile(r"[0-9_]+")
_SEARCHED: Final = ("user", "account", "partition", "job_name")


class OverviewRows:
    """The rows of the overview as a question sees them: frames of months, one below the other, each with its index."""

    def __init__(self, frame: pl.DataFrame, indices: list[ColumnIndex]) -> None:
        self._frame = frame
        self._indices = indices

    def page(self, viewer: Viewer, query: TableQuery) -> tuple[Rows, int]:
        """The row numbers of a page, and how many rows there are in all."""
        viewer.require(READ)
        rows = np.flatnonzero(self._asked_for(viewer, query))
        return page_of(rows, self._sort_keys(query), query.offset, query.limit), len(rows)

    def _asked_for(self, viewer: Viewer, query: TableQuery) -> Mask:
        asked = np.ones(self._frame.height, dtype=np.bool_)
        if not viewer.is_admin:
            asked &= self._words("user", word_test(TableFilter("user", "equals", viewer.user)))
        for one in query.filters:
            asked &= self._filtered(one)
        if query.search.strip():
            asked &= self._searched(query.search.strip())
        return asked

    def _filtered(self, one: TableFilter) -> Mask:
        if one.column == "ref":
            return self._holds(is_job(one))
        dtype = OVERVIEW_SCHEMA[one.column]
        return self._words(one.column, word_test(one)) if dtype == pl.String else self._holds(condition(one, dtype))

    def _searched(self, text: str) -> Mask:
        found = np.zeros(self._frame.height, dtype=np.bool_)
        if _LIKE_AN_ID.fullmatch(text):
            found |= self._holds(pl.col("job").str.starts_with(text))
        for column in _SEARCHED:
            found |= self._words(column, word_test(TableFilter(column, "contains", text)))
        return found

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

"""Columns that no vocabulary knows become numbers or categories, or are left out with the reason."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.records.workload_columns import as_column


def test_numbers_stay_whole_where_they_are_whole():
    column, _ = as_column(pl.Series("size", ["1", "2", None]))
    assert column is not None and column.to_list() == [1, 2, None] and column.dtype == pl.Int64
    column, _ = as_column(pl.Series("size", ["1.5", "nan", "inf", *["2"] * 300]))
    assert column is not None and column.dtype == pl.Float64 and column.head(3).to_list() == [1.5, None, None]


def test_text_is_a_category_unless_it_names_each_row():
    column, _ = as_column(pl.Series("colour", ["red", "blue"] * 50))
    assert column is not None and column.dtype == pl.String
    column, why = as_column(pl.Series("path", [f"/home/{number}" for number in range(100)]))
    assert column is None and "never learnt" in why


@pytest.mark.parametrize(("name", "values"), [("empty", [None, None]), ("job_id", ["1", "2"]), (" ", ["1", "2"])])
def test_what_says_nothing_is_left_out(name, values):
    column, why = as_column(pl.Series(name, values, dtype=pl.String))
    assert column is None and why

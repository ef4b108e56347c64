"""A table to which a version adds a column: old rows are read with nulls, new ones are written beside them."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.errors import StoreVersionError
from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.tables import Table, TableSpec

BEFORE = TableSpec("t", pl.Schema({"k": pl.Int64(), "x": pl.String(), "month": pl.String()}), ("month",), ("k",))
ADDED = {"y": pl.List(pl.Float32()), "when": UTC_TIME, "extra": pl.Struct({"a": pl.Int64()})}
AFTER = TableSpec("t", pl.Schema({"k": pl.Int64(), "x": pl.String(), **ADDED, "month": pl.String()}), ("month",), ("k",))
OLD = pl.DataFrame({"k": [1, 2], "x": ["a", "b"], "month": ["2024-01", "2024-02"]})
NEW = pl.DataFrame(
    {"k": [2, 3], "x": ["B", "c"], "y": [[1.0], None], "when": None, "extra": [{"a": 1}, None], "month": "2024-02"},
    schema_overrides=ADDED,
)


@pytest.fixture
def tables(tmp_path):
    """The same table as the version before declares it, and as this one does; the rows are of the version before."""
    before, after = Table(tmp_path, BEFORE), Table(tmp_path, AFTER)
    before.create()
    before.append(OLD)
    return before, after


def rows(table, *columns):
    return table.scan().sort("k").select(*columns or ["k"]).collect().rows()


def test_rows_from_before_have_nulls_in_a_column_that_was_added(tables):
    _, after = tables
    assert rows(after, "k", "x", "y", "when", "month") == [(1, "a", None, None, "2024-01"), (2, "b", None, None, "2024-02")]


def test_reading_rewrites_nothing(tables):
    _, after = tables
    version = after.version()
    rows(after)
    assert after.version() == version


@pytest.mark.parametrize("way", ["append", "upsert", "overwrite"])
def test_the_first_commit_adds_the_column_to_the_table(tables, way):
    _, after = tables
    if way == "append":
        after.append(NEW.filter(pl.col("k") == 3))
    elif way == "upsert":
        after.upsert(NEW, on=["k"], nullable=())
    else:
        after.overwrite(NEW, where="month = '2024-02'")
    assert rows(after)[0] == (1,) and rows(after)[-1] == (3,)
    assert {"y", "when", "extra"} <= {field.name for field in after.open().schema().fields}


def test_old_and_new_rows_are_merged_into_one_file(tables):
    _, after = tables
    after.append(NEW.filter(pl.col("k") == 3))
    after.compact()
    after.vacuum(keep_hours=0)
    assert rows(after, "k", "y") == [(1, None), (2, None), (3, None)]


def test_a_filter_on_an_added_column_works_over_old_files(tables):
    _, after = tables
    after.upsert(NEW, on=["k"], nullable=())
    assert after.scan().filter(pl.col("y").is_not_null()).select("k").collect().rows() == [(2,)]


def test_the_version_before_reads_on_without_the_column(tables):
    before, after = tables
    after.upsert(NEW, on=["k"], nullable=())
    assert rows(before, "k", "x") == [(1, "a"), (2, "B"), (3, "c")]


def test_the_version_before_does_not_write_what_it_would_leave_empty(tables):
    before, after = tables
    after.append(NEW.filter(pl.col("k") == 3))
    for write in (
        lambda: before.append(OLD),
        lambda: before.upsert(OLD, on=["k"], nullable=()),
        lambda: before.overwrite(OLD),
    ):
        with pytest.raises(StoreVersionError, match=r"newer version.*column.*pip install --upgrade"):
            write()
    assert len(rows(after)) == 3

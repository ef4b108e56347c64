"""What a log says is remembered by its content: it is opened once, and whatever changes it is seen at once."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from stormpetrel.errors import StoreError
from stormpetrel.store import table_log
from stormpetrel.store.table_log import LogMemory, LogSummary, fingerprint_of
from stormpetrel.store.tables import Table, TableSpec

SPEC = TableSpec("t", pl.Schema({"k": pl.Int64()}), (), ("k",))


@pytest.fixture
def table(tmp_path):
    made = Table(tmp_path / "one", SPEC)
    made.create()
    made.append(pl.DataFrame({"k": [1]}))
    return made


def keys(table):
    return sorted(table.scan().collect()["k"])


def refuse(_table):
    raise AssertionError("the table was opened")


def test_a_log_that_is_as_it_was_is_opened_once(table, monkeypatch):
    assert keys(table) == [1]
    monkeypatch.setattr(Table, "open", refuse)
    assert keys(table) == [1] and table.version() == 1


def test_a_copy_of_a_table_has_files_of_its_own(table, tmp_path):
    known = table.files()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copied = Table(tmp_path / "two", SPEC)
    assert [path.name for path in copied.files()] == [path.name for path in known]
    assert all(path.is_relative_to(tmp_path / "two") for path in copied.files())


def test_what_others_commit_is_seen_at_once(table, tmp_path):
    assert keys(table) == [1]
    Table(tmp_path / "one", SPEC).append(pl.DataFrame({"k": [2]}))
    assert keys(table) == [1, 2] and table.version() == 2


def test_a_table_that_is_put_back_says_what_it_said(table, tmp_path):
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    table.append(pl.DataFrame({"k": [2]}))
    assert keys(table) == [1, 2]
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "backup", tmp_path / "one")
    assert keys(table) == [1] and table.version() == 1


def test_a_log_of_the_same_length_with_another_content_is_read_again(table):
    assert keys(table) == [1]
    newest = max((table.path / "_delta_log").glob("*.json"))
    newest.write_bytes(b"#" * newest.stat().st_size)
    with pytest.raises(StoreError, match="cannot be read"):
        table.files()


def test_a_commit_while_the_log_is_read_is_not_remembered_as_the_log_before(table, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "one", tmp_path / "before")
    open_now = Table.open

    def commit_and_open(of):
        monkeypatch.setattr(Table, "open", open_now)
        Table(tmp_path / "one", SPEC).append(pl.DataFrame({"k": [2]}))
        return of.open()

    monkeypatch.setattr(Table, "open", commit_and_open)
    assert table.version() == 2
    assert Table(tmp_path / "before", SPEC).version() == 1


def test_a_long_log_and_one_that_is_not_there_have_no_fingerprint(table, tmp_path, monkeypatch):
    log = table.path / "_delta_log"
    assert fingerprint_of(log) and fingerprint_of(tmp_path / "nowhere") is None
    monkeypatch.setattr(table_log, "_MOST_BYTES", 10)
    assert fingerprint_of(log) is None
    assert keys(table) == [1]


def test_no_more_than_so_many_logs_are_remembered(monkeypatch):
    monkeypatch.setattr(table_log, "_MOST_LOGS", 2)
    memory = LogMemory()
    for number in range(3):
        memory.remember(bytes([number]), LogSummary(number, ()))
    assert [memory.get(bytes([number])) is not None for number in range(3)] == [False, True, True]

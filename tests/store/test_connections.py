"""Connections to SQLite: each is closed by the store that opened it, whatever happens meanwhile."""

import sqlite3
from contextlib import suppress

import pytest

from stormpetrel.errors import StoreError
from stormpetrel.store import read_only
from stormpetrel.store.site import open_site
from stormpetrel.store.state import open_state
from tests.builders import make_site


@pytest.fixture
def opened(monkeypatch):
    """Every connection that is made; kept here, so that none is closed only because nobody holds it any more."""
    connections, connect = [], sqlite3.dbapi2.connect

    def noted(*words, **options):
        connections.append(connect(*words, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3.dbapi2, "connect", noted)
    yield connections
    for connection in connections:
        connection.close()


def is_closed(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.ProgrammingError):
        connection.execute("select 1")
        return False
    return True


def test_a_connection_in_use_while_the_store_is_closed_is_closed_when_it_is_given_back(tmp_path, opened):
    store = open_state(tmp_path, lock_folder=tmp_path)
    with store.transaction():
        store.close()
        assert not all(map(is_closed, opened))
    assert opened and all(map(is_closed, opened))


def test_who_reads_a_store_after_it_was_closed_leaves_no_connection_behind(tmp_path, opened):
    store = open_state(tmp_path, lock_folder=tmp_path)
    store.close()
    assert store.fact("format")
    assert all(map(is_closed, opened))


def test_a_damaged_database_is_not_kept_open(tmp_path, opened):
    (tmp_path / "state.db").write_bytes(b"this is no database, but it is long enough to be looked at" * 100)
    with pytest.raises(StoreError):
        open_state(tmp_path, lock_folder=tmp_path)
    assert opened and all(map(is_closed, opened))


def test_a_copy_of_a_read_only_state_that_is_replaced_while_it_is_read_is_closed(tmp_path, opened, monkeypatch):
    make_site(tmp_path / "site").close()
    monkeypatch.setattr("stormpetrel.store.site.read_only_reason", lambda *_: "it is mounted so")
    monkeypatch.setattr(read_only, "_REST_S", 0.0)
    site = open_site(tmp_path / "site")
    with site.state.transaction():
        (tmp_path / "site" / "state.db").touch()
        assert site.state.fact("format")  # out of a new copy
    site.close()
    assert opened and all(map(is_closed, opened))

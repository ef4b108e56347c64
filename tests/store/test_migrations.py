"""A state store of any earlier format is brought up to date, whole or not at all; one of a newer format is refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from stormpetrel.errors import StoreError, StoreVersionError
from stormpetrel.store import migrations, state
from stormpetrel.store.identity import IDENTITY_FILE, read_identity
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.state import STATE_FORMAT, open_state
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import make_site

TABLES_OF = {  # format -> what there was
    1: ("meta", "ingests", "forgotten"),
    2: ("meta", "ingests", "forgotten", "models"),
    3: ("meta", "ingests", "forgotten", "models", "tokens", "opinions", "views", "audit"),
    4: ("meta", "ingests", "forgotten", "models", "tokens", "opinions", "views", "audit", "outages"),
}


def save(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "model.json").write_text('{"kind": "jobs", "format_version": 1}')


def old_site(folder: Path, version: int) -> Path:
    """A site as an earlier format left it: a forgotten user, a record of an ingest, a model if there was a registry."""
    with make_site(folder) as site:
        site.state.record_ingest("a log", {"read": 1})
        forget(site, "mallory")
        if version >= 2:
            site.models.promote("jobs-submit", site.models.add("jobs-submit", save, {"n_train": 3}).version)
            (site.models.folder_of("jobs-submit", 1) / "entry.json").unlink()
        make_old(site, version)
    for path in (folder / "tables" / "forgotten").rglob("*"):
        if path.is_file():
            path.unlink()
    (folder / "tables" / IDENTITY_FILE).unlink()
    return folder


def make_old(site: Site, version: int) -> None:
    with site.state.transaction() as connection:
        for table in state.ALL_TABLES:
            if table.name not in TABLES_OF[version]:
                table.drop(connection)
        meta = state.meta
        connection.execute(sa.delete(meta).where(meta.c.key.in_(["site_id", "generation"])))
        connection.execute(sa.update(meta).where(meta.c.key == "format").values(value=str(version)))


def facts_of(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return dict(connection.execute("SELECT key, value FROM meta"))


def tables_of(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_last_step_leads_to_the_format_of_this_version():
    assert [step.to for step in migrations.STEPS] == list(range(2, STATE_FORMAT + 1))


@pytest.mark.parametrize("version", TABLES_OF)
def test_a_state_of_any_earlier_format_is_brought_up_to_date(tmp_path, version):
    folder = old_site(tmp_path / "site", version)
    assert tables_of(folder) & {"models", "tokens", "audit", "outages"} == set(TABLES_OF[version]) & {
        "models",
        "tokens",
        "audit",
        "outages",
    }
    with open_site(folder) as site:
        assert site.state.past_ingests()[0]["source"] == "a log"
        assert len(site.state.forgotten_digests()) == 1
        assert site.outages.list() == [] and site.tokens.all() == []
    assert facts_of(folder)["format"] == str(STATE_FORMAT)


@pytest.mark.parametrize("version", TABLES_OF)
def test_the_migration_gives_a_site_an_id_that_state_and_tables_share(tmp_path, version):
    folder = old_site(tmp_path / "site", version)
    with open_site(folder) as site:
        assert site.state.identity() == read_identity(site.tables) is not None


def test_the_migration_leaves_tombstones_among_the_tables(tmp_path):
    with open_site(old_site(tmp_path / "site", 4)) as site:
        assert site.forgotten.digests() == site.state.forgotten_digests() != frozenset()


def test_the_migration_notes_beside_each_model_what_the_registry_knows(tmp_path):
    with open_site(old_site(tmp_path / "site", 4)) as site:
        entry = json.loads((site.models.folder_of("jobs-submit", 1) / "entry.json").read_text())
    assert entry["about"]["n_train"] == 3 and entry["about"]["promoted"]


@pytest.mark.parametrize("version", [1, 3])
def test_a_step_that_fails_leaves_the_state_as_it_was(tmp_path, monkeypatch, version):
    folder = old_site(tmp_path / "site", version)
    before, tables = facts_of(folder), tables_of(folder)

    def die(_migration):
        raise KeyboardInterrupt

    broken = (*migrations.STEPS[:-1], replace(migrations.STEPS[-1], run=die))
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", broken)
        with pytest.raises(KeyboardInterrupt):
            open_site(folder)
    assert (facts_of(folder), tables_of(folder)) == (before, tables)
    open_site(folder).close()
    assert facts_of(folder)["format"] == str(STATE_FORMAT)


def test_a_migration_that_died_after_writing_files_goes_on_with_the_id_it_gave(tmp_path, monkeypatch):
    folder = old_site(tmp_path / "site", 4)

    def die_at_the_end(migration):
        migrations._identify_site(migration)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", (replace(migrations.STEPS[3], run=die_at_the_end),))
        with pytest.raises(KeyboardInterrupt):
            open_site(folder)
    given = read_identity(folder / "tables")
    with open_site(folder) as site:
        assert given is not None and site.state.identity() == given


def test_a_backup_of_an_earlier_format_is_restored_and_brought_up_to_date(tmp_path, monkeypatch):
    folder = old_site(tmp_path / "site", 4)
    with monkeypatch.context() as patched:  # as the version before made it
        patched.setattr(state, "STATE_FORMAT", 4)
        patched.setattr(state, "ALL_TABLES", tuple(table for table in state.ALL_TABLES if table.name in TABLES_OF[4]))
        patched.setattr("stormpetrel.store.site.agree", lambda site: None)
        with open_site(folder) as site:
            backup(site, tmp_path / "b.tar")
    assert facts_of(folder)["format"] == "4"
    with restore(tmp_path / "b.tar", tmp_path / "copy") as copy:
        assert copy.state.identity() == read_identity(copy.tables) is not None
        assert copy.forgotten.digests() == copy.state.forgotten_digests() != frozenset()
    assert facts_of(tmp_path / "copy")["format"] == str(STATE_FORMAT)


def test_tokens_of_an_earlier_format_go_on_working_and_are_then_named_by_user(tmp_path):
    with make_site(tmp_path / "site") as site:
        text = site.tokens.add("grafana", user="kim", scopes=["read"], days=None)
        with site.state.transaction() as connection:  # as format 10 had it
            for statement in (
                "ALTER TABLE tokens RENAME TO now",
                "CREATE TABLE tokens (digest VARCHAR(64) PRIMARY KEY, name VARCHAR(128) NOT NULL UNIQUE, user TEXT NOT NULL, "
                "scopes TEXT NOT NULL, created VARCHAR(40) NOT NULL, expires VARCHAR(40))",
                "INSERT INTO tokens SELECT digest, name, user, scopes, created, expires FROM now",
                "DROP TABLE now",
                "DROP TABLE digests",
                "UPDATE meta SET value = '10' WHERE key = 'format'",
            ):
                connection.execute(sa.text(statement))
    with open_site(tmp_path / "site") as site:
        assert site.tokens.find(text).user == "kim"
        site.tokens.add("grafana", user="lee", scopes=["read"])
    assert "digests" in tables_of(tmp_path / "site")


# --- newer than this version --------------------------------------------------------------------------------------------------


def test_a_state_of_a_newer_format_is_refused_with_one_sentence_and_left_alone(tmp_path):
    make_site(tmp_path / "site").close()
    with closing(sqlite3.connect(tmp_path / "site" / "state.db")) as connection:
        connection.execute(f"UPDATE meta SET value = '{STATE_FORMAT + 1}' WHERE key = 'format'")
        connection.commit()
    before = facts_of(tmp_path / "site")
    with pytest.raises(StoreVersionError, match=r"newer version.*pip install --upgrade"):
        open_site(tmp_path / "site")
    assert facts_of(tmp_path / "site") == before


def test_a_backup_whose_state_is_of_a_newer_format_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    with make_site(tmp_path / "site") as site:
        told = site.state.dump()
        newer = [{**row, "value": str(STATE_FORMAT + 1)} if row["key"] == "format" else row for row in told["meta"]]
        monkeypatch.setattr(site.state, "dump", lambda: {**told, "meta": newer})
        backup(site, tmp_path / "b.tar")
    with pytest.raises(StoreVersionError, match="newer version"):
        restore(tmp_path / "b.tar", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_tables_whose_identity_is_of_a_newer_format_are_refused(tmp_path):
    make_site(tmp_path / "site").close()
    path = tmp_path / "site" / "tables" / IDENTITY_FILE
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StoreVersionError, match=r"newer version.*pip install --upgrade"):
        open_site(tmp_path / "site")


def test_an_identity_that_cannot_be_read_is_one_sentence(tmp_path):
    make_site(tmp_path / "site").close()
    (tmp_path / "site" / "tables" / IDENTITY_FILE).write_text('{"format": 1}')
    with pytest.raises(StoreError, match=r"site\.json cannot be read"):
        open_site(tmp_path / "site")


def test_a_state_without_a_site_is_brought_up_to_date_as_well(tmp_path):
    store = open_state(tmp_path, lock_folder=tmp_path)
    with store.transaction() as connection:
        connection.execute(sa.delete(state.meta).where(state.meta.c.key.in_(["site_id", "generation"])))
        connection.execute(sa.update(state.meta).where(state.meta.c.key == "format").values(value="4"))
    store.close()
    store = open_state(tmp_path, lock_folder=tmp_path)
    assert store.identity() is not None
    store.close()

"""A site that can be read and not be written."""

import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from stormpetrel.errors import ReadOnlySiteError, StateLostError, StoreError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store import read_only
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.backup import backup, restore
from tests.builders import make_jobs, make_site, write_sacct
from tests.parts import mounts, recorded_site


@pytest.fixture
def site_folder(tmp_path):
    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(20))))
        site.views.save("ada", "mine", "/jobs?user=ada")
    return tmp_path / "site"


@pytest.fixture
def refused(monkeypatch):
    """A site that the system does not let us write, wherever the tests run: root may write everything but a read-only mount."""
    monkeypatch.setattr(read_only.os, "access", lambda path, mode, **_: not mode & os.W_OK)


@pytest.fixture
def mounted(site_folder, tmp_path):
    with mounts.read_only(site_folder, tmp_path / "mounted") as folder:
        yield folder


@pytest.mark.root
def test_a_read_only_mount_can_be_read(mounted):
    with open_site(mounted) as site:
        assert site.read_only == f"{mounted} is mounted read-only"
        assert site.jobs.read_jobs().collect().height == 20
        assert [view.name for view in site.views.list("ada")] == ["mine"]


@pytest.mark.root
def test_a_read_only_mount_shows_what_lies_in_the_write_ahead_log_alone(site_folder, mounted):
    with sqlite3.connect(site_folder / "state.db") as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("insert into views values ('ada', 'late', '/jobs')")
        connection.commit()
        assert (site_folder / "state.db-wal").stat().st_size > 0
        with open_site(mounted) as site:
            assert [view.name for view in site.views.list("ada")] == ["late", "mine"]
    connection.close()


@pytest.mark.root
def test_every_write_to_a_read_only_mount_is_refused_with_one_sentence(mounted, tmp_path):
    with open_site(mounted) as site:
        for write in (
            lambda: ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(3, first_id=9000)))),
            lambda: site.views.save("ada", "new", "/jobs"),
            lambda: site.tokens.add("t", user="ada", scopes=["read"]),
            lambda: site.opinions.add("ada", "1", "Ask for less.", useful=True),
            lambda: site.models.prune(),
            lambda: site.state.sole("watch").__enter__(),
            site.require_writable,
        ):
            with pytest.raises(ReadOnlySiteError, match=f"The site {mounted} is read-only: {mounted} is mounted read-only"):
                write()


@pytest.mark.root
def test_a_read_only_site_can_be_backed_up_elsewhere(mounted, tmp_path):
    with open_site(mounted) as site:
        backup(site, tmp_path / "site.tar")
    with restore(tmp_path / "site.tar", tmp_path / "again") as again:
        assert again.jobs.read_jobs().collect().height == 20
        assert [view.name for view in again.views.list("ada")] == ["mine"]


def test_a_site_of_somebody_else_says_whose_it_is(site_folder, refused):
    with open_site(site_folder) as site:
        assert "belongs to" in site.read_only and "may not write there" in site.read_only
        assert site.jobs.read_jobs().collect().height == 20
        with pytest.raises(ReadOnlySiteError):
            site.views.save("ada", "new", "/jobs")


def test_opening_a_read_only_site_changes_no_file_of_it(site_folder, refused):
    def files():
        return {path: path.stat().st_mtime_ns for path in sorted(site_folder.rglob("*"))}

    before = files()
    with open_site(site_folder) as site:
        site.jobs.read_jobs().collect()
        site.models.trainings()
    assert files() == before


def test_what_is_written_to_a_read_only_site_elsewhere_is_seen(site_folder, refused, monkeypatch):
    monkeypatch.setattr(read_only, "_REST_S", 0.0)
    with open_site(site_folder) as site:
        assert len(site.views.list("ada")) == 1
        connection = sqlite3.connect(site_folder / "state.db")
        connection.execute("insert into views values ('ada', 'late', '/jobs')")
        connection.commit()
        assert len(site.views.list("ada")) == 2
        connection.close()


def test_a_copy_that_a_writer_disturbs_is_made_again(site_folder, refused, monkeypatch):
    disturbed = []
    copied = shutil.copyfileobj

    def copy(*arguments):
        copied(*arguments)
        if len(disturbed) < 2:
            disturbed.append(1)
            os.utime(site_folder / "state.db", ns=(time.time_ns(), time.time_ns()))

    monkeypatch.setattr(read_only.shutil, "copyfileobj", copy)
    with open_site(site_folder) as site:
        assert len(disturbed) == 2
        assert len(site.views.list("ada")) == 1


def test_the_copies_are_gone_when_the_site_is_closed(site_folder, refused, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(read_only.tempfile, "tempdir", str(tmp_path / "temporary"))
    with open_site(site_folder) as site:
        assert len(site.views.list("ada")) == 1
        assert any((tmp_path / "temporary").iterdir())
    assert not any((tmp_path / "temporary").iterdir())


def test_a_read_only_site_of_an_older_release_lacks_tables_and_is_read_all_the_same(site_folder, refused):
    shutil.rmtree(site_folder / "tables" / "event_scores")
    with open_site(site_folder) as site:
        assert site.event_scores.read().collect().is_empty()
        assert site.event_scores.table.version() == 0
        assert site.predictions.horizon() is None


def test_an_audit_entry_that_cannot_be_kept_is_told_in_the_log_and_stops_nobody(site_folder, refused, caplog):
    with open_site(site_folder) as site:
        site.audit.record("ada", "promoted")
        site.audit.count("ada", "logged in", {"token": "a"})
        assert site.audit.recent() == []
    assert "not in the audit trail: 'promoted'" in caplog.text and "read-only" in caplog.text
    assert "not in the audit trail: 'logged in'" in caplog.text


def test_a_state_that_its_reader_may_not_read_is_one_sentence(site_folder, refused, monkeypatch):
    opened = Path.open

    def open_unless_state(path, *arguments, **named):
        if path.name == "state.db" and path.parent == site_folder:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", open_unless_state)
    with pytest.raises(StoreError, match=r"state\.db cannot be read by"):
        open_site(site_folder)


@pytest.mark.parametrize("name", recorded_site.names())
def test_a_site_of_an_earlier_release_is_read_and_stays_as_it_was(name, tmp_path, refused):
    """Its state is brought up to date in the copy alone; the same site opened to be written is migrated as ever."""
    folder = recorded_site.unpack_site(name, tmp_path)
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    with open_site(folder) as site:
        assert site.read_only and site.jobs.read_jobs().collect().height > 0
        assert site.models.current_training("jobs") is not None
        backup(site, tmp_path / "b.tar")
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_a_read_only_site_that_has_lost_its_state_says_so(site_folder, refused):
    (site_folder / "state.db").unlink()
    with pytest.raises(StateLostError, match=f"{site_folder / 'state.db'} is missing"):
        open_site(site_folder)
    assert not (site_folder / "state.db").exists()

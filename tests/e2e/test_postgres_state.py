"""A site whose state lies in a real PostgreSQL: several writers, moves between databases, and a server that goes away.

The command line is called in this process; processes of their own are writers that die or lose their server, and those that
the one in this process meets.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import pytest
import sqlalchemy as sa

from stormpetrel.config import load_settings
from stormpetrel.errors import ReadOnlySiteError, StateAwayError, StoreBusyError
from stormpetrel.records.actions.acts import ActState
from stormpetrel.records.jobs import KEY
from stormpetrel.store import migrations, read_only
from stormpetrel.store.actions import Caps
from stormpetrel.store.identity import read_identity
from stormpetrel.store.site import open_site
from stormpetrel.store.state import STATE_FORMAT
from stormpetrel.store.state_tables import METADATA
from stormpetrel.store.upkeep.repair import repair
from tests.builders import T0, make_jobs, make_site, table_of, write_sacct
from tests.parts import wait_until
from tests.parts.command_line import change_settings, complaint_of, report_of, run, run_here, start
from tests.store.test_actions import act

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("postgres")]

PASSWORD = "open-sesame"


@pytest.fixture
def site(postgres, tmp_path):
    """A new site with an empty database of its own."""
    folder = tmp_path / "site"
    make_site(folder, store={"state_url": postgres.new_database()}).close()
    return folder


@pytest.fixture
def log(tmp_path):
    return write_sacct(tmp_path / "jobs.txt", make_jobs(50, failed=5))


def database_of(folder):
    return load_settings(folder).store.state_url.rsplit("/", 1)[1]


def ingest(folder, *files):
    return report_of(run_here(folder, "ingest", "jobs", *map(str, files), "--json"))


def rows_of(folder):
    with open_site(folder) as opened:
        return table_of(opened)


def past_of(folder):
    with open_site(folder) as opened:
        return opened.state.past_ingests()


def test_ingest_works_and_is_remembered_by_the_server(postgres, site, log):
    assert report_of(run(site, "ingest", "jobs", str(log), "--json"))["kept"] == 50
    assert ingest(site, log)["known"] == 50
    assert rows_of(site).height == 50
    assert postgres.sql("SELECT count(*) FROM ingests", database=database_of(site)) == "2"
    assert not list(site.glob("*.db*"))


def test_ingests_at_once_all_complete_and_no_job_is_there_twice(postgres, site, tmp_path):
    jobs = make_jobs(800)
    # Each file overlaps with the next by half, so that the writers meet over the same jobs.
    files = [write_sacct(tmp_path / f"{n}.txt", jobs[200 * n : 200 * n + 400]) for n in range(3)]
    reports = all_at_once(postgres, site, files)
    rows = rows_of(site)
    assert rows.height == rows.select(KEY).n_unique() == 800
    assert sum(report["kept"] for report in reports) == 800 and sum(report["known"] for report in reports) == 400
    assert len(past_of(site)) == 3


def test_two_ingests_of_the_same_file_at_once_keep_each_job_once(postgres, site, log):
    reports = all_at_once(postgres, site, [log, log])
    assert rows_of(site).height == 50
    assert sum(report["kept"] for report in reports) == 50


def all_at_once(postgres, folder, files):
    """Ingest each file in a process of its own, but the first in this one, once one of the others has come; their reports."""
    here, *others = files
    writers = [start(folder, "ingest", "jobs", str(file), "--json") for file in others]
    wait_until(lambda: visitors(postgres, folder) > 0, "another writer has opened the site", limit_s=60)
    report = ingest(folder, here)
    ended = [(writer, *writer.communicate(timeout=120)) for writer in writers]
    return [report, *(report_of(subprocess.CompletedProcess((), one.returncode, out, errors)) for one, out, errors in ended)]


def visitors(postgres, folder):
    """How many connections the database of a site has, or has had since it was made: a writer may come and go between looks."""
    sessions = f"SELECT sessions FROM pg_stat_database WHERE datname = '{database_of(folder)}'"
    return int(postgres.sql(sessions)) - 1  # `make_site` was the first


@pytest.mark.parametrize("moment", ["before there are tables", "before the format is written"])
def test_two_first_visitors_of_an_empty_database_both_get_in(postgres, tmp_path, moment):
    from stormpetrel.store import state

    url = postgres.new_database()
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    if moment == "before the format is written":
        METADATA.create_all(engine)
    try:
        with ThreadPoolExecutor() as pool, engine.connect() as first:
            # The first visitor, stopped in the middle of its transaction.
            METADATA.create_all(first)
            first.execute(sa.insert(state.meta), [{"key": "format", "value": str(STATE_FORMAT)}, {"key": "owner", "value": ""}])
            second = pool.submit(lambda: state.open_state(tmp_path, url=url, lock_folder=tmp_path).close())
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: postgres.sql(waiting) != "0" or second.done(), "the second visitor waits", limit_s=30)
            first.commit()
        second.result(timeout=60)
    finally:
        engine.dispose()


HOLD_LOCK = """
import sys
from pathlib import Path
from stormpetrel.store.site import open_site
with open_site(Path(sys.argv[1])) as site, site.state.writer_lock():
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_lock_of_a_killed_writer_is_free(postgres, site, log):
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", HOLD_LOCK, str(site)]
    with ThreadPoolExecutor() as pool, subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        waiting = pool.submit(ingest, site, log)
        blocked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        try:
            wait_until(lambda: postgres.sql(blocked) == "1", "the ingest waits for the lock", limit_s=30)
        finally:
            holder.kill()
    assert waiting.result(timeout=60)["kept"] == 50


def test_the_lock_of_a_watch_is_taken_again_after_a_restart_of_the_server(postgres, site):
    with open_site(site) as opened, open_site(site) as other, opened.state.sole("watch") as stay_sole:
        postgres.stop()
        try:
            with pytest.raises(StateAwayError, match="did not answer"):
                stay_sole()
        finally:
            postgres.start()
        stay_sole()
        with pytest.raises(StoreBusyError, match="Another watch"), other.state.sole("watch"):
            raise AssertionError("two watches on one site")


def test_a_watch_that_lost_its_lock_to_another_is_told(postgres, site):
    with open_site(site) as opened, open_site(site) as other, opened.state.sole("watch") as stay_sole:
        postgres.stop()
        postgres.start()
        with other.state.sole("watch"), pytest.raises(StoreBusyError, match="Another watch"):
            stay_sole()
        stay_sole()  # it is free again


def test_forgotten_user_is_gone_and_does_not_come_back(postgres, site, log):
    ingest(site, log)
    done = report_of(run_here(site, "store", "forget", "user1", "--yes", "--json"))
    assert done == {"deleted": 10, "future": "refused"}
    assert ingest(site, log)["quarantined"] == {"forgotten_user": 10}
    assert rows_of(site).filter(pl.col("user") == "user1").is_empty()
    assert "user1" not in postgres.sql("SELECT * FROM ingests, forgotten, meta", database=database_of(site))


def test_a_site_whose_folder_is_read_only_is_read_and_nothing_is_written_to_the_server(postgres, site, log, monkeypatch):
    ingest(site, log)
    monkeypatch.setattr(read_only.os, "access", lambda path, mode, **_: not mode & os.W_OK)
    with open_site(site) as opened:
        assert opened.read_only and len(opened.state.past_ingests()) == 1
        for write in (lambda: opened.views.save("ada", "mine", "/jobs"), opened.models.prune):
            with pytest.raises(ReadOnlySiteError, match="is read-only"):
                write()
    assert postgres.sql("SELECT count(*) FROM views", database=database_of(site)) == "0"


@pytest.mark.parametrize("way", ["SQLite to PostgreSQL", "PostgreSQL to SQLite", "PostgreSQL to PostgreSQL"])
def test_backup_is_restored_into_either_database(postgres, tmp_path, log, way):
    before, after = (postgres.new_database() if word == "PostgreSQL" else "" for word in way.split(" to "))
    old, new, archive = tmp_path / "old", tmp_path / "new", tmp_path / "site.tar"
    make_site(old, store={"state_url": before}).close()
    ingest(old, log)
    report_of(run_here(old, "store", "forget", "user1", "--yes", "--json"))
    report_of(run_here(old, "store", "backup", str(archive), "--json"))
    assert report_of(run_here(new, "store", "restore", str(archive), "--state-url", after, "--json"))["jobs"] == 40
    assert rows_of(new).equals(rows_of(old))
    assert past_of(new) == past_of(old)
    # Life goes on: the next ingest finds what is known, refuses who is forgotten, and is remembered beside the old ones.
    report = ingest(new, log)
    assert (report["known"], report["quarantined"]) == (40, {"forgotten_user": 10})
    assert len(past_of(new)) == len(past_of(old)) + 1


def test_restore_leaves_the_state_of_the_living_site_alone(site, log, tmp_path):
    archive = tmp_path / "site.tar"
    ingest(site, log)
    report_of(run_here(site, "store", "backup", str(archive), "--json"))
    ingest(site, log)
    done = run_here(tmp_path / "taken", "store", "restore", str(archive), "--state-url", load_settings(site).store.state_url)
    assert done.returncode == 2 and "in use" in done.stderr and not (tmp_path / "taken").exists()
    report_of(run_here(tmp_path / "copy", "store", "restore", str(archive), "--json"))
    assert (tmp_path / "copy" / "state.db").exists() and len(past_of(tmp_path / "copy")) == 1
    assert len(past_of(site)) == 2


def test_database_of_another_site_is_refused(site, log, tmp_path):
    url = load_settings(site).store.state_url
    other = tmp_path / "other"
    make_site(other).close()
    change_settings(other, store={"state_url": url})
    assert "belongs to another site" in complaint_of(run_here(other, "ingest", "jobs", str(log)))


def with_password(folder, **changes):
    """Put a password, and whatever else, into a site's state_url."""
    url = sa.make_url(load_settings(folder).store.state_url).set(password=PASSWORD, **changes)
    change_settings(folder, store={"state_url": url.render_as_string(hide_password=False)})


WRONG_ADDRESS = {
    "nobody listens": {"port": 1},
    "there is no such database": {"database": "nowhere"},
    "there is no such user": {"username": "nobody"},
    "there is no such host": {"host": "no-such-host.invalid"},
    "there is no such option": {"query": {"colour": "blue"}},
}


@pytest.mark.parametrize("problem", WRONG_ADDRESS)
def test_server_that_cannot_be_reached_is_one_clear_line_without_the_password(site, log, problem):
    with_password(site, **WRONG_ADDRESS[problem])
    line = complaint_of(run_here(site, "ingest", "jobs", str(log)))
    assert "store.state_url" in line and PASSWORD not in line


@pytest.mark.parametrize("address", [f"postgresql://petrel:{PASSWORD}@127.0.0.1:port/site", "postgresql://", "mysql://host/site"])
def test_address_that_is_none_is_one_clear_line_without_the_password(site, log, address):
    change_settings(site, store={"state_url": address})
    line = complaint_of(run_here(site, "ingest", "jobs", str(log)))
    assert "store.state_url" in line and PASSWORD not in line


def test_user_who_may_not_create_tables_is_told_about_the_database(postgres, tmp_path):
    # What PostgreSQL 15 gives to a plain new user: a connection, and no right to create anything.
    url = postgres.new_database()
    postgres.sql("DROP ROLE IF EXISTS plain")
    postgres.sql("CREATE ROLE plain LOGIN")
    folder = tmp_path / "site"
    make_site(folder).close()
    change_settings(folder, store={"state_url": url.replace("petrel@", f"plain:{PASSWORD}@")})
    line = complaint_of(run_here(folder, "doctor", "--repair"))
    assert "permission denied" in line and "folder" not in line and PASSWORD not in line


def test_server_that_stops_during_an_ingest_is_one_clear_line_and_a_second_run_goes_on(postgres, site, log):
    database, text = database_of(site), log.read_text()
    with_password(site)
    writer = start(site, "ingest", "jobs", "-", "--format", "sacct")
    try:
        connected = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
        wait_until(lambda: postgres.sql(connected) != "0", "the ingest has opened the site", limit_s=30)
        postgres.stop()
        out, errors = writer.communicate(text, timeout=60)
    finally:
        writer.kill()
        postgres.start()
    done = subprocess.CompletedProcess((), writer.returncode, out, errors)
    assert PASSWORD not in complaint_of(done)
    assert ingest(site, log)["read"] == 50
    assert rows_of(site).height == 50


def test_state_of_a_newer_version_is_refused_and_left_alone(postgres, site, log):
    database = database_of(site)
    postgres.sql(f"UPDATE meta SET value = '{STATE_FORMAT + 1}' WHERE key = 'format'", database=database)
    line = complaint_of(run_here(site, "ingest", "jobs", str(log)))
    assert "newer version" in line and "upgrade" in line
    assert postgres.sql("SELECT value FROM meta WHERE key = 'format'", database=database) == str(STATE_FORMAT + 1)
    assert postgres.sql("SELECT count(*) FROM ingests", database=database) == "0"


def make_old(postgres, folder, version):
    """Turn the state of a site back to an earlier format; and its tables, which knew of no state then."""
    database = database_of(folder)
    later = {1: "models, tokens, opinions, views, audit, outages", 4: ""}[version]
    if later:
        postgres.sql(f"DROP TABLE {later}", database=database)
    postgres.sql(
        f"DELETE FROM meta WHERE key IN ('site_id', 'generation'); UPDATE meta SET value = '{version}' WHERE key = 'format'",
        database=database,
    )
    (folder / "tables" / "site.json").unlink()
    shutil.rmtree(folder / "tables" / "forgotten")


@pytest.mark.parametrize("version", [1, 4])
def test_state_of_an_earlier_format_is_brought_up_to_date(postgres, site, log, version):
    ingest(site, log)
    report_of(run_here(site, "store", "forget", "user1", "--yes", "--json"))
    make_old(postgres, site, version)
    with open_site(site) as opened:
        assert opened.state.identity() == read_identity(opened.tables) is not None
        assert opened.forgotten.digests() == opened.state.forgotten_digests() != frozenset()
        assert len(opened.state.past_ingests()) == 1 and opened.models.versions() == []
    assert postgres.sql("SELECT value FROM meta WHERE key = 'format'", database=database_of(site)) == str(STATE_FORMAT)


def test_a_step_that_fails_leaves_the_database_as_it_was(postgres, site, monkeypatch):
    make_old(postgres, site, 1)
    tables = "SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'"
    before = postgres.sql(tables, database=database_of(site))

    def die(_migration):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", (*migrations.STEPS[:-1], replace(migrations.STEPS[-1], run=die)))
        with pytest.raises(KeyboardInterrupt):
            open_site(site)
    assert postgres.sql(tables, database=database_of(site)) == before
    assert postgres.sql("SELECT value FROM meta WHERE key = 'format'", database=database_of(site)) == "1"
    open_site(site).close()


def test_a_new_database_beside_old_tables_is_refused_and_rebuilt_by_a_repair(postgres, site, log):
    ingest(site, log)
    report_of(run_here(site, "store", "forget", "user1", "--yes", "--json"))
    change_settings(site, store={"state_url": postgres.new_database()})
    assert "doctor --repair" in complaint_of(run_here(site, "ingest", "jobs", str(log)))
    assert repair(site, problem_of=lambda _site, _training: None, user="ada").rebuilt
    assert ingest(site, log)["quarantined"] == {"forgotten_user": 10}


# Acting


def test_the_cap_holds_over_several_hosts_that_want_to_act_at_once(site):
    def want(number):
        with open_site(site) as own:
            return own.actions.intend(act(f"act{number}"), Caps(3, 100), T0)

    with ThreadPoolExecutor(6) as pool:
        states = list(pool.map(want, range(8)))
    assert states.count(ActState.INTENDED) == 3 and states.count(ActState.HELD_BACK) == 5

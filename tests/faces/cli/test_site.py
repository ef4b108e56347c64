"""The command line among other people's files: whose site is obeyed, what SQL can read, what others can read of ours."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from contextlib import contextmanager

import pytest

from stormpetrel.answers.site.administration import refuse_outside
from stormpetrel.errors import UsageError
from stormpetrel.faces.report.page import write_page
from tests.builders import make_jobs, make_site, write_sacct
from tests.faces.cli.test_main import complaint, output, run, run_process
from tests.store.upkeep.test_upkeep import take


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with make_site(folder / "site") as opened:
        take(opened, write_sacct(folder / "log", make_jobs(5)))
    return folder / "site"


@contextmanager
def open_to(path, mode):
    """A folder, and those of pytest above, with another mode for a while."""
    before = {at: at.stat().st_mode for at in (path, *path.parents) if not at.stat().st_mode & 0o001}
    for at in before:
        at.chmod(0o755)
    path.chmod(mode)
    try:
        yield
    finally:
        for at, old in before.items():
            at.chmod(stat.S_IMODE(old))


# --- whose site is obeyed -----------------------------------------------------------------------------------------------------


def test_a_site_in_the_current_folder_that_others_can_write_is_not_obeyed(site):
    with open_to(site, 0o777):
        line = complaint("sql", "select 1", cwd=site, code=2, by=run_process)
        assert "everybody can write to" in line and f"--site {site}" in line
        assert "chmod o-w" in complaint("--site", site, "sql", "select 1")
    assert output("sql", "select count(*) n from jobs", "--json", cwd=site).strip() == '[{"n": 5}]'


def test_a_site_that_a_group_can_write_is_obeyed_only_where_it_is_named(site):
    with open_to(site, 0o775):
        assert "a group can write to" in complaint("sql", "select 1", cwd=site, code=2)
        assert "5" in output("--site", site, "sql", "select count(*) n from jobs")
        assert "5" in output("sql", "select count(*) n from jobs", cwd=site, STORMPETREL_SITE=str(site))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_named_site_of_another_user_is_opened_with_a_note_and_one_that_was_found_is_refused(site, tmp_path):
    shutil.copytree(site, tmp_path / "theirs")
    for path in (tmp_path / "theirs", tmp_path / "theirs" / "site.toml"):
        os.chown(path, 65534, 65534)
    assert "belongs to nobody" in complaint("sql", "select 1", cwd=tmp_path / "theirs", code=2)
    done = run("--site", tmp_path / "theirs", "sql", "select count(*) n from jobs")
    assert (
        done.returncode == 0 and "belongs to nobody, whose site.toml decides what is run with your rights" in done.stderr.decode()
    )


def test_a_demo_that_somebody_else_has_put_there_is_not_started(site, tmp_path):
    shutil.copytree(site, tmp_path / "stormpetrel-demo")
    with open_to(tmp_path / "stormpetrel-demo", 0o777):
        assert "is not obeyed" in complaint("demo", "--no-serve", cwd=tmp_path, code=2)


# --- what SQL can read --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{file}')", "READ_CSV('{file}')", "\"read_csv\"('{file}')", "`read_csv`('{file}')", "read_csv/**/('{file}')",
        "read_parquet('{file}')", "read_ipc('{file}')", "read_json('{file}')", "read_ndjson('{file}')",
    ],
)  # fmt: skip
def test_a_query_that_names_a_function_that_reads_files_is_refused(source):
    query = f"with t as (select * from {source.format(file='/etc/passwd')}) select * from t"
    with pytest.raises(UsageError, match="--files"):
        refuse_outside(query, files=False)


def test_a_column_that_only_looks_like_such_a_function_can_be_asked_for():
    refuse_outside("select disk_read_bytes, sum(disk_write_bytes) from jobs", files=False)


def test_files_are_read_where_it_is_asked_for_and_not_otherwise(site, tmp_path):
    (tmp_path / "secret.csv").write_text("word\nhidden\n")
    query = f"select * from read_csv('{tmp_path / 'secret.csv'}')"
    assert "hidden" not in complaint("--site", site, "sql", query, code=2)
    assert "hidden" in output("--site", site, "sql", query, "--files")
    assert "does not work" in complaint("--site", site, "sql", "select * from read_csv('/nowhere')", "--files", code=2)


def test_no_query_reaches_another_machine(site):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x.csv"
        for words in ((), ("--files",)):
            complaint("--site", site, "sql", f"select * from read_csv('{address}')", *words, code=2)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("query", ["copy jobs to 'x.csv'", "select * into t from jobs"])
def test_no_query_writes_anything(site, tmp_path, query):
    complaint("--site", site, "sql", query, code=2, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- what others can read of ours -----------------------------------------------------------------------------------------------


def loose(folder):
    """What others can read below a folder."""
    return sorted(path.name for path in folder.rglob("*") if path.stat().st_mode & 0o077)


def test_everything_that_a_command_writes_is_for_us_alone_whatever_the_umask(site, tmp_path):
    old = os.umask(0)
    try:
        (tmp_path / "out").mkdir()
        output("init", tmp_path / "out" / "site", "--time-zone", "UTC")
        output("--site", tmp_path / "out" / "site", "ingest", "jobs", site.parent / "log", by=run_process)
        output("--site", tmp_path / "out" / "site", "store", "backup", tmp_path / "out" / "b.tar")
    finally:
        os.umask(old)
    assert loose(tmp_path / "out") == []


def test_a_state_outside_of_the_site_is_for_us_alone_while_it_is_open(tmp_path):
    (tmp_path / "local").mkdir(mode=0o755)
    with make_site(tmp_path / "site", store={"state_dir": str(tmp_path / "local")}) as opened:
        take(opened, write_sacct(tmp_path / "log", make_jobs(1)))
        assert {path.name for path in (tmp_path / "local").glob("state.db*")} == {"state.db", "state.db-wal", "state.db-shm"}
        assert loose(tmp_path / "local") == []


def test_a_state_that_others_could_read_is_tightened_when_it_is_opened(site):
    (site / "state.db").chmod(0o644)
    (site / "site.key").chmod(0o640)
    output("--site", site, "sql", "select 1")
    assert stat.S_IMODE((site / "state.db").stat().st_mode) == stat.S_IMODE((site / "site.key").stat().st_mode) == 0o600


def test_a_state_that_is_a_link_is_refused(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "state.db").rename(tmp_path / "elsewhere.db")
    (tmp_path / "site" / "state.db").symlink_to(tmp_path / "elsewhere.db")
    assert "is a link" in complaint("--site", tmp_path / "site", "sql", "select 1")


def test_a_planted_lock_is_not_followed(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "site" / ".lock").unlink(missing_ok=True)
    (tmp_path / "site" / ".lock").symlink_to(tmp_path / "victim")
    complaint("--site", tmp_path / "site", "ingest", "jobs", site.parent / "log")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_report_is_for_us_alone_and_no_link_is_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "report.html").symlink_to("victim")
    write_page(tmp_path / "report.html", "jobs of ada", [])
    assert (tmp_path / "victim").read_text() == "precious"
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o600


# --- a restore says what to look at -------------------------------------------------------------------------------------------


def test_a_restore_lists_what_the_settings_reach(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    text = (tmp_path / "site" / "site.toml").read_text()
    (tmp_path / "site" / "site.toml").write_text(text.replace('sacct = "sacct"', 'sacct = "/home/mallory/sacct"'))
    output("--site", tmp_path / "site", "store", "backup", tmp_path / "b.tar")
    told = output("--site", tmp_path / "copy", "store", "restore", tmp_path / "b.tar")
    assert "5 jobs" in told and "command  slurm.sacct = /home/mallory/sacct" in told
    again = json.loads(output("--site", tmp_path / "again", "store", "restore", tmp_path / "b.tar", "--json"))
    assert again["outside"] == [{"kind": "command", "name": "slurm.sacct", "value": "/home/mallory/sacct"}]

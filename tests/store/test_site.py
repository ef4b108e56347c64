"""Sites that cannot be opened or written: one clear line each, and everything as it was."""

import json
import os
import sqlite3
import subprocess
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import Settings, parse_settings, settings_as_toml
from stormpetrel.errors import (
    NetworkFilesystemError,
    SettingsError,
    StoreBusyError,
    StoreNotWritableError,
    StoreVersionError,
    StormpetrelError,
)
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.filesystem import file_lock, filesystem_type, is_network
from stormpetrel.store.site import create_site, open_site
from stormpetrel.store.state import STATE_FORMAT, open_state
from tests.builders import make_jobs, make_site, table_of, write_sacct

MOUNTS = """22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:35 / /home rw,relatime shared:1 - nfs4 server:/home rw,vers=4.2
41 22 0:36 / /scratch rw - lustre mgs@tcp:/scratch rw
42 22 0:37 / /home/with\\040space rw - ext4 /dev/sdb1 rw
43 22 0:38 / /gpfs rw - gpfs gpfs0 rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib", "ext4", False),
        ("/home/ada/site", "nfs4", True),
        ("/homestead", "ext4", False),
        ("/scratch", "lustre", True),
        ("/gpfs/x", "gpfs", True),
        ("/home/with space/x", "ext4", False),
    ],
)
def test_network_file_systems_are_recognised(path, kind, network):
    assert filesystem_type(Path(path), MOUNTS) == kind
    assert is_network(kind) is network


def test_sqlite_on_a_network_file_system_is_refused_before_anything_is_written(tmp_path):
    mounts = MOUNTS + f"50 22 0:40 / {tmp_path.resolve()} rw - nfs4 server:/x rw\n"
    with pytest.raises(NetworkFilesystemError, match="nfs4") as raised:
        open_state(tmp_path / "site", lock_folder=tmp_path / "site", mountinfo=mounts)
    assert "state_dir" in raised.value.hint and "state_url" in raised.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_state_may_lie_elsewhere_than_the_site(tmp_path):
    with make_site(tmp_path / "site", store={"state_dir": str(tmp_path / "local")}) as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(3))))
    assert (tmp_path / "local" / "state.db").exists()
    assert not (tmp_path / "site" / "state.db").exists()


def test_a_site_is_private(tmp_path):
    make_site(tmp_path / "site").close()
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "site" / "site.key").stat().st_mode & 0o777 == 0o600


def test_a_site_is_not_made_twice_or_over_something_else(tmp_path):
    make_site(tmp_path / "site").close()
    with pytest.raises(SettingsError, match="is a site already"):
        create_site(tmp_path / "site")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(SettingsError, match="not an empty folder"):
        create_site(tmp_path / "other")


def test_a_folder_that_is_no_site_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsError, match=r"is not a site.*stormpetrel init"):
        open_site(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[site]\ntimezone = 'UTC'\n", "unknown key 'site.timezone'. Did you mean 'time_zone'"),
        ("[store]\nkeep_days = 'long'\n", "'store.keep_days'"),
        ("[store]\nkeep_days = -1\n", "'store.keep_days'"),
        ("[site]\ntime_zone = 'Europe/Berln'\n", "did you mean 'Europe/Berlin'"),
        ("[jobs]\nfailure_states = ['FAILD']\n", "did you mean 'FAILED'"),
        ("[strore]\n", "Did you mean 'store'"),
        ("site = 3\n", "'site'"),
        ("[site\n", "not valid TOML"),
        ("[slurm]\nchunk_days = 0.0\n", "'slurm.chunk_days'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(text, says):
    with pytest.raises(SettingsError) as raised:
        parse_settings(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_settings_that_are_written_read_back():
    settings = Settings.model_validate(
        {"site": {"name": 'the "big"\\ one\n', "time_zone": "Europe/Oslo"}, "slurm": {"clusters": ["a", "b"]}}
    )
    assert parse_settings(settings_as_toml(settings)) == settings


def test_a_table_of_a_newer_version_is_left_alone(tmp_path):
    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(3))))
        log = site.jobs.table.path / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text().replace('\\"stormpetrel_format\\": 1', '\\"stormpetrel_format\\": 7'))
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "site" / "tables").rglob("*"))
    with open_site(tmp_path / "site") as site, pytest.raises(StoreVersionError, match=r"newer version.*pip install --upgrade"):
        ingest_jobs(site, SacctText(tmp_path / "a"))
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "site" / "tables").rglob("*")) == before


def test_a_table_whose_protocol_is_newer_is_left_alone(tmp_path):
    make_site(tmp_path / "site").close()
    log = tmp_path / "site" / "tables" / "jobs" / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 99, "minWriterVersion": 99}
    log.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    with open_site(tmp_path / "site") as site, pytest.raises(StormpetrelError) as raised:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(3))))
    assert isinstance(raised.value, StoreVersionError)


def test_a_state_store_of_a_newer_version_is_refused(tmp_path):
    make_site(tmp_path / "site").close()
    connection = sqlite3.connect(tmp_path / "site" / "state.db")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(STATE_FORMAT + 1),))
    connection.commit()
    connection.close()
    with pytest.raises(StoreVersionError, match="newer version"):
        open_site(tmp_path / "site")


def test_a_lock_that_is_held_names_its_holder(tmp_path):
    with (
        file_lock(tmp_path / ".lock"),
        pytest.raises(StoreBusyError, match=f"pid {os.getpid()}"),
        file_lock(tmp_path / ".lock", wait_s=0.1),
    ):
        pass


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of two megabytes."""
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "CI must be able to mount file systems"
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_a_full_disk_is_one_sentence_and_the_store_is_as_it_was(tmp_path, small_disk):
    with make_site(small_disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(100))))
        before = table_of(site)
        (small_disk / "ballast").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - 40_000))
        with pytest.raises(StoreNotWritableError, match=r"the disk tmpfs at .* is full"):
            ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(50_000, first_id=10_000))))
        assert table_of(site).equals(before)
        (small_disk / "ballast").unlink()
        report = ingest_jobs(site, SacctText(write_sacct(tmp_path / "c", make_jobs(500, first_id=10_000))))
        assert report.kept == 500


@pytest.mark.root
def test_a_read_only_folder_is_one_sentence_and_can_still_be_read(tmp_path, small_disk):
    with make_site(small_disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(100))))
        tables = str(site.jobs.table.path)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreNotWritableError, match="read-only"), open_site(small_disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(10, first_id=5000))))
    with pytest.raises(StoreNotWritableError, match="read-only"):
        create_site(small_disk / "second")
    assert pl.read_delta(tables).height == 100


def test_duckdb_reads_the_table_as_it_is(tmp_path):
    import duckdb

    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(20, failed=4))))
        files = [str(path) for path in site.jobs.table.path.rglob("*.parquet")]
    rows = (
        duckdb.connect().execute("select state, count(*) from read_parquet($1) group by state order by state", [files]).fetchall()
    )
    assert rows == [("COMPLETED", 16), ("FAILED", 4)]


def test_other_programs_read_the_extra_fields_as_a_map(tmp_path):
    (tmp_path / "a").write_text("JobID|Submit|State|WCKey\n1|2024-03-04T08:00:00|COMPLETED|blue\n")
    with make_site(tmp_path / "site") as site:
        ingest_jobs(site, SacctText(tmp_path / "a"))
        stored = pl.read_delta(str(site.jobs.table.path))
    assert stored.select(pl.col("extra").map.get("wckey")).to_series().to_list() == ["blue"]

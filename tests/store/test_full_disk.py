"""A disk that is full: one sentence that names it, whoever writes, and nothing on standard error before it."""

import subprocess
import sys

import pytest

from stormpetrel.errors import DiskFullError, ReadOnlySiteError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.filesystem import format_disk, mount_of
from stormpetrel.store.panics import split_panic, without_panic_text
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import compact
from tests.builders import make_jobs, make_site, write_sacct
from tests.parts import mounts

PANIC = (
    b"thread 'tokio-rt-worker' (7) panicked at object_store-0.13.2/src/buffered.rs:369:41:\nAlready shut down\nstack backtrace:\n"
)


@pytest.fixture
def disk(tmp_path):
    with mounts.small_disk(tmp_path / "disk", size="4m") as folder:
        yield folder


def stormpetrel(*words):
    done = subprocess.run([sys.executable, "-m", "stormpetrel", *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr.strip().splitlines()


@pytest.mark.root
def test_an_ingest_onto_a_full_disk_prints_one_line_that_names_the_disk_and_leaves_nothing_behind(disk, tmp_path):
    with make_site(disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(100))))
    many = write_sacct(tmp_path / "many", make_jobs(120_000, first_id=10_000))
    code, lines = stormpetrel("--site", disk / "site", "ingest", "jobs", many)
    assert code == 1
    assert len(lines) == 1, lines
    assert f"the disk tmpfs at {disk} (" in lines[0] and "is full" in lines[0]
    with open_site(disk / "site") as site:
        assert site.jobs.read_jobs().collect().height == 100
        assert set(site.jobs.table.path.glob("month=*/*.parquet")) == set(site.jobs.table.files())  # nothing half written


@pytest.mark.root
def test_sqlite_and_delta_name_the_full_disk_in_the_same_words(disk, tmp_path):
    with make_site(disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(3000))))
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(3000, first_id=9000))))
        mounts.fill(disk)
        for write in (
            lambda: site.views.save("ada", "v" * 100, "/jobs?x=" + "y" * 1500),
            lambda: site.state.record_ingest("x" * 40_000, {}),
            lambda: compact(site),
            lambda: ingest_jobs(site, SacctText(write_sacct(tmp_path / "c", make_jobs(500, first_id=20_000)))),
            lambda: site.models.add("jobs-submit", lambda folder: folder.mkdir(parents=True), {}),
        ):
            with pytest.raises(DiskFullError, match=rf"the disk tmpfs at {disk} \(0 bytes of 4\.19 MB free\) is full"):
                write()


@pytest.mark.root
def test_a_site_on_a_full_disk_can_be_read_and_a_write_says_to_free_space(disk, tmp_path):
    with make_site(disk / "site") as site:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", make_jobs(30))))
    mounts.fill(disk)
    with open_site(disk / "site") as site:
        assert site.jobs.read_jobs().collect().height == 30
        with pytest.raises(ReadOnlySiteError, match=rf"cannot be written: the disk tmpfs at {disk} .* is full\. Free some space"):
            site.views.save("ada", "mine", "/jobs")


def test_the_disk_of_a_folder_is_named_by_its_device_mount_point_and_free_space(tmp_path):
    mount = mount_of(tmp_path)
    assert mount is not None
    assert format_disk(tmp_path / "not there yet").startswith(f"{mount.device} at {mount.point} (")


def test_the_text_of_a_panic_is_kept_with_the_error_and_off_standard_error(capfd):
    def fail():
        with without_panic_text():
            mounts.write_to_stderr(b"an earlier line\n" + PANIC + b'{"time": "2026", "event": "step"}\n' + PANIC)
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        fail()
    assert capfd.readouterr().err == 'an earlier line\n{"time": "2026", "event": "step"}\n'
    assert "Already shut down" in caught.value.__notes__[0]


def test_what_a_block_that_succeeds_prints_is_passed_on_whole(capfd):
    with without_panic_text(), without_panic_text():
        mounts.write_to_stderr(PANIC)
    assert capfd.readouterr().err.encode() == PANIC


def test_text_without_a_panic_is_left_as_it_is():
    assert split_panic(b"a\nb\n") == (b"a\nb\n", b"")

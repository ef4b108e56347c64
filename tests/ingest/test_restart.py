"""Killed anywhere and run again, the tables are the same; two writers and a reader get along."""

import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stormpetrel.ingest import jobs as ingest
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.cursor import Cursor
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import open_site
from tests.builders import SACCT_FIELDS, T0, Job, make_jobs, make_site, sacct_line, table_of, write_sacct

# A real process that ingests in many small commits, so that there is something to interrupt.
SLOW_INGEST = """
import sys
from pathlib import Path
import stormpetrel.ingest.jobs as ingest
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import open_site
ingest.COMMIT_ROWS = ingest.TRANSLATE_ROWS = 200
with open_site(Path(sys.argv[1])) as site:
    print("ready", flush=True)
    for name in sys.argv[2:]:
        report = ingest.ingest_jobs(site, SacctText(name, block_bytes=20_000))
    print(report.read, flush=True)
"""


_started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def _no_process_left():
    yield
    while _started:
        with _started.pop() as process:  # closes the pipes
            process.kill()


def start_ingest(site, *files):
    command = [sys.executable, "-c", SLOW_INGEST, str(site), *map(str, files)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _started.append(process)
    return process


def big_log(path, rows):
    """A log with corrections and refused lines in it."""
    lines = [SACCT_FIELDS]
    for number, job in enumerate(make_jobs(rows, failed=rows // 10)):
        if number % 50 == 0:
            lines.append(sacct_line(Job(job_id=job.job_id, submit=job.submit, user=job.user, name=job.name, state="RUNNING")))
        if number % 97 == 0:
            lines.append("this|is|no|record")
        lines.append(sacct_line(job))
    path.write_text("\n".join(lines) + "\n")
    return path


def everything(folder):
    with open_site(folder) as site:
        refused = site.quarantine.read().sort("line").collect()
        return table_of(site), refused


def ingest_here(folder, log):
    """The same ingest in this process, in as many small commits."""
    with pytest.MonkeyPatch.context() as patch, open_site(folder) as site:
        for name in ("COMMIT_ROWS", "TRANSLATE_ROWS"):
            patch.setattr(ingest, name, 200)
        ingest_jobs(site, SacctText(log, block_bytes=20_000))


def started(site, log):
    process = start_ingest(site, log)
    line = process.stdout.readline()
    assert line == "ready\n", f"the site could not be opened after a kill: {line!r}\n{process.communicate()[1]}"
    return process


def kill_and_restart(tmp_path, *, kills, rows, seed):
    """Interrupt an ingest `kills` times, spread over its work, let it finish, and compare with one that was left alone."""
    log = big_log(tmp_path / "log", rows)
    make_site(tmp_path / "calm").close()
    began = time.monotonic()
    ingest_here(tmp_path / "calm", log)
    # About one piece of the work between two kills: some fall into a commit, some between two, some before the first.
    longest_s = 2 * (time.monotonic() - began) / kills
    make_site(tmp_path / "killed").close()
    rng = random.Random(seed)
    interrupted = 0
    while interrupted < kills:
        process = started(tmp_path / "killed", log)
        try:
            process.wait(timeout=rng.uniform(0, longest_s))
            longest_s /= 2  # faster than the calm one was: whoever finished in time was not interrupted
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            interrupted += process.wait() == -signal.SIGKILL
    ingest_here(tmp_path / "killed", log)
    calm_jobs, calm_refused = everything(tmp_path / "calm")
    jobs, refused = everything(tmp_path / "killed")
    assert_frame_equal(jobs, calm_jobs)
    assert_frame_equal(refused, calm_refused)
    assert jobs.height == rows and refused.height == -(-rows // 97)


def test_an_ingest_killed_at_three_random_moments_and_restarted_gives_the_same_tables(tmp_path):
    kill_and_restart(tmp_path, kills=3, rows=1500, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 7])
def test_an_ingest_killed_at_twenty_random_moments_and_restarted_gives_the_same_tables(tmp_path, seed):
    kill_and_restart(tmp_path, kills=20, rows=4000, seed=seed)


@pytest.mark.slow
def test_ten_million_rows_need_less_than_two_gigabytes(tmp_path):
    from benchmarks.ingest import large

    assert large(tmp_path, 10_000_000)["peak_bytes"] < 2e9


def test_two_ingests_at_once_lose_nothing_and_take_in_nothing_twice(tmp_path):
    jobs = make_jobs(3000)
    write_sacct(tmp_path / "a", jobs[:2000])
    write_sacct(tmp_path / "b", jobs[1000:])
    make_site(tmp_path / "site").close()
    process = started(tmp_path / "site", tmp_path / "a")
    ingest_here(tmp_path / "site", tmp_path / "b")
    assert process.wait(timeout=120) == 0, process.stderr.read()
    table, _ = everything(tmp_path / "site")
    assert table["job_id"].to_list() == [job.job_id for job in jobs]


def test_a_reader_beside_an_ingest_sees_only_whole_commits(tmp_path):
    write_sacct(tmp_path / "a", make_jobs(3000))
    make_site(tmp_path / "site").close()
    process = start_ingest(tmp_path / "site", tmp_path / "a")
    seen = set()
    with open_site(tmp_path / "site") as site:
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:
            frame = site.jobs.read_jobs().select("job_id").collect()
            assert frame["job_id"].n_unique() == frame.height
            seen.add(frame.height)
    assert process.returncode == 0
    assert max(seen) <= 3000
    assert everything(tmp_path / "site")[0].height == 3000


def test_overlapping_files_in_two_orders_give_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "COMMIT_ROWS", 40)
    monkeypatch.setattr(ingest, "TRANSLATE_ROWS", 40)
    jobs = make_jobs(300)
    parts = [write_sacct(tmp_path / f"part{n}", jobs[n * 50 : n * 50 + 100]) for n in range(5)]
    tables = []
    for name, order in (("x", parts), ("y", parts[::-1])):
        with make_site(tmp_path / name) as site:
            for path in order:
                ingest_jobs(site, SacctText(path))
            tables.append(table_of(site))
    assert tables[0].equals(tables[1])
    assert tables[0].height == 300


def test_a_live_cursor_moves_with_its_rows_or_not_at_all(tmp_path):
    with make_site(tmp_path / "site") as site:
        for step in (1, 2):
            source = SacctText(write_sacct(tmp_path / "a", make_jobs(step * 3)))
            source.cursor = Cursor("slurm:test", int((T0 + timedelta(days=step)).timestamp()))
            version = site.jobs.table.version()
            ingest_jobs(site, source)
            assert site.jobs.table.version() == version + 1, "rows and cursor are one commit"
            assert site.jobs.cursor("slurm:test") == int((T0 + timedelta(days=step)).timestamp())
        # A window without anything new moves the cursor, too.
        source.cursor = Cursor("slurm:test", 99)
        ingest_jobs(site, source)
        assert site.jobs.cursor("slurm:test") == 99
        assert table_of(site).height == 6


def test_leftovers_of_a_killed_write_are_removed_by_a_later_vacuum(tmp_path):
    with make_site(tmp_path / "site") as site:
        orphan = site.jobs.table.path / "month=2024-03"
        orphan.mkdir()
        pl.DataFrame({"x": [1]}).write_parquet(orphan / "part-orphan.parquet")
        long_ago = time.time() - 30 * 86400
        os.utime(orphan / "part-orphan.parquet", (long_ago, long_ago))
        assert site.jobs.table.vacuum() == 1
        assert not (orphan / "part-orphan.parquet").exists()

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.traces import NO_JOB, Split, Trace, TraceJob
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA, WINDOW_KEY, frame_of, windows_of
from stormpetrel.records.windows import cut_windows
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.tables import Committed
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import compact, forget, retain
from tests.builders import Job, make_site, write_sacct

START = datetime(2026, 3, 31, 23, 59, tzinfo=UTC)


def windows(name="live", *, start=START, seed=0, steps=40, job="7", split=None):
    """Four windows of ten steps of each of two threads, the second without a job."""
    rates = np.random.default_rng(seed).dirichlet(np.ones(4), size=(steps, 2)).astype(np.float32)
    jobs = np.tile(np.array([0, NO_JOB], dtype=np.int32), (steps, 1))
    time_s = start.timestamp() + 10.0 * np.arange(1, steps + 1)
    trace = Trace(name, 10.0, time_s, ("n1", "n2"), (3, 0), rates, jobs, (TraceJob(job),))
    return frame_of(cut_windows(trace, steps=10), cluster="alpha", split=split)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def stored(site):
    return site.cpu_windows.read().collect().sort(WINDOW_KEY)


def test_windows_come_back_as_they_went_in_over_the_end_of_a_month(site):
    frame = windows()
    assert site.cpu_windows.commit(frame) == Committed(kept=8)
    assert stored(site).equals(frame.sort(WINDOW_KEY)) and stored(site).schema == CPU_WINDOW_SCHEMA
    assert site.cpu_windows.table.scan().collect()["month"].unique().sort().to_list() == ["2026-03", "2026-04"]
    assert np.allclose(windows_of(stored(site)).rates.sum(axis=2), 1, atol=1e-5)


def test_the_same_windows_again_change_nothing_and_write_nothing(site):
    site.cpu_windows.commit(windows())
    version = site.cpu_windows.table.version()
    assert site.cpu_windows.commit(windows()) == Committed(known=8)
    assert site.cpu_windows.table.version() == version


def test_a_window_that_differs_replaces_its_row_and_new_ones_are_added(site):
    site.cpu_windows.commit(windows().head(4))
    better = windows().with_columns(
        user=pl.when(pl.int_range(pl.len()) == 1).then(pl.col("user").list.eval(pl.element() / 2)).otherwise("user")
    )
    assert site.cpu_windows.commit(better) == Committed(kept=4, known=3, changed=1)
    assert stored(site).equals(better.sort(WINDOW_KEY))


@pytest.mark.parametrize("column", ["job_id", "job_type", "split"])
def test_whose_window_it_is_can_be_corrected(site, column):
    site.cpu_windows.commit(windows())
    assert site.cpu_windows.commit(windows().with_columns(pl.lit("other").alias(column))).changed == 8


def test_a_window_that_comes_twice_in_one_commit_is_one(site):
    assert site.cpu_windows.commit(pl.concat([windows(), windows()])) == Committed(kept=8, known=8)
    assert stored(site).height == 8


def test_the_cursor_travels_with_the_rows_also_where_nothing_is_new(site):
    assert site.cpu_windows.cursor("prometheus") is None
    site.cpu_windows.commit(windows(), cursor=Cursor("prometheus", 5))
    site.cpu_windows.commit(windows(), cursor=Cursor("prometheus", 9))
    assert site.cpu_windows.cursor("prometheus") == 9
    site.cpu_windows.commit(windows(seed=1), cursor=Cursor("prometheus", 12))
    site.cpu_windows.commit(windows().clear(), cursor=Cursor("prometheus", 15))
    assert site.cpu_windows.cursor("prometheus") == 15 and stored(site).height == 8


def test_windows_can_be_asked_for_by_time_node_trace_and_split(site):
    site.cpu_windows.commit(windows())
    site.cpu_windows.commit(windows("c1", split=Split.TRAIN))
    site.cpu_windows.commit(windows("c2", split=Split.TEST))
    read = site.cpu_windows.read
    second = START + timedelta(seconds=100)
    assert read(since=second).collect().height == 18 and read(until=second).collect().height == 6
    assert read(nodes=["n1"], traces=["live"]).collect()["cpu"].to_list() == [3] * 4
    assert set(read(splits=[Split.TRAIN]).collect()["trace"]) == {"c1"}
    assert read(traces=["none"]).collect().height == 0


def test_compaction_merges_the_files_of_many_commits(site):
    for number in range(5):
        site.cpu_windows.commit(windows(start=START + timedelta(days=2, minutes=20 * number)))
    before = stored(site)
    done = {entry.table: entry for entry in compact(site)}
    assert (done["cpu_windows"].files_before, done["cpu_windows"].files_after) == (5, 1)
    assert stored(site).equals(before)


def test_retention_deletes_old_windows_of_a_server_and_keeps_campaigns(site):
    old, new = site.now() - timedelta(days=40), site.now() - timedelta(days=2)
    for frame in (windows(start=old), windows(start=new), windows("campaign", start=old, split=Split.TRAIN)):
        site.cpu_windows.commit(frame)
    retain(site, 30)
    left = stored(site)
    old_ones = left.filter(pl.col("window_start") < site.now() - timedelta(days=30))
    assert left.height == 16 and old_ones["trace"].unique().to_list() == ["campaign"]


def test_a_forgotten_users_windows_stay_but_not_whose_job_it_was(site, tmp_path):
    jobs = [Job(job_id=7, user="ada", submit=START, wait_s=0, run_s=120), Job(job_id=8, user="bo", submit=START)]
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "a", jobs)))
    for frame in (windows(), windows("other", job="8"), windows("years later", start=START + timedelta(days=900))):
        site.cpu_windows.commit(frame)
    forget(site, "ada")
    left = {trace: part for (trace,), part in stored(site).group_by("trace")}
    theirs = left["live"].filter(node="n1").sort("window_start")
    assert theirs["job_id"].to_list() == [None, None, "7", "7"]  # it ended after 120 s
    assert theirs["job_type"].to_list() == [""] * 4
    assert left["other"]["job_id"].drop_nulls().to_list() == ["8"] * 4
    assert left["years later"]["job_id"].drop_nulls().to_list() == ["7"] * 4
    assert stored(site).height == 24


def test_a_backup_holds_the_windows_and_the_cursor(site, tmp_path):
    site.cpu_windows.commit(windows(), cursor=Cursor("prometheus", 9))
    backup(site, tmp_path / "site.tar")
    with restore(tmp_path / "site.tar", tmp_path / "again") as again:
        assert stored(again).equals(stored(site)) and again.cpu_windows.cursor("prometheus") == 9

"""A whole site in a folder: what lies beside the jobs is of these jobs, and a plain folder has no other name in it."""

from __future__ import annotations

import getpass
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.workload import recorded_site
from stormpetrel.answers.workload.recorded_site import ALONGSIDE, Alongside, record_whole_site, recorded_jobs, write_plain_folder
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from stormpetrel.sources.trace_files import read_campaigns
from tests.synth.writers.sample_workload import made_workload, pieces

JOBS = made_workload(500)
BESIDE = Alongside(frozenset(ALONGSIDE), hours=0.5)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "shared"
    return folder, write_plain_folder(folder, pieces(JOBS, 200), BESIDE)


def test_a_site_has_traces_and_events_up_to_where_its_clock_stands(tmp_path):
    told: list[str] = []
    made = record_whole_site(tmp_path / "site", [JOBS], BESIDE, progress=told.append)
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["events.log", "feed", "traces"]
    last = max(trace.time_s[-1] for trace in read_campaigns([tmp_path / "site" / "traces"]))
    assert datetime.fromtimestamp(last, UTC) == made.site.now
    jobs = pl.concat(recorded_jobs(tmp_path / "site"))
    assert made.counts["events"]["Submit"] == jobs.filter(pl.col("submit_time") <= made.site.now).height < 500
    assert made.counts["traces"]["threads"] == made.site.machine.cores and told == ["CPU traces", "events"]


def test_a_plain_folder_is_read_as_any_other_log(plain):
    folder, made = plain
    assert sorted(path.name for path in folder.iterdir()) == ["README.txt", "events.log", "jobs.sacct", "traces"]
    read = read_log([str(folder / "jobs.sacct")], None, ReadOptions())
    assert read.jobs.height == made.counts["events"]["Submit"] == 500 and not read.refused
    assert read.jobs["state"].to_list() == JOBS["state"].to_list() and read.jobs["node_list"].null_count() == 0
    last = max(trace.time_s[-1] for trace in read_campaigns([folder / "traces"]))
    assert timedelta() <= JOBS["submit_time"][-1] - datetime.fromtimestamp(last, UTC) < timedelta(seconds=1)


def test_a_plain_folder_names_nobody_and_nothing_of_this_machine(plain):
    folder, _ = plain
    told = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    for ours in (str(folder), str(Path.home()), sys.prefix, f"/{getpass.getuser()}/"):
        assert len(ours) < 4 or ours.encode() not in told, ours
    threads = pl.read_csv(folder / "traces" / "threads.csv")
    assert set(threads["user"]) <= set(JOBS["user"]) and set(threads["node"]) <= {"n001", "n002", "n003"}


def test_after_a_quiet_week_the_traces_are_those_of_the_last_work(tmp_path):
    late = pl.concat([JOBS[:100], JOBS[100:200].with_columns(pl.col("submit_time") + timedelta(days=30), runtime_s=pl.lit(0.0))])
    made = record_whole_site(tmp_path / "site", [late], Alongside(frozenset({"traces"}), hours=0.5))
    ended = pl.concat(recorded_jobs(tmp_path / "site")).filter(pl.col("elapsed_s") > 0)["end_time"].max()
    assert made.counts["traces"]["until"] == ended.isoformat() and made.counts["traces"]["jobs"] > 0


def test_jobs_that_never_ran_have_no_traces_and_that_is_said(tmp_path):
    with pytest.raises(NotEnoughJobsError, match="nothing to trace"):
        record_whole_site(tmp_path / "site", [JOBS.select("submit_time", "user")], BESIDE)
    assert not (tmp_path / "site").exists()


def test_only_what_was_asked_for_is_made(tmp_path):
    made = write_plain_folder(tmp_path / "few", [JOBS], Alongside(frozenset({"events"})))
    assert sorted(path.name for path in (tmp_path / "few").iterdir()) == ["README.txt", "events.log", "jobs.sacct"]
    assert list(made.counts) == ["events"] and "traces" not in (tmp_path / "few" / "README.txt").read_text()


def test_the_same_jobs_and_seed_make_the_same_folder(plain, tmp_path):
    folder, _ = plain
    write_plain_folder(tmp_path / "again", [JOBS], BESIDE)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 7 and all((folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def test_what_goes_wrong_leaves_nothing_behind(tmp_path, monkeypatch):
    def stop(*_words: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recorded_site, "write_job_events", stop)
    for make in (record_whole_site, write_plain_folder):
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "site", [JOBS], BESIDE)
        assert not (tmp_path / "site").exists()

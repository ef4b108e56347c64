"""The fake sacct shows what accounting would show at that moment, and live ingest takes it for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.errors import SourceFormatError
from stormpetrel.faces.cli.main import app
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.times import FeedClock, fixed_clock, running_clock
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.feed import Feed, record_feed, set_clock, write_fake_sacct
from stormpetrel.sources.slurm.live import available_fields, live_sources
from stormpetrel.store.site import open_site
from tests.builders import make_site, table_of

START = datetime(2024, 3, 4, tzinfo=UTC)
SPEC = ClusterSpec(nodes=6, cores_per_node=16, mem_per_node_gib=64, days=6, load=0.9, seed=7, start=START)
NOON = START + timedelta(days=2, hours=12)


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    return pl.concat(simulate(SPEC))


@pytest.fixture
def feed(jobs, tmp_path) -> Path:
    folder = tmp_path / "feed"
    record_feed((jobs.slice(at, 500) for at in range(0, jobs.height, 500)), folder, fixed_clock(NOON))
    write_fake_sacct(folder)
    return folder


def sacct(feed: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TZ": "UTC", **environment}
    return subprocess.run([feed / "sacct", *arguments], capture_output=True, text=True, env=env, timeout=60, cwd=feed)


def rows_of(jobs: pl.DataFrame, now: datetime) -> dict[str, int]:
    """How many jobs there are in each phase at a moment."""
    seen = jobs.filter(pl.col("submit_time") <= now)
    started = (pl.col("start_time") <= now).fill_null(False)
    return {
        "over": seen.filter(pl.col("end_time") <= now).height,
        "running": seen.filter(pl.col("end_time") > now, started).height,
        "waiting": seen.filter(pl.col("end_time") > now, ~started).height,
    }


def test_at_any_moment_jobs_wait_run_or_are_over_as_they_did(jobs, feed):
    phases = set()
    for hours in range(30, 100, 5):
        now = START + timedelta(hours=hours)
        shown = Feed(feed).rows(START, now + timedelta(days=9), now=now)
        expected = rows_of(jobs, now)
        states = dict(shown["state"].value_counts().iter_rows())
        assert states.get("RUNNING", 0) == expected["running"]
        assert states.get("PENDING", 0) == expected["waiting"]
        assert shown.height == sum(expected.values())
        phases |= {phase for phase, count in expected.items() if count}
    assert phases == {"over", "running", "waiting"}


def test_nothing_of_the_future_is_shown(jobs, feed):
    shown = Feed(feed).rows(START, NOON + timedelta(days=99), now=NOON)
    for name in ("submit_time", "start_time", "end_time"):
        assert shown[name].max() <= NOON
    unfinished = shown.filter(pl.col("state").is_in(["RUNNING", "PENDING"]))
    assert unfinished.height
    for name in ("end_time", "exit_code", "failed_step", "max_rss_bytes", "cpu_time_s", "cancelled_by"):
        assert unfinished[name].null_count() == unfinished.height
    waiting = shown.filter(state="PENDING")
    assert waiting["node_list"].null_count() == waiting.height
    assert jobs.filter(pl.col("submit_time") > NOON).height, "the recording must go on after the moment"


def test_the_command_prints_no_time_after_now(feed):
    printed = sacct(feed, "-a", "-P", "-n", "-S", "2024-03-01", "-o", "Submit,Start,End", SLURM_TIME_FORMAT="%s")
    words = {word for line in printed.stdout.splitlines() for word in line.split("|")} - {"Unknown", ""}
    assert max(int(word) for word in words) <= NOON.timestamp()


def test_a_window_holds_what_was_alive_in_it(jobs, feed):
    since, until = START + timedelta(days=1), START + timedelta(days=1, hours=2)
    shown = set(Feed(feed).rows(since, until, now=NOON)["job_id_raw"])
    alive = jobs.filter(pl.col("submit_time") < until, pl.col("end_time") >= since)
    assert shown == set(alive["job_id_raw"])


def test_the_command_speaks_like_sacct(feed):
    listed = sacct(feed, "--helpformat").stdout.split()
    assert {"JobID", "Submit", "SubmitLine"} <= set(listed)
    header, first, *_ = sacct(feed, "-a", "-P", "-X", "-S", "now-1day", "-o", "JobID,User,State%20").stdout.splitlines()
    assert header == "JobID|User|State" and first.count("|") == 2
    trailing = sacct(feed, "-p", "-n", "-S", "now-1day", "-o", "JobID", "--delimiter=;").stdout.splitlines()
    assert all(line.endswith(";") for line in trailing)
    assert ".batch" not in sacct(feed, "-X", "-P", "-S", "now-1day").stdout
    assert "COMPLETED" in sacct(feed, "-S", "now-1day").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "Nonsense"], "Invalid field requested"),
        (["-S", "yesterdayish"], "Invalid time specification"),
        (["-M", "elsewhere"], "invalid entry for --cluster"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_a_wrong_question_gets_one_line_and_status_one(feed, arguments, says):
    answer = sacct(feed, *arguments)
    assert answer.returncode == 1 and says in answer.stderr and answer.stdout == ""


def test_the_fields_of_the_fake_are_found_by_live_ingest(feed):
    assert "SubmitLine" in available_fields(str(feed / "sacct"), 60)


def test_live_ingest_through_the_command_line_takes_everything_in_once(tmp_path):
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=60)
    jobs = pl.concat(simulate(replace(SPEC, start=start)))
    folder = tmp_path / "feed"
    record_feed([jobs], folder, running_clock(datetime.now(UTC)))
    slurm = {"sacct": str(write_fake_sacct(folder)), "since": f"{start:%Y-%m-%d}", "chunk_days": 31.0, "pause_s": 0.0}
    with make_site(tmp_path / "site", slurm={**slurm, "overlap_hours": 24.0 * 61}) as site:
        assert site.settings.slurm.chunk_days == 31.0

    first, second = (ingest_again(tmp_path / "site") for _ in range(2))
    # A job that is alive where two windows meet is shown in both, and known the second time.
    assert (first["kept"], first["changed"], first["quarantined"]) == (jobs.height, 0, {})
    assert (second["kept"], second["changed"], second["quarantined"]) == (0, 0, {})
    assert second["known"] >= jobs.height
    with open_site(tmp_path / "site") as site:
        stored = table_of(site)["state"].value_counts()
    assert dict(stored.iter_rows()) == dict(jobs["state"].value_counts().iter_rows())


def ingest_again(site: Path) -> dict[str, Any]:
    """What the command line reports, in this process."""
    done = CliRunner().invoke(app, ["--site", str(site), "ingest", "jobs", "--live", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def ingest_live(site: Path) -> dict[str, Any]:
    """What the real command line reports."""
    main = "from stormpetrel.faces.cli.main import main; main()"
    command = [sys.executable, "-c", main, "--site", str(site), "ingest", "jobs", "--live", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_replay_at_any_speed_ends_with_every_job_in_its_last_state(jobs, feed, tmp_path):
    slurm = SlurmSection(sacct=str(feed / "sacct"), since="2024-03-04", chunk_days=31.0, pause_s=0.0, overlap_hours=48.0)
    seen = []
    with make_site(tmp_path / "site") as site:
        for days in (1.5, 2.6, 99):
            now = START + timedelta(days=days)
            set_clock(feed, fixed_clock(now))
            for source in live_sources(slurm, SiteSection(), site.jobs.cursor, now=min(now, START + timedelta(days=12))):
                ingest_jobs(site, source)
            seen.append(dict(table_of(site)["state"].value_counts().iter_rows()))
        table = table_of(site)
    assert seen[0].get("RUNNING", 0) > 0
    assert table.height == jobs.height
    assert dict(table["state"].value_counts().iter_rows()) == dict(jobs["state"].value_counts().iter_rows())


def test_a_clock_runs_at_its_speed_and_stands_still_without_one():
    assert FeedClock(1000.0, 50.0, 60.0).now_s(52.0) == 1120.0
    assert FeedClock(1000.0, 50.0, 60.0).now_s(10.0) == 1000.0
    assert FeedClock(1000.0).now_s(5e9) == 1000.0


def test_a_folder_that_is_no_feed_is_refused(tmp_path):
    with pytest.raises(SourceFormatError, match="no recorded feed"):
        Feed(tmp_path)
    (tmp_path / "feed.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(SourceFormatError, match="another version"):
        Feed(tmp_path)


def test_a_site_that_lives_by_its_feed_takes_in_days_within_seconds_through_the_command_line(jobs, feed, tmp_path):
    slurm = {"sacct": str(feed / "sacct"), "since": "2024-03-04", "chunk_days": 31.0, "pause_s": 0.0}
    with make_site(tmp_path / "site", site={"feed": str(feed)}, slurm=slurm):
        pass
    set_clock(feed, running_clock(START + timedelta(days=1), speed=3 * 86_400))  # three days a second
    early = ingest_live(tmp_path / "site")
    assert 0 < early["kept"] <= jobs.height
    while Feed(feed).now() < jobs["end_time"].max():  # a second or two
        ingest_again(tmp_path / "site")
    ingest_again(tmp_path / "site")
    set_clock(feed, fixed_clock(START))  # a clock that goes back: there is nothing to ask for, and that is said
    assert ingest_again(tmp_path / "site")["read"] == 0
    with open_site(tmp_path / "site") as site:
        stored = table_of(site)
    assert stored.height == jobs.height
    assert dict(stored["state"].value_counts().iter_rows()) == dict(jobs["state"].value_counts().iter_rows())


def test_half_of_the_nodes_have_meters_and_steps_tell_what_the_job_does(jobs, feed):
    measured = jobs.filter(pl.col("energy_j").is_not_null())
    assert 0.2 < measured.height / jobs.height < 0.8
    assert measured["node_list"].str.extract(r"(\d+)").cast(pl.Int64).min() == SPEC.nodes // 2 + 1
    printed = sacct(feed, "-P", "-n", "-S", f"{START:%Y-%m-%d}", "-o", "JobID,State,ConsumedEnergyRaw").stdout.splitlines()
    ended = [line.split("|") for line in printed if "RUNNING" not in line and "PENDING" not in line]
    assert {energy for _, _, energy in ended} > {"0"}


def test_a_feed_of_an_earlier_version_has_no_energy_and_is_read(jobs, feed):
    for path in feed.glob("jobs-*.parquet"):
        pl.read_parquet(path).drop("energy_j").write_parquet(path)
    rows = Feed(feed).rows(START, NOON)
    assert rows.height and rows["energy_j"].null_count() == rows.height
    assert sacct(feed, "-P", "-S", f"{START:%Y-%m-%d}", "-o", "JobID,ConsumedEnergyRaw").returncode == 0

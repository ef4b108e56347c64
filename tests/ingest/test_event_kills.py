"""`stormpetrel ingest events`, killed anywhere and run again: the counts are those of an ingest that was left alone."""

import random
import signal
import subprocess
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from polars.testing import assert_frame_equal

from stormpetrel.ingest.events import ingest_events
from stormpetrel.records.events import COUNT_KEY, COVERED
from stormpetrel.sources.formats import event_file
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.parts.command_line import run_here, start
from tests.sources.htcondor.test_follow import START, Log

HOURS = 24 * 60  # three months: a commit writes several files, and there is something between two of them


def made_files(folder):
    """An event log, which is added up, and a table of counts, which is told anew."""
    log = Log(folder)
    for number in range(60):
        log.run_job(minutes=700.0 if number % 10 == 0 else 7.0)
        log.end_job()
    table = folder / "counts.csv"
    rows = (f"{START + timedelta(hours=hour):%Y-%m-%d %H:%M},{hour % 7},{'' if hour == 99 else 3}\n" for hour in range(HOURS))
    table.write_text("time,Submit,JobHeld\n" + "".join(rows))
    return [log.path, table]


def everything(folder):
    """All counts, by place too, and the gaps."""
    with open_site(folder) as site:
        rows = site.event_counts.read(places=True).collect().sort(COUNT_KEY)
        return rows, [gap.as_dict() for gap in site.event_counts.gaps(bucket_s=3600)]


def written(site):
    """How many files the tables of events have."""
    return sum(1 for name in ("event_counts", "event_gaps") for _ in (site / "tables" / name).rglob("*"))


def ended_within(process, seconds):
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


def kill_one(site, files, *, after, more_s):
    """Kill an ingest while it writes: when so many files have come, or a moment later; whether it was still running."""
    before, limit = written(site), time.monotonic() + 60
    with start(site, "ingest", "events", *map(str, files)) as process:
        while process.poll() is None and written(site) - before < after and time.monotonic() < limit:
            ended_within(process, 0.003)
        ended_within(process, more_s)
        process.kill()
    return process.returncode == -signal.SIGKILL


def kill_and_restart(tmp_path, kills, seed):
    chance, files = random.Random(seed), made_files(tmp_path)
    with make_site(tmp_path / "calm") as calm:
        for path in files:
            ingest_events(calm, event_file(path, None, calm.settings))
    make_site(tmp_path / "killed").close()
    killed = 0
    for _ in range(kills):
        killed += kill_one(tmp_path / "killed", files, after=chance.randint(1, 6), more_s=chance.choice([0, 0.01, 0.05]))
    done = run_here(tmp_path / "killed", "ingest", "events", *map(str, files))
    assert done.returncode == 0, done.stderr
    rows, gaps = everything(tmp_path / "killed")
    calm_rows, calm_gaps = everything(tmp_path / "calm")
    assert_frame_equal(rows, calm_rows)
    assert gaps == calm_gaps and killed
    assert rows.filter(kind=COVERED).height > HOURS


def test_an_ingest_killed_while_it_writes_and_run_again_counts_the_same(tmp_path):
    kill_and_restart(tmp_path, kills=2, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_other_moments_count_the_same_too(tmp_path, seed):
    kill_and_restart(tmp_path, kills=8, seed=seed)

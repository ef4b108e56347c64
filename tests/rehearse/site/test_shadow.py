"""The rehearsal beside the live stream: its own state, the same faults, and a site that is only read."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.events import COVERED
from stormpetrel.records.times import FEED_FILE, FEED_FORMAT, fixed_clock
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan
from stormpetrel.rehearse.site.shadow import Shadow
from stormpetrel.rehearse.site.stream_copy import as_known
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_site
from tests.lifecycle.traced_site import put_windows
from tests.parts.counted_grid import SOURCE, START, counted_grid
from tests.rehearse.site.test_rehearsal import digests
from tests.traces.small import STEPS, small_windows

SPEC = ClusterSpec(nodes=12, days=12, load=0.7, seed=4)
BEGIN = SPEC.start + timedelta(days=9, hours=8)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shadow")
    write_sacct(simulate(SPEC), folder / "jobs.txt")
    with make_site(folder / "site", site={"time_zone": "UTC"}) as site:
        ingest_jobs(site, SacctText(folder / "jobs.txt"))
        yield site


def test_a_fault_in_the_copy_is_judged_and_the_site_stays_as_it_is(site, tmp_path):
    before = digests(site.folder)
    shadow = Shadow(site, tmp_path / "shadow", RehearsalPlan(kinds=("node_down",), severities=("severe",)), BEGIN)
    now = BEGIN
    while not shadow.trials and now < BEGIN + timedelta(hours=12):
        now += timedelta(minutes=30)
        shadow.step(now)
    (trial,) = shadow.trials
    assert trial.injection.kind == "node_down" and trial.seen_s is not None and 0 <= trial.seen_s <= 3600
    assert shadow._faulty.copy.incidents.list() and not site.incidents.list()
    assert digests(site.folder) == before
    assert any("CPU windows" in text for text in shadow.missing)
    shadow.close()


class Clock:
    """The clock of a site, set by hand; its copies have it too."""

    def __init__(self, folder):
        self._file = folder / FEED_FILE
        folder.mkdir()

    def show(self, now):
        self._file.write_text(json.dumps({"format": FEED_FORMAT, "clock": asdict(fixed_clock(now))}))


def test_an_outage_is_put_into_a_copy_of_the_event_counts_as_they_come(tmp_path):
    clock, begin = Clock(tmp_path / "feed"), START + timedelta(days=10, hours=9)
    clock.show(begin)
    with make_site(tmp_path / "site", site={"time_zone": "UTC", "feed": str(tmp_path / "feed")}) as site:
        counts = counted_grid(days=12)
        site.event_counts.replace(counts, source=SOURCE, start=START, end=START + timedelta(days=12), bucket_s=3600)
        shadow = Shadow(site, tmp_path / "shadow", RehearsalPlan(kinds=("cluster_silent",), severities=("moderate",)), begin)
        for hour in range(1, 13):
            clock.show(begin + timedelta(hours=hour))
            shadow.step(begin + timedelta(hours=hour))
        (trial,) = shadow.trials
        assert trial.seen_s is not None and trial.injection.hit == 3
        span = {"since": trial.injection.since, "until": trial.injection.until}
        assert not shadow._faulty.copy.event_counts.read(**span).filter(pl.col("kind") != COVERED).collect().height
        assert shadow._calm.copy.event_counts.read(**span).filter(pl.col("kind") != COVERED).collect().height
        shadow.close()


@pytest.mark.needs("onnxruntime")
def test_a_fault_is_put_into_a_copy_of_the_cpu_windows_as_they_come(tmp_path):
    windows = small_windows(0, steps=20 * STEPS, name="live")
    first = datetime.fromtimestamp(float(windows.start_s.min()), UTC)
    clock, length = Clock(tmp_path / "feed"), timedelta(seconds=STEPS)
    begin = first + 8 * length
    clock.show(begin)
    sections = {"site": {"time_zone": "UTC", "feed": str(tmp_path / "feed")}, "traces": {"window_s": float(STEPS)}}
    with make_site(tmp_path / "site", **sections) as site:
        put_windows(site, windows)
        before = site.cpu_windows.read().collect()
        shadow = Shadow(site, tmp_path / "shadow", RehearsalPlan(kinds=("bad_io",), severities=("severe",)), begin)
        shadow.step(begin)
        (fault,) = shadow._faulty.faults
        shadow.step(begin + 6 * length)
        copied, calm = (stream.copy.cpu_windows.read(nodes=fault.nodes).collect() for stream in (shadow._faulty, shadow._calm))
        assert shadow._faulty.faults[0].hit > 0 and shadow._faulty.copy.trace_scores.read().collect().height
        assert copied["iowait"].list.mean().mean() > calm["iowait"].list.mean().mean() + 0.1
        assert site.cpu_windows.read().collect().equals(before) and not site.trace_scores.read().collect().height
        shadow.close()


def test_records_are_copied_as_they_were_known_at_the_time(site):
    rows = site.jobs.table.scan().collect()
    known = as_known(rows, BEGIN)
    assert known["submit_time"].max() <= BEGIN and (known["end_time"] <= BEGIN).all()
    running = known.filter(pl.col("state") == "RUNNING")
    assert running.height and running["end_time"].null_count() == running.height
    assert (
        known.filter(pl.col("state") == "PENDING")["start_time"].null_count() == known.filter(pl.col("state") == "PENDING").height
    )

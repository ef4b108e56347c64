"""The rehearsal beside the live stream: its own state, the same faults, and a site that is only read."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan
from stormpetrel.rehearse.site.shadow import Shadow
from stormpetrel.rehearse.site.stream_copy import as_known
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_site
from tests.rehearse.site.test_rehearsal import digests

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


def test_records_are_copied_as_they_were_known_at_the_time(site):
    rows = site.jobs.table.scan().collect()
    known = as_known(rows, BEGIN)
    assert known["submit_time"].max() <= BEGIN and (known["end_time"] <= BEGIN).all()
    running = known.filter(pl.col("state") == "RUNNING")
    assert running.height and running["end_time"].null_count() == running.height
    assert (
        known.filter(pl.col("state") == "PENDING")["start_time"].null_count() == known.filter(pl.col("state") == "PENDING").height
    )

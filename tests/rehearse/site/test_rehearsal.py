"""The rehearsal for one site: what is seen, what is a hole, and that the site itself is only read."""

import hashlib
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan, rehearse
from stormpetrel.rehearse.site.stages import HistoryStage
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_site
from tests.parts.counted_grid import SOURCE, START, counted_grid


class StopEarlyError(Exception):
    """Ends a rehearsal in the middle."""


@pytest.fixture(scope="module")
def jobs_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    write_sacct(simulate(ClusterSpec(nodes=12, days=18, load=0.7, seed=4)), folder / "jobs.txt")
    with make_site(folder / "site", site={"time_zone": "UTC"}) as site:
        ingest_jobs(site, SacctText(folder / "jobs.txt"))
        yield site


@pytest.fixture(scope="module")
def rehearsal(jobs_site):
    plan = RehearsalPlan(
        kinds=("node_down", "node_eats_jobs", "black_hole", "straggler"), severities=("severe",), n=3, models=False
    )
    return rehearse(jobs_site, plan)


def digests(folder):
    """Every file of a site with its content, but for the locks and what SQLite writes aside."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".db-wal", ".db-shm")
    }


def test_a_fault_that_must_be_found_is_found_and_its_delay_is_told(rehearsal):
    down = rehearsal.coverage["node_down"]["severe"]
    assert (down.recall, down.n) == (1.0, 3) and 0 <= down.delay_s < 120
    assert rehearsal.coverage["node_eats_jobs"]["severe"].recall > 0.6


def test_what_the_site_has_no_records_of_is_a_hole_in_words(rehearsal):
    assert any("event log" in hole and "would not be seen here" in hole for hole in rehearsal.holes)
    assert any("a straggler in an MPI job" in hole for hole in rehearsal.holes)
    assert "black_hole" not in rehearsal.coverage and "straggler" not in rehearsal.coverage


def test_a_fault_that_nobody_sees_is_a_hole_in_words(jobs_site):
    plan = RehearsalPlan(kinds=("scheduler_stalled",), severities=("mild",), n=2, models=False)
    result = rehearse(jobs_site, plan)
    assert result.coverage["scheduler_stalled"]["mild"].recall == 0
    assert result.holes == ["A scheduler that starts nothing would not be seen here: 0 of 2."]


def test_tables_and_state_of_the_site_are_the_same_to_the_byte_afterwards(jobs_site):
    before = digests(jobs_site.folder)
    rehearse(jobs_site, RehearsalPlan(kinds=("node_down",), severities=("mild",), n=1, models=False))
    assert digests(jobs_site.folder) == before and not jobs_site.incidents.list()


def test_the_same_seed_gives_the_same_rehearsal_and_another_one_another(jobs_site):
    plans = [RehearsalPlan(kinds=("node_down",), severities=("mild",), n=2, seed=seed, models=False) for seed in (1, 1, 2)]
    first, again, other = (rehearse(jobs_site, plan).trials for plan in plans)
    assert first == again != other


def test_walks_of_several_workers_come_to_the_same_as_in_one_process(jobs_site):
    plan = RehearsalPlan(kinds=("node_down", "scheduler_stalled"), severities=("mild", "severe"), n=2, seed=3, models=False)
    here, there = (rehearse(jobs_site, plan, engine=Engine(workers)) for workers in (1, 2))
    assert there == here and here.walks > 2 and len(here.trials) == 8


def test_pages_without_any_fault_are_false_unless_somebody_has_labelled_an_outage(jobs_site, rehearsal):
    assert rehearsal.false_pages_per_week > 0
    first, last = rehearsal.since, rehearsal.until
    jobs_site.outages.add(Outage(start=first, end=last, kind=OutageKind.OUTAGE, title="all of it", source="test", uid="1"))
    try:
        plan = RehearsalPlan(kinds=("node_down",), severities=("mild",), n=1, models=False)
        assert rehearse(jobs_site, plan).false_pages_per_week == 0
    finally:
        jobs_site.outages.remove("test", "1")


def test_a_site_with_events_alone_rehearses_outages(tmp_path):
    counts = counted_grid(days=28)
    with make_site(tmp_path / "site", site={"time_zone": "UTC"}) as site:
        site.event_counts.replace(counts, source=SOURCE, start=START, end=START + timedelta(days=28), bucket_s=3600)
        plan = RehearsalPlan(
            kinds=("cluster_silent", "submit_host_silent", "batch_fails"), severities=("severe",), n=2, models=False
        )
        result = rehearse(site, plan)
    assert result.coverage["cluster_silent"]["severe"].recall >= 0.5
    assert result.coverage["submit_host_silent"]["severe"].recall > 0
    assert any("no job records" in hole for hole in result.holes)


def test_a_site_without_any_record_and_an_unknown_kind_are_refused(tmp_path, jobs_site):
    with make_site(tmp_path / "empty") as empty, pytest.raises(UsageError, match="no history"):
        rehearse(empty, RehearsalPlan())
    with pytest.raises(UsageError, match="Unknown kind of fault 'meteor'"):
        rehearse(jobs_site, RehearsalPlan(kinds=("meteor",)))
    with pytest.raises(UsageError, match="Unknown severity 'awful'"):
        rehearse(jobs_site, RehearsalPlan(severities=("awful",)))


def test_too_short_a_history_is_told(jobs_site):
    last = jobs_site.jobs.table.scan().select(pl.col("end_time").max()).collect().item()
    with pytest.raises(UsageError, match="too few to rehearse on"):
        rehearse(jobs_site, RehearsalPlan(since=last - timedelta(days=3), models=False))


def test_a_rehearsal_that_was_ended_goes_on_after_the_walks_that_were_done(jobs_site, tmp_path, monkeypatch):
    plan = RehearsalPlan(kinds=("node_down",), severities=("severe", "mild"), n=2, models=False)
    whole = rehearse(jobs_site, plan)
    walked = []
    walk = HistoryStage.walker(HistoryStage(jobs_site, (whole.since, whole.until), models=False))

    def counted(records, progress):
        walked.append(len(walked))
        if len(walked) == 2:
            raise StopEarlyError
        return walk(records, progress)

    monkeypatch.setattr(HistoryStage, "walker", lambda _: counted)
    with pytest.raises(StopEarlyError):
        rehearse(jobs_site, plan, keep=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert rehearse(jobs_site, plan, keep=tmp_path / "kept") == whole
    assert len(walked) == 1 + whole.walks  # the walk that failed is walked again, the one before it is not
    assert rehearse(jobs_site, plan, keep=tmp_path / "kept") == whole and len(walked) == 1 + whole.walks
    other = rehearse(jobs_site, replace(plan, seed=1), keep=tmp_path / "kept")
    assert len(walked) == 1 + whole.walks + other.walks  # of another plan nothing is taken

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.ingest.events import counts_jobs, ingest_job_events
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.events.series import series_of
from tests.builders import T0, Job, make_site, write_sacct

HOUR = timedelta(hours=1)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def take(site, jobs, name="jobs.txt"):
    ingest_jobs(site, SacctText(write_sacct(site.folder.parent / name, jobs)))


def hourly(hours, *, start=T0, first_id=1000, failed=()):
    """A job at half past every hour, each running for twenty minutes."""
    return [
        Job(
            job_id=first_id + hour,
            submit=start + HOUR * hour + timedelta(minutes=30),
            run_s=1200,
            state="FAILED" if hour in failed else "COMPLETED",
            exit_code=1 if hour in failed else 0,
        )
        for hour in hours
    ]


def test_the_job_table_tells_submissions_starts_and_ends_and_the_torn_edges_are_not_marked(site):
    assert not counts_jobs(site) and ingest_job_events(site).read == 0
    take(site, hourly(range(10), failed=[4]))
    assert counts_jobs(site)
    report = ingest_job_events(site)
    series = series_of(site, kinds=["Submit", "Execute", "JobTerminated", "JobFailed"])
    assert series.moment(0) == T0 + HOUR and len(series) == 8 and not series.is_gap.any()
    assert series.counts[:, :3].tolist() == [[1, 1, 1]] * 8
    assert series.counts[:, 3].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert report.kinds["Submit"] == 8 and report.source.startswith("jobs:")


def test_counting_again_changes_nothing_and_new_jobs_are_counted_on(site):
    take(site, hourly(range(10)))
    ingest_job_events(site)
    version = site.event_counts.table.version()
    assert ingest_job_events(site).changed == 0 and site.event_counts.table.version() == version
    take(site, hourly(range(10, 14), first_id=2000), "more.txt")
    again = ingest_job_events(site)
    assert again.kept == 4 and again.changed == 0 and len(series_of(site)) == 12


def test_only_what_is_new_is_read_again_unless_older_jobs_have_come(site):
    take(site, hourly(range(60)))
    ingest_job_events(site)
    assert ingest_job_events(site).known == 26  # events.overlap_hours
    assert ingest_job_events(site, whole=True).known == 58
    take(site, hourly([3], first_id=5000), "late.txt")
    late = ingest_job_events(site)
    assert (late.known, late.changed) == (57, 1) and series_of(site, kinds=["Submit"]).counts[2, 0] == 2
    take(site, hourly([-5], first_id=6000), "earlier.txt")
    assert ingest_job_events(site).kept == 5 and len(series_of(site)) == 63
    assert ingest_job_events(site).known == 26


def test_a_long_silence_is_a_gap_and_a_short_one_is_zeros(site):
    take(site, [*hourly(range(3)), *hourly(range(20, 23)), *hourly(range(100, 103))])
    report = ingest_job_events(site)
    series = series_of(site, kinds=["Submit"])
    assert series.counts[2:18, 0].tolist() == [0] * 16
    (gap,) = report.gaps
    assert (gap.start, gap.end) == (T0 + HOUR * 23, T0 + HOUR * 100) and "no job was submitted" in gap.why
    assert series.is_gap.sum() == 77


def test_what_was_counted_stands_when_old_jobs_are_deleted(site):
    take(site, hourly(range(40)))
    ingest_job_events(site)
    before = series_of(site).counts
    younger = site.jobs.table.scan().filter(pl.col("submit_time") >= T0 + HOUR * 20).collect()
    site.jobs.table.overwrite(younger)  # as `store retain` does
    assert ingest_job_events(site).changed == 0
    assert (series_of(site).counts == before).all()

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest

from stormpetrel.ingest import job_event_counts
from stormpetrel.ingest.events import counts_jobs, ingest_job_events
from stormpetrel.ingest.job_event_counts import JobTableEvents
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


def counted(site, piece_jobs, monkeypatch, now):
    """What the whole job table tells in pieces of so many jobs: one frame, the silences, what was set aside, how many pieces."""
    monkeypatch.setattr(job_event_counts, "PIECE_JOBS", piece_jobs)
    spans = list(JobTableEvents(site, whole=True).spans(lambda _name: None, now))
    for before, after in pairwise(spans):
        assert before.end == after.start and before.cursor.position < after.cursor.position
    missing = [stretch for span in spans for stretch in span.missing]
    aside = sum((Counter(span.quarantined) for span in spans), Counter())
    counts = pl.concat([span.counts for span in spans]).sort("bucket_start", "place", "kind", "value")
    return counts, missing, aside, (spans[0].start, spans[-1].end), len(spans)


def test_many_jobs_are_counted_in_pieces_and_it_is_the_same_as_at_once(site, monkeypatch):
    jobs = [
        Job(
            job_id=1000 + number,
            submit=T0 + timedelta(minutes=13 * number) + timedelta(days=6 if number >= 300 else 0),  # two silences
            run_s=(7 * number) % 90_000,  # some run for a day, across many pieces
            state=("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")[number % 4],
            exit_code=int(number % 4 == 1),
        )
        for number in range(600)
        if not 100 <= number < 360 or number >= 300
    ]
    take(site, jobs)
    now = T0 + timedelta(days=14)
    at_once = counted(site, 10**6, monkeypatch, now)
    in_pieces = counted(site, 25, monkeypatch, now)
    assert at_once[-1] == 1 and in_pieces[-1] > 10 and at_once[1]
    assert in_pieces[0].equals(at_once[0].sort("bucket_start", "place", "kind", "value"))
    assert in_pieces[1:4] == at_once[1:4]


def test_a_count_in_pieces_that_was_ended_in_between_goes_on_to_the_same_table(site, monkeypatch):
    monkeypatch.setattr(job_event_counts, "PIECE_JOBS", 4)
    take(site, hourly(range(40), failed=[4, 17]))

    class KilledError(Exception):
        pass

    def end_after_the_third(share, text):
        del text
        if share > 0.3:
            raise KilledError

    with pytest.raises(KilledError):
        ingest_job_events(site, progress=end_after_the_third)
    assert 0 < len(series_of(site)) < 38
    ingest_job_events(site)
    series = series_of(site, kinds=["Submit", "JobFailed"])
    assert len(series) == 38 and not series.is_gap.any() and series.counts.sum(axis=0).tolist() == [38, 2]

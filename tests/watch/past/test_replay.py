from datetime import timedelta

import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.watch.job_findings import JobFindings
from stormpetrel.watch.past import replay as replaying
from stormpetrel.watch.past.replay import pages_per_week, recorded_span, replay
from tests.builders import make_site
from tests.parts.replayed_site import SICK_FROM, SICK_NODE, START, replayed_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with replayed_site(tmp_path_factory.mktemp("replay") / "site") as opened:
        yield opened


@pytest.fixture(scope="module")
def past(site):
    return replay(site)


def test_the_past_of_a_sacct_file_tells_of_its_sick_node_and_when_it_would_have_been_known(past):
    (sick,) = (incident for incident in past.incidents if FindingKind.NODE_EATS_JOBS in incident.kinds)
    assert [subject.name for subject in sick.subjects if subject.kind == SubjectKind.NODE] == [SICK_NODE]
    assert SICK_FROM < sick.known_at < SICK_FROM + timedelta(hours=24) and sick.page
    assert not any(incident.late for incident in past.incidents)
    assert past.weeks == pytest.approx(2.5, abs=0.4)
    assert pages_per_week(past.incidents, past.weeks) == pytest.approx(
        sum(len(incident.paged_at) for incident in past.incidents) / past.weeks
    )


def test_nodes_of_which_job_records_tell_are_judged_by_the_rules_over_them(past):
    """A broken script on the node that is free looks like a black hole to who counts events only."""
    named = [part for incident in past.incidents for part in incident.findings if part.kind == FindingKind.NODE_EATS_JOBS]
    assert named and {part.family for part in named} == {"jobs"}


def test_what_was_known_when_follows_from_how_often_somebody_looks(site, past):
    hourly = replay(site, every=timedelta(hours=1))
    assert [incident.findings[0].subjects for incident in hourly.incidents] == [
        one.findings[0].subjects for one in past.incidents
    ]
    later = [slow.raised_at - fast.raised_at for slow, fast in zip(hourly.incidents, past.incidents, strict=True)]
    assert all(timedelta(seconds=-5) <= wait <= timedelta(hours=1) for wait in later) and max(later) > timedelta(minutes=10)


def test_pieces_of_another_length_tell_the_same(site, past, monkeypatch):
    monkeypatch.setattr(replaying, "PIECE", timedelta(hours=31))
    pieces = replay(site)
    assert [(one.id, one.since, one.until, one.raised_at) for one in pieces.incidents] == [
        (one.id, one.since, one.until, one.raised_at) for one in past.incidents
    ]


def test_a_replay_that_ends_earlier_knows_what_the_longer_one_knew_by_then(site, past):
    cut = SICK_FROM + timedelta(hours=20)
    short = replay(site, until=cut)
    assert short.until == cut
    assert [one.raised_at for one in short.incidents] == [one.raised_at for one in past.incidents if one.raised_at <= cut]


def test_the_live_watcher_finds_what_the_replay_does(site, past):
    (sick,) = (incident for incident in past.incidents if FindingKind.NODE_EATS_JOBS in incident.kinds)
    when = next(part.known_at for part in sick.findings if (part.family, part.kind) == ("jobs", FindingKind.NODE_EATS_JOBS))
    watcher = JobFindings(site, when - timedelta(minutes=10))
    kinds = {finding.kind for finding in watcher.step(when)}
    assert FindingKind.NODE_EATS_JOBS in kinds and watcher.step(when) == []


def test_a_time_without_records_has_no_incidents_and_no_weeks(site):
    nothing = replay(site, since=START + timedelta(days=400))
    assert nothing.incidents == () and nothing.weeks == 0.0 and pages_per_week([], 0.0) is None


def test_an_empty_site_has_no_past(tmp_path):
    with make_site(tmp_path / "empty") as empty:
        assert recorded_span(empty) == (None, None)
        assert replay(empty).since is None


def test_another_future_of_the_jobs_changes_nothing_that_was_known_before_it(site, past, tmp_path):
    """All that ends later fails on one node; incidents of all families that were known by then stay as they were."""
    cut = SICK_FROM + timedelta(hours=20)
    header, *lines = site.folder.with_suffix(".txt").read_text().splitlines()
    names = header.split("|")
    state, end = names.index("State"), names.index("End")
    rows = [line.split("|") for line in lines]
    for row in rows:
        if row[end] > f"{cut:%Y-%m-%dT%H:%M:%S}" and row[state] != "RUNNING":
            row[state] = "FAILED"
    path = tmp_path / "other.txt"
    path.write_text("\n".join([header, *map("|".join, rows)]))
    with make_site(tmp_path / "other", site={"time_zone": "UTC"}) as other:
        ingest_jobs(other, SacctText(path))
        changed = replay(other)
    known = [
        (one.id, one.raised_at, [page for page in one.paged_at if page <= cut]) for one in past.incidents if one.raised_at <= cut
    ]
    assert known and known == [
        (one.id, one.raised_at, [page for page in one.paged_at if page <= cut])
        for one in changed.incidents
        if one.raised_at <= cut
    ]
    assert len(changed.incidents) > len(past.incidents)

"""Events in the replay: no look ahead, the same whatever the pieces, and what the watch itself would have told."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.events import COVERED
from stormpetrel.records.findings import FindingKind
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.watch.event_findings import EventFindings, GridWatch
from stormpetrel.watch.past import replay as replaying
from stormpetrel.watch.past.events import EventPast, past_counts
from stormpetrel.watch.past.replay import recorded_span, replay
from tests.answers.cluster_sites import SOURCE, START, put_counts
from tests.builders import make_site
from tests.parts.made_events import H0, seen_of

HOUR = timedelta(hours=1)
HOURS = 800
END = START + HOURS * HOUR
CUT = START + 690 * HOUR  # of what is found, about half lies before it
CLUSTER = GridSpec(hours=HOURS, seed=6, nodes=20, sites=2, hosts=2, groups=3, start=START, outages_per_week=1.5)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("events") / "site", site={"time_zone": "UTC"}) as opened:
        put_counts(opened, simulate_grid(CLUSTER))
        yield opened


@pytest.fixture(scope="module")
def past(site):
    return replay(site)


def told(replayed, until=END):
    """What incidents say that can be compared: of those that were known by a time."""
    return [
        (
            one.id,
            one.raised_at,
            [(part.kind, part.subject, part.known_at) for part in one.findings if part.known_at <= until],
            [page for page in one.paged_at if page <= until],
        )
        for one in replayed.incidents
        if one.raised_at <= until
    ]


def findings_until(site, until, **changes):
    return [finding for finding in EventPast(past_counts(site), START, **changes).step(END) if finding.decided_at <= until]


def changed_after(site, folder, cut, change):
    """A site with the same counts up to `cut`, and others after it."""
    rows = site.event_counts.table.scan().drop("month").collect()
    before, after = rows.filter(pl.col("bucket_start") < cut), change(rows.filter(pl.col("bucket_start") >= cut))
    copy = make_site(folder, site={"time_zone": "UTC"})
    copy.event_counts.replace(pl.concat([before, after]), source=SOURCE, start=START, end=END, bucket_s=3600)
    return copy


def test_a_table_of_counts_alone_tells_of_rules_and_of_a_model_that_was_trained_when_there_was_enough(site, past):
    assert recorded_span(site) == (START, END) and (past.since, past.until) == (START, END)
    assert past.looked_at.models == 2 and past.looked_at.buckets == HOURS and past.looked_at.jobs == 0
    odd = [one for one in EventPast(past_counts(site), START).step(END) if one.kind == FindingKind.COUNTS_ODD]
    assert odd and min(one.decided_at for one in odd) > START + 3 * timedelta(weeks=1)
    assert {one.rule for one in odd} == {"events-combined/1", "events-combined/2"}
    assert all(one.score > one.threshold for one in odd)
    first = min(incident.raised_at for incident in past.incidents)
    assert first.minute == 10 and not any(incident.late for incident in past.incidents)  # settled ten minutes after the hour


def test_without_models_only_rules_speak(site):
    rules = replay(site, models=False)
    assert rules.looked_at.models == 0
    assert rules.incidents and not any(FindingKind.COUNTS_ODD in one.kinds for one in rules.incidents)


@pytest.mark.parametrize("hours", [31, 24 * 40])
def test_pieces_of_another_length_tell_the_same(site, past, hours, monkeypatch):
    monkeypatch.setattr(replaying, "PIECE", hours * HOUR)
    assert told(replay(site)) == told(past)


def test_findings_are_the_same_in_small_steps_and_all_at_once(site):
    at_once, walked = EventPast(past_counts(site), START), EventPast(past_counts(site), START)
    steps = [finding for hour in range(1, HOURS, 17) for finding in walked.step(START + hour * HOUR)] + walked.step(END)
    whole = at_once.step(END)
    assert [(one.kind, one.subjects, one.since, one.decided_at) for one in steps] == [
        (one.kind, one.subjects, one.since, one.decided_at) for one in whole
    ]
    assert np.allclose([one.score for one in steps], [one.score for one in whole])


def _gone(rows):
    return rows.clear()


def _ten_times_as_many(rows):
    return rows.with_columns(count=pl.when(pl.col("kind") == COVERED).then("count").otherwise(10 * pl.col("count")))


def _other_names(rows):
    """New nodes, groups and hosts, and a kind that nobody has heard of."""
    named = rows.with_columns(value=pl.when(pl.col("value") != "").then("new-" + pl.col("value")).otherwise("value"))
    return pl.concat([named, rows.filter(pl.col("kind") == "Submit").with_columns(kind=pl.lit("Brandnew"))])


def _never_seen(rows):
    return rows.filter(pl.col("kind") != COVERED)


@pytest.mark.parametrize("change", [_gone, _ten_times_as_many, _other_names, _never_seen])
def test_another_future_changes_nothing_that_was_known_before_it(site, past, tmp_path, change):
    with changed_after(site, tmp_path / "other", CUT, change) as other:
        assert findings_until(other, CUT) == findings_until(site, CUT)
        assert told(replay(other), CUT) == told(past, CUT)


def test_an_outage_that_is_labelled_teaches_when_it_is_over_and_not_before(site, tmp_path):
    with changed_after(site, tmp_path / "labelled", CUT, lambda rows: rows) as labelled:
        labelled.outages.add(Outage(CUT, CUT + 3 * HOUR, OutageKind.OUTAGE, "disk"))
        assert findings_until(labelled, CUT) == findings_until(site, CUT)
        walker = EventPast(past_counts(labelled), START)
        walker.step(CUT + 2 * HOUR)
        before = walker.trained
        walker.step(CUT + 5 * HOUR)
        assert walker.trained == before + 1


def test_a_replay_that_ends_earlier_knows_what_the_longer_one_knew_by_then(site, past):
    assert told(replay(site, until=CUT), CUT) == told(past, CUT)


def test_the_watch_tells_by_its_rules_what_the_replay_does(site, monkeypatch):
    expected = [
        one for one in EventPast(past_counts(site), START, models=False).step(END) if CUT < one.decided_at < START + 745 * HOUR
    ]
    moment = CUT
    monkeypatch.setattr(site, "now", lambda: moment)
    watcher = EventFindings(site, GridWatch(site), state=f'{{"told_to": "{CUT.isoformat()}"}}')
    live = []
    while moment < START + 745 * HOUR:
        moment += HOUR
        live += watcher.step(moment)
    assert expected and [(one.kind, one.subjects, one.decided_at) for one in live] == [
        (one.kind, one.subjects, one.decided_at) for one in expected
    ]


def test_that_a_source_had_a_gap_is_not_known_before_it_speaks_again(tmp_path):
    """One host tells all the time; another stops at hour 300, and in one of two futures speaks again."""
    found = []
    for again in ((), range(360, 400)):
        with make_site(tmp_path / f"site{len(found)}", site={"time_zone": "UTC"}) as site:
            for source, hours in (("a", range(400)), ("b", [*range(300), *again])):
                rows = [(hour, "Submit", 30) for hour in hours] + [(hour, "Submit", 30, "submit_host", source) for hour in hours]
                unseen = [hour for hour in range(400) if hour not in hours]
                told_of = seen_of(rows, 0, 400, source=source, unseen=unseen)
                end = H0 + 400 * HOUR
                site.event_counts.replace(told_of, source=source, start=H0, end=end, bucket_s=3600)
            found.append(
                [one for one in EventPast(past_counts(site), H0, models=False).step(end) if one.decided_at < H0 + 350 * HOUR]
            )
    assert found[0] and found[0] == found[1]


def sacct_line(number, at):
    submit, start, end = (f"{at + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S}" for minutes in (0, 1, 5))
    return f"{number + 1}|ann|fit|COMPLETED|{submit}|{start}|{end}"


def test_records_of_jobs_that_stop_for_days_are_told_as_a_silence_whether_or_not_they_come_back_soon(tmp_path):
    """Two weeks of jobs, and then none for 30 or for 80 hours: at hour 5 nobody knows which."""
    found = []
    for pause in (30, 80):
        with make_site(tmp_path / f"pause{pause}", site={"time_zone": "UTC"}) as site:
            hours = [*range(24 * 14), *range(24 * 14 + pause, 24 * 14 + pause + 30)]
            times = [H0 + HOUR * hour + timedelta(minutes=2 * place) for hour in hours for place in range(20)]
            path = tmp_path / f"{pause}.txt"
            path.write_text("\n".join(["JobID|User|JobName|State|Submit|Start|End", *map(sacct_line, range(len(times)), times)]))
            ingest_jobs(site, SacctText(path))
            early = H0 + HOUR * (24 * 14 + 12)
            walker = EventPast(past_counts(site), H0, models=False)
            found.append([(one.kind, one.decided_at) for one in walker.step(early + 200 * HOUR) if one.decided_at < early])
    assert found[0] == found[1] and {kind for kind, _ in found[0]} == {FindingKind.SILENCE}

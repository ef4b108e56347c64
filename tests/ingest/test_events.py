from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.config import ElasticSection, GraphiteSection, Settings
from stormpetrel.errors import SourceUnavailableError, StoreBusyError
from stormpetrel.ingest import events as event_ingest
from stormpetrel.ingest.events import (
    has_event_sources,
    ingest_background,
    ingest_events,
    ingest_live_events,
    ingest_outages,
)
from stormpetrel.ingest.report import EventReport, sum_event_reports
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import BACKGROUND_SCHEMA
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.sources.contract import BackgroundSpan, CountedSpan
from stormpetrel.store.site import create_site
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR, MadeSource, counts_of, seen_of


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def span(rows, first, last, *, unseen=(), position=None, **more):
    cursor = Cursor("made", position) if position else None
    counts = seen_of(rows, first, last, unseen=unseen)
    return CountedSpan(H0 + HOUR * first, H0 + HOUR * last, counts, cursor, **more)


def submits(site):
    rows = site.event_counts.read().filter(pl.col("kind") == "Submit").sort("bucket_start").collect()
    return {(start - H0) // HOUR: count for start, count in rows.select("bucket_start", "count").iter_rows()}


AWAY = SourceUnavailableError("The server did not answer.", hint="Try again.")


def test_a_report_counts_events_and_buckets_and_says_where_the_gaps_are(site):
    missing = [(H0 + HOUR * 1, H0 + HOUR * 2, "no index")]
    first = span([(0, "Submit", 5), (2, "JobHeld", 1)], 0, 3, unseen=[1], missing=missing, quarantined={"bad_time": 2})
    report = ingest_events(site, MadeSource(first, span([(3, "Submit", 7)], 3, 5)))
    told = report.as_dict()
    assert (told["read"], told["kept"], told["quarantined"]) == (15, 4, {"bad_time": 2})
    assert told["kinds"] == {"Submit": 12, "JobHeld": 1}
    assert told["gaps"] == [{"from": missing[0][0].isoformat(), "to": missing[0][1].isoformat(), "why": "no index"}]
    assert (report.first, report.last) == (H0, H0 + HOUR * 5)
    assert site.state.past_ingests(1)[0]["source"] == "made"


def test_the_same_again_is_known_and_late_events_are_a_change(site):
    ingest_events(site, MadeSource(span([(0, "Submit", 5)], 0, 3)))
    again = ingest_events(site, MadeSource(span([(0, "Submit", 5)], 0, 3)))
    assert (again.kept, again.known, again.changed) == (0, 3, 0)
    late = ingest_events(site, MadeSource(span([(0, "Submit", 8)], 0, 3)))
    assert (late.kept, late.known, late.changed) == (0, 2, 1) and submits(site) == {0: 8}


def test_a_source_that_fails_leaves_what_was_taken_in_and_a_gap_with_the_reason(site):
    report = EventReport()
    with pytest.raises(SourceUnavailableError):
        ingest_events(site, MadeSource(span([(0, "Submit", 5)], 0, 3, position=9), AWAY), report=report)
    assert submits(site) == {0: 5} and site.event_counts.cursor("made") == 9
    assert report.kept == 3 and report.problems == ["The server did not answer. Try again."]
    (gap,) = site.event_counts.gaps(bucket_s=3600)
    assert gap.start == H0 + HOUR * 3 and gap.why == "The server did not answer."
    source = MadeSource(span([], 3, 4))
    ingest_events(site, source)
    assert source.asked == 9 and site.event_counts.gaps(bucket_s=3600)[0].start == H0 + HOUR * 4


def test_a_log_that_was_killed_after_its_commit_is_not_counted_again(site):
    first = CountedSpan(H0, H0 + HOUR, counts_of([(0, "Submit", 5)]), Cursor("made", 100), additive=True)
    second = CountedSpan(H0, H0 + HOUR, counts_of([(0, "Submit", 2)]), Cursor("made", 150), additive=True)
    with pytest.raises(KeyboardInterrupt):
        ingest_events(site, MadeSource(first, KeyboardInterrupt()))
    ingest_events(site, MadeSource(first, second))
    assert submits(site) == {0: 7}


def test_a_log_that_another_process_reads_on_meanwhile_is_not_counted_twice(site):
    class Slow(MadeSource):
        def spans(self, cursor, now):
            cursor(self.source)
            site.event_counts.add(counts_of([(0, "Submit", 5)]), cursor=Cursor("made", 100))  # the other one
            yield CountedSpan(H0, H0 + HOUR, counts_of([(0, "Submit", 9)]), Cursor("made", 200), additive=True)

    with pytest.raises(StoreBusyError):
        ingest_events(site, Slow())
    assert submits(site) == {0: 5}


def test_buckets_in_the_future_are_not_counted_and_told(site):
    ahead = site.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=3)
    counts = seen_of([(0, "Submit", 5)], 0, 2).with_columns(pl.col("bucket_start") + (ahead - H0))
    report = ingest_events(site, MadeSource(CountedSpan(ahead, ahead + HOUR * 2, counts)))
    assert report.quarantined == {"future": 5} and not submits(site) and site.event_counts.sources() == []


def test_counts_of_other_buckets_than_the_models_see_are_kept_and_told(site):
    counts = counts_of([(0, "Submit", 5)], bucket_s=86_400)
    report = ingest_events(site, MadeSource(CountedSpan(H0, H0 + HOUR, counts)))
    assert "per 1440 min" in report.notes[0] and report.kept == 1


def test_background_is_taken_in_with_its_cursor(site):
    class Graphite:
        source, notes = "graphite", ["two series were added up"]

        def spans(self, cursor, now):
            assert cursor("graphite") is None
            values = pl.DataFrame([("graphite", H0, 3600, "queued", 4.0)], schema=BACKGROUND_SCHEMA, orient="row")
            yield BackgroundSpan(H0, H0 + HOUR, values, Cursor("graphite", 12))

    report = ingest_background(site, Graphite())
    assert (report.read, report.kept, report.notes) == (1, 1, ["two series were added up"])
    assert site.event_background.cursor("graphite") == 12


def test_outages_are_asked_for_from_the_first_count_to_a_year_ahead(site):
    class Calendar:
        source, notes = "grafana", []

        def outages(self, start, end):
            self.asked = (start, end)
            return [Outage(H0, H0 + HOUR, OutageKind.OUTAGE, "power", uid="7")]

    calendar = Calendar()
    ingest_events(site, MadeSource(span([(0, "Submit", 5)], 0, 3)))
    assert ingest_outages(site, calendar).kept == 1 and ingest_outages(site, calendar).known == 1
    assert calendar.asked[0] == H0 and calendar.asked[1] > site.now() + timedelta(days=300)
    assert site.outages.list()[0].source == "grafana"


def test_live_reads_what_is_named_and_one_that_fails_keeps_no_other_out(tmp_path, monkeypatch):
    settings = Settings(
        elastic=ElasticSection(url="http://127.0.0.1:1"), graphite=GraphiteSection(url="http://x", targets=["q=a"])
    )
    good = MadeSource(span([(0, "Submit", 5)], 0, 3))
    monkeypatch.setattr(event_ingest, "_elastic", lambda site, raw: good)

    def away(site):
        raise AWAY

    monkeypatch.setattr(event_ingest, "_graphite", away)
    with create_site(tmp_path / "site", settings) as site:
        assert has_event_sources(site)
        reports = ingest_live_events(site)
        assert [bool(report.problems) for report in reports] == [False, True] and submits(site) == {0: 5}
    total = sum_event_reports(reports)
    assert total.read == 5 and total.problems == [str(AWAY)]

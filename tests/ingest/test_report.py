"""What the reports of jobs, traces and events share."""

from datetime import UTC, datetime

from stormpetrel.ingest.jobs import IngestReport
from stormpetrel.ingest.report import EventReport, IngestCounts
from stormpetrel.ingest.traces import TraceReport

JANUARY, MARCH = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)


def test_a_span_is_null_until_something_is_kept_and_then_only_grows():
    counts = IngestCounts()
    assert counts.span() == {"first": None, "last": None}
    counts.stretch(MARCH, MARCH)
    counts.stretch(JANUARY, JANUARY)
    assert counts.span() == {"first": JANUARY.isoformat(), "last": MARCH.isoformat()}


def test_every_report_says_in_the_same_words_how_much_was_read():
    for report in (IngestReport(), TraceReport(), EventReport("condor")):
        report.read, report.kept = 3, 2
        printed = report.as_dict()
        assert (printed["read"], printed["kept"], printed["known"], printed["changed"], printed["first"]) == (3, 2, 0, 0, None)

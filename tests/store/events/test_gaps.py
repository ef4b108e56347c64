import numpy as np
import polars as pl
import pytest

from stormpetrel.records.events import covered
from stormpetrel.store.events.gaps import GAP_SCHEMA, NO_REASON, coverage_of, gaps_of
from tests.parts.made_events import H0, HOUR, counts_only, seen_of


@pytest.fixture
def site(tmp_path):
    return counts_only(tmp_path)


def cover(site, first, last, unseen=()):
    counts = seen_of([], first, last, unseen=unseen)
    site.event_counts.replace(counts, source="made", start=H0 + HOUR * first, end=H0 + HOUR * last, bucket_s=3600)
    return site.event_counts.coverage(bucket_s=3600, source="made")


def say(site, seen, *missing, again=None):
    spans = [(H0 + HOUR * first, H0 + HOUR * last, why) for first, last, why in missing]
    told = None if again is None else (H0 + HOUR * again[0], H0 + HOUR * again[1])
    site.event_counts.reasons.update("made", spans, seen=seen, now=H0, again=told)


def gaps(site):
    return [((gap.start - H0) // HOUR, (gap.end - H0) // HOUR, gap.why) for gap in site.event_counts.gaps(bucket_s=3600)]


def test_a_gap_without_a_reason_is_still_a_gap(site):
    cover(site, 0, 6, unseen=[2, 3])
    assert gaps(site) == [(2, 4, NO_REASON)]


def test_a_reason_is_kept_until_the_gap_is_filled(site):
    say(site, cover(site, 0, 6, unseen=[2, 3]), (2, 4, "no index"))
    assert gaps(site) == [(2, 4, "no index")]
    say(site, cover(site, 2, 3))
    assert gaps(site) == [(3, 4, "no index")]
    say(site, cover(site, 3, 4))
    assert gaps(site) == [] and site.event_counts.reasons.read().height == 0


def test_what_a_source_tells_again_takes_the_place_of_its_old_reasons(site):
    seen = cover(site, 0, 6, unseen=[2, 3])
    say(site, seen, (2, 4, "shards away"))
    say(site, seen, (2, 4, "no index"), again=(0, 6))
    assert gaps(site) == [(2, 4, "no index")]


def test_a_server_that_stays_away_is_one_growing_reason_after_the_last_mark(site):
    seen = cover(site, 0, 3)
    for hour in (4, 5, 9):
        say(site, seen, (3, hour, "did not answer"))
    assert gaps(site) == [(3, 9, "did not answer")] and site.event_counts.reasons.read().height == 1


def test_the_same_reason_again_writes_nothing(site):
    seen = cover(site, 0, 3)
    say(site, seen, (3, 5, "did not answer"))
    version = site.event_counts.reasons.table.version()
    say(site, seen, (3, 5, "did not answer"))
    assert site.event_counts.reasons.table.version() == version


def test_reasons_from_outside_are_bounded_and_hold_no_control_characters(site):
    say(site, cover(site, 0, 3), (3, 5, "\x1b[31m" + "x" * 5000))
    (gap,) = gaps(site)
    assert gap[2].isprintable() and len(gap[2]) <= 300


def test_gaps_are_cut_to_the_time_asked_for(site):
    say(site, cover(site, 0, 10, unseen=[2, 3, 7]), (2, 4, "no index"))
    found = site.event_counts.gaps(bucket_s=3600, since=H0 + HOUR * 3, until=H0 + HOUR * 7)
    assert [(gap.start, gap.end) for gap in found] == [(H0 + HOUR * 3, H0 + HOUR * 4)]


def test_without_marks_there_is_no_coverage_and_reasons_alone_make_gaps():
    empty = coverage_of(covered("made", H0, H0, 3600).select("source", "bucket_start"), 3600)
    assert empty.whole.size == 0 and empty.start_s.dtype == np.int64
    reasons = pl.DataFrame([("made", H0, H0 + HOUR * 2, "away", H0)], schema=GAP_SCHEMA, orient="row")
    assert [(gap.start, gap.end, gap.why) for gap in gaps_of(empty, reasons)] == [(H0, H0 + HOUR * 2, "away")]
    assert gaps_of(empty, reasons.clear()) == []

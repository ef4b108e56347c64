import json
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import StoreBusyError, UsageError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.events import COUNT_KEY, COUNT_SCHEMA, COVERED
from stormpetrel.store.events import counts as event_counts
from stormpetrel.store.tables import Committed
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import compact, forget, retain
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR, counts_of, counts_only, seen_of


@pytest.fixture
def site(tmp_path):
    return counts_only(tmp_path)


@pytest.fixture
def whole_site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def replace(site, counts, first=0, last=24, *, source="made", **more):
    start, end = H0 + HOUR * first, H0 + HOUR * last
    return site.event_counts.replace(counts, source=source, start=start, end=end, bucket_s=3600, **more)


def stored(site, **more):
    return site.event_counts.read(places=True, **more).collect().sort(COUNT_KEY)


def told(site):
    """(hours after H0, kind, value) -> count, marks left out."""
    rows = stored(site).filter(pl.col("kind") != COVERED).select("bucket_start", "kind", "value", "count")
    return {((start - H0) // HOUR, kind, value): count for start, kind, value, count in rows.iter_rows()}


def test_counts_come_back_as_they_went_in_over_the_end_of_a_month(site):
    counts = seen_of([(hour, "Submit", hour + 1) for hour in range(24)] + [(3, "Submit", 4, "site", "FNAL")], 0, 24)
    assert replace(site, counts) == Committed(kept=24)
    assert stored(site).equals(counts.sort(COUNT_KEY)) and stored(site).schema == COUNT_SCHEMA
    assert site.event_counts.table.scan().collect()["month"].unique().sort().to_list() == ["2024-03", "2024-04"]
    assert site.event_counts.sources() == ["made"]


def test_the_same_counts_again_write_nothing(site):
    counts = seen_of([(0, "Submit", 5)], 0, 24)
    replace(site, counts, cursor=Cursor("made", 7))
    version = site.event_counts.table.version()
    assert replace(site, counts, cursor=Cursor("made", 7)) == Committed(known=24)
    assert site.event_counts.table.version() == version


def test_a_span_told_again_replaces_what_was_said_and_what_vanished_is_gone(site):
    replace(site, seen_of([(0, "Submit", 5), (1, "Submit", 6), (1, "JobHeld", 2), (5, "Submit", 1)], 0, 6), last=6)
    again = seen_of([(0, "Submit", 5), (1, "Submit", 9), (1, "Execute", 1)], 0, 3)
    assert replace(site, again, last=3) == Committed(known=2, changed=1)
    assert told(site) == {(0, "Submit", ""): 5, (1, "Submit", ""): 9, (1, "Execute", ""): 1, (5, "Submit", ""): 1}
    marks = stored(site).filter(pl.col("kind") == COVERED)
    assert marks.height == 6 and marks["count"].to_list()[:2] == [5, 10]


def test_very_many_rows_are_taken_month_by_month_to_the_same_end(site, tmp_path, monkeypatch):
    counts = seen_of([(hour, "Submit", hour + 1) for hour in range(0, 60 * 24, 5)], 0, 60 * 24)
    assert replace(site, counts, last=60 * 24, cursor=Cursor("made", 3)) == Committed(kept=60 * 24)
    monkeypatch.setattr(event_counts, "_AT_ONCE", 100)
    (tmp_path / "other").mkdir()
    other = counts_only(tmp_path / "other")
    assert replace(other, counts, last=60 * 24, cursor=Cursor("made", 3)) == Committed(kept=60 * 24)
    assert stored(other).equals(stored(site)) and other.event_counts.cursor("made") == 3
    assert other.event_counts.table.version() == 3 and site.event_counts.table.version() == 1
    assert replace(other, counts, last=60 * 24, cursor=Cursor("made", 3)) == Committed(known=60 * 24)


def test_what_was_seen_whole_is_not_replaced_by_half_a_look(site):
    replace(site, seen_of([(0, "Submit", 5), (1, "Submit", 6)], 0, 2), last=2)
    half = seen_of([(0, "Submit", 7), (1, "Submit", 1)], 0, 2, unseen=[1])
    assert replace(site, half, last=2) == Committed(changed=1)
    assert told(site) == {(0, "Submit", ""): 7, (1, "Submit", ""): 6}


def test_one_source_does_not_touch_another(site):
    replace(site, seen_of([(0, "Submit", 5)], 0, 2), last=2)
    assert replace(site, seen_of([(0, "Submit", 3)], 0, 2, source="other"), last=2, source="other") == Committed(kept=2)
    assert stored(site).filter(pl.col("kind") == "Submit")["count"].sort().to_list() == [3, 5]


def test_a_cursor_moves_with_the_rows_and_never_back(site):
    replace(site, seen_of([(0, "Submit", 5)], 0, 2), last=2, cursor=Cursor("made", 20))
    replace(site, seen_of([(0, "Submit", 6)], 0, 1), last=1, cursor=Cursor("made", 10))
    assert site.event_counts.cursor("made") == 20 and told(site)[(0, "Submit", "")] == 6


def test_events_of_a_log_are_added_up_and_a_mark_counts_them(site):
    first = counts_of([(0, "Submit", 5), (1, "Submit", 2), (1, "Submit", 2, "node", "n1")])
    assert site.event_counts.add(first, cursor=Cursor("log", 100)) == Committed(kept=2)
    second = seen_of([(1, "Submit", 3), (1, "Submit", 3, "node", "n1"), (2, "Execute", 1)], 1, 2)
    assert site.event_counts.add(second, cursor=Cursor("log", 200)) == Committed(kept=1, changed=1)
    assert told(site) == {(0, "Submit", ""): 5, (1, "Submit", ""): 5, (1, "Submit", "n1"): 5, (2, "Execute", ""): 1}
    late = counts_of([(1, "JobHeld", 4)])
    site.event_counts.add(late, cursor=Cursor("log", 300))
    assert stored(site).filter(pl.col("kind") == COVERED)["count"].to_list() == [9]


def test_a_log_that_is_read_twice_counts_once(site):
    counts = counts_of([(0, "Submit", 5)])
    site.event_counts.add(counts, cursor=Cursor("log", 100))
    version = site.event_counts.table.version()
    assert site.event_counts.add(counts, cursor=Cursor("log", 100)) == Committed(known=1)
    assert site.event_counts.add(counts, cursor=Cursor("log", 40)) == Committed(known=1)
    assert told(site) == {(0, "Submit", ""): 5} and site.event_counts.table.version() == version
    assert site.event_counts.add(counts, cursor=Cursor("another log", 40)) == Committed(changed=1)
    assert told(site) == {(0, "Submit", ""): 10}


def test_rows_and_cursor_are_one_commit(site):
    site.event_counts.add(counts_of([(0, "Submit", 5)]), cursor=Cursor("log", 100))
    site.event_counts.add(seen_of([(0, "Submit", 1)], 0, 1), cursor=Cursor("log", 200))
    log = site.event_counts.table.path / "_delta_log"
    for entry in sorted(log.glob("*.json"))[1:]:
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        assert any("txn" in action for action in actions) and any("add" in action for action in actions)


def test_two_readers_of_one_log_do_not_count_it_twice(site):
    site.event_counts.add(counts_of([(0, "Submit", 5)]), cursor=Cursor("log", 100), after=None)
    with pytest.raises(StoreBusyError, match="read on"):
        site.event_counts.add(counts_of([(0, "Submit", 8)]), cursor=Cursor("log", 150), after=None)
    assert told(site) == {(0, "Submit", ""): 5}
    site.event_counts.add(counts_of([(0, "Submit", 1)]), cursor=Cursor("log", 150), after=100)
    assert told(site) == {(0, "Submit", ""): 6}


def test_a_count_below_zero_is_refused_as_a_whole(site):
    with pytest.raises(UsageError, match="below zero"):
        site.event_counts.add(counts_of([(0, "Submit", 5), (1, "Submit", -2)]), cursor=Cursor("log", 100))
    assert not told(site) and site.event_counts.cursor("log") is None


def test_a_span_is_read_by_its_buckets_and_places_only_if_asked_for(site):
    replace(site, seen_of([(hour, "Submit", 1) for hour in range(6)] + [(2, "Submit", 1, "node", "n")], 0, 6), last=6)
    part = site.event_counts.read(since=H0 + HOUR * 2, until=H0 + HOUR * 4, bucket_s=3600).collect()
    assert part.height == 4 and set(part["place"]) == {""}
    assert site.event_counts.read(bucket_s=60).collect().height == 0


def test_a_backup_brings_counts_reasons_and_cursor_back(whole_site, tmp_path):
    replace(whole_site, seen_of([(0, "Submit", 5)], 0, 6, unseen=[3]), cursor=Cursor("made", 9))
    coverage = whole_site.event_counts.coverage(bucket_s=3600)
    whole_site.event_counts.reasons.update("made", [(H0 + HOUR * 3, H0 + HOUR * 4, "no index")], seen=coverage, now=H0)
    backup(whole_site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "new") as back:
        assert stored(back).equals(stored(whole_site)) and back.event_counts.cursor("made") == 9
        assert [gap.why for gap in back.event_counts.gaps(bucket_s=3600)] == ["no index"]


def test_compaction_keeps_every_count_and_the_cursor(whole_site):
    for hour in range(5):
        whole_site.event_counts.add(counts_of([(hour, "Submit", 1)]), cursor=Cursor("log", hour + 1))
    before = stored(whole_site)
    done = {entry.table: entry for entry in compact(whole_site)}
    assert done["event_counts"].files_before == 5 and done["event_counts"].files_after == 1
    assert stored(whole_site).equals(before) and whole_site.event_counts.cursor("log") == 5


def test_retention_deletes_old_counts(whole_site):
    ago = (whole_site.now() - H0).days
    replace(whole_site, seen_of([(0, "Submit", 5), (20, "Submit", 6)], 0, 24))
    recent = whole_site.now().replace(minute=0, second=0, microsecond=0) - HOUR * 5
    moved = seen_of([(0, "Submit", 7)], 0, 2).with_columns(pl.col("bucket_start") + (recent - H0))
    whole_site.event_counts.replace(moved, source="made", start=recent, end=recent + HOUR * 2, bucket_s=3600)
    retain(whole_site, days=max(1, ago - 3))
    assert stored(whole_site).filter(pl.col("kind") == "Submit")["count"].to_list() == [7]


def test_a_forgotten_user_leaves_no_account_of_that_name(whole_site):
    rows = [
        (0, "Submit", 5),
        (0, "Submit", 3, "group", "ada"),
        (0, "Submit", 1, "group", "(other)"),
        (0, "Submit", 1, "group", "adam"),
    ]
    replace(whole_site, seen_of(rows, 0, 1), last=1)
    forget(whole_site, "ada")
    assert told(whole_site) == {(0, "Submit", ""): 5, (0, "Submit", "(other)"): 4, (0, "Submit", "adam"): 1}
    files = list(whole_site.event_counts.table.path.rglob("*.parquet"))
    assert files and not any("ada" in pl.read_parquet(path, hive_partitioning=False)["value"].to_list() for path in files)


def test_a_bucket_is_whole_when_every_source_around_it_has_seen_it(site):
    replace(site, seen_of([(1, "Submit", 1)], 0, 6))
    replace(site, seen_of([(2, "Submit", 1)], 1, 4, source="other", unseen=[2]), source="other")
    whole = site.event_counts.coverage(bucket_s=3600)
    assert whole.whole.tolist() == [True, True, False, True, True, True]
    alone = site.event_counts.coverage(bucket_s=3600, source="other")
    assert alone.whole.tolist() == [True, False, True]
    assert [(gap.start, gap.end, gap.sources) for gap in site.event_counts.gaps(bucket_s=3600)] == [
        (H0 + HOUR * 2, H0 + HOUR * 3, ("other",))
    ]


def test_seen_says_from_when_to_when_each_source_has_looked(site):
    replace(site, seen_of([(1, "Submit", 4)], 0, 6))
    row = site.event_counts.seen().row(0, named=True)
    assert row == {"source": "made", "bucket_s": 3600, "buckets": 6, "first": H0, "last": H0 + HOUR * 5, "events": 4}
    assert row["last"] - row["first"] == timedelta(hours=5)

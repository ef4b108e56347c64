from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.events import (
    COUNT_KEY,
    COUNT_SCHEMA,
    COVERED,
    EVENT_SCHEMA,
    OTHER_VALUES,
    WHOLE,
    bucket_ceil,
    bucket_floor,
    count_events,
    covered,
    no_counts,
    set_aside,
)

T0 = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


def events(*rows):
    """Events of (minutes after T0, kind, node)."""
    return pl.DataFrame(
        [
            (None if minutes is None else T0 + timedelta(minutes=minutes), kind, None, None, None, node)
            for minutes, kind, node in rows
        ],
        schema=EVENT_SCHEMA,
        orient="row",
    )


def counted(frame, **more):
    return count_events(frame, source="s", **{"bucket_s": 3600, "most_places": 5, **more})


def told(counts):
    return {(row["bucket_start"].hour, row["kind"], row["value"]): row["count"] for row in counts.iter_rows(named=True)}


@pytest.mark.parametrize("bucket_s", [60, 300, 3600, 21_600, 86_400])
def test_a_bucket_begins_at_the_same_moment_for_a_time_and_for_a_column(bucket_s):
    moments = [T0, T0 - timedelta(microseconds=1), datetime(1969, 12, 31, 23, tzinfo=UTC)]
    column = pl.DataFrame({"time": moments}, schema={"time": EVENT_SCHEMA["time"]}).select(bucket_floor(pl.col("time"), bucket_s))
    assert column["time"].to_list() == [bucket_floor(moment, bucket_s) for moment in moments]
    assert all(floor.timestamp() % bucket_s == 0 for floor in column["time"])


def test_the_end_of_a_bucket_is_its_own_ceiling():
    assert bucket_ceil(T0, 3600) == T0 + timedelta(minutes=30)
    assert bucket_ceil(T0 + timedelta(minutes=30), 3600) == T0 + timedelta(minutes=30)


def test_events_are_counted_as_a_whole_and_by_place_and_an_unknown_place_only_as_a_whole():
    counts = counted(events((0, "Submit", "n1"), (10, "Submit", None), (40, "Submit", "n1"), (0, "Execute", "n2")))
    assert counts.schema == COUNT_SCHEMA
    assert told(counts) == {
        (0, "Submit", ""): 2,
        (0, "Submit", "n1"): 1,
        (1, "Submit", ""): 1,
        (1, "Submit", "n1"): 1,
        (0, "Execute", ""): 1,
        (0, "Execute", "n2"): 1,
    }


def test_beyond_the_most_frequent_places_the_others_are_one_whatever_the_order():
    rows = [(1, "Execute", f"n{node}") for node in range(9) for _ in range(9 - node)]
    forward, backward = counted(events(*rows), most_places=3), counted(events(*reversed(rows)), most_places=3)
    nodes = {value: count for (_, _, value), count in told(forward).items()}
    assert nodes == {"": 45, "n0": 9, "n1": 8, "n2": 7, OTHER_VALUES: 21}
    assert forward.equals(backward)


def test_names_are_trimmed_cut_and_never_taken_for_a_mark():
    counts = counted(events((0, " Submit ", "n1"), (0, "Submit", " n1"), (0, "  ", "n1"), (0, "X" * 5000, " ")))
    kinds = set(counts["kind"])
    assert COVERED not in kinds and kinds == {"Submit", "X" * 200}
    assert told(counts)[(0, "Submit", "n1")] == 2 and not counts.select(COUNT_KEY).is_duplicated().any()


def test_clocks_in_the_future_and_times_that_are_none_are_set_aside_with_the_reason():
    now = T0 + timedelta(hours=1)
    frame = events(
        (0, "Submit", "a"), (64, "Submit", "a"), (66, "Submit", "a"), (None, "Submit", "a"), (1, " ", "a"), (2, None, "a")
    )
    kept, aside = set_aside(frame, now=now)
    assert kept.height == 2 and aside == {"future": 1, "bad_time": 1, "no_kind": 2}
    assert set_aside(kept, now=now) == (kept, {}) or set_aside(kept, now=now)[1] == {}


def test_only_whole_buckets_are_marked_and_a_mark_tells_how_many_events_its_bucket_holds():
    counts = counted(events((0, "Submit", "n1"), (40, "Submit", "n1"), (45, "Execute", None)))
    marks = covered("s", T0, T0 + timedelta(hours=3), 3600, counts)
    assert marks.select("kind", "place", "value").unique().rows() == [(COVERED, WHOLE, "")]
    assert [(start.hour, n) for start, n in marks.select("bucket_start", "count").iter_rows()] == [(1, 2), (2, 0)]
    assert covered("s", T0, T0 + timedelta(minutes=80), 3600).height == 0


def test_no_events_are_no_counts():
    assert counted(events()).equals(no_counts())

"""Tables of raw events and tables of counts: every shape that people have, zeros and gaps told apart, bad rows named."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import settings_from
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, EVENT_SCHEMA, WHOLE, count_events
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.tables.event_tables import CountTable, EventTable

NOW = datetime(2025, 6, 1, tzinfo=UTC)
DAY = datetime(2025, 1, 1, tzinfo=UTC)


def span_of(source: EventTable | CountTable) -> CountedSpan:
    [span] = source.spans(lambda _name: None, NOW)
    assert span.counts.schema == COUNT_SCHEMA and not span.additive
    return span


def counted(path: Path, text: str | bytes, *, zone: str = "UTC", minutes: int = 60) -> tuple[CountedSpan, CountTable]:
    path = path / "counts.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    table = CountTable(path, settings_from({"site": {"time_zone": zone}, "events": {"bucket_minutes": minutes}}))
    return span_of(table), table


def whole(span: CountedSpan) -> dict[tuple[int, str], int]:
    """Hour since the day began, kind: count."""
    rows = span.counts.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED)
    hours = [int((at - DAY) / timedelta(hours=1)) for at in rows["bucket_start"]]
    return dict(zip(zip(hours, rows["kind"], strict=True), rows["count"], strict=True))


def marked(span: CountedSpan) -> list[int]:
    times = span.counts.filter(pl.col("kind") == COVERED)["bucket_start"].sort()
    return [int((at - DAY) / timedelta(hours=1)) for at in times]


def test_wide_table_has_a_column_per_kind(tmp_path: Path) -> None:
    span, table = counted(tmp_path, "time,Submit,ExecuteEvent\n2025-01-01 00:00:00,3,0\n2025-01-01 01:00:00,0,2\n")
    assert whole(span) == {(0, "Submit"): 3, (0, "Execute"): 0, (1, "Submit"): 0, (1, "Execute"): 2}
    assert marked(span) == [0, 1] and table.source == "table:counts.csv"
    assert (span.start, span.end) == (DAY, DAY + timedelta(hours=2))


def test_empty_cell_or_missing_row_is_a_gap_and_a_zero_is_a_zero(tmp_path: Path) -> None:
    text = (
        "time;Submit;Execute\n2025-01-01T00:00:00;0;0\n2025-01-01T01:00:00;;4\n2025-01-01T03:00:00;1;1\n2025-01-01T04:00:00;1;1\n"
    )
    span, _ = counted(tmp_path, text)
    assert marked(span) == [0, 3, 4] and (1, "Submit") not in whole(span)


def test_gap_of_a_table_says_why(tmp_path: Path) -> None:
    rows = ["00:00,0,0", "01:00,,4", "02:00,,", "03:00,1,-1", "05:00,1,1", "06:00,1,1", "07:00,1,"]
    span, _ = counted(tmp_path, "time,Submit,Execute\n" + "".join(f"2025-01-01 {row}\n" for row in rows))
    hours = [((begin - DAY) // timedelta(hours=1), (end - DAY) // timedelta(hours=1), why) for begin, end, why in span.missing]
    assert marked(span) == [0, 5, 6] and hours == [
        (1, 3, "empty in the file"),
        (3, 4, "something that is no count in the file"),
        (4, 5, "no row in the file"),
        (7, 8, "empty in the file"),
    ]


@pytest.mark.parametrize(
    "style",
    ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d %H:%M+00:00", "%Y/%m/%d %H:%M", "%Y-%m-%d %H:%M:%S UTC"],
)
def test_times_are_read_as_people_and_spreadsheets_write_them(tmp_path: Path, style: str) -> None:
    rows = [f"{(DAY + timedelta(hours=hour)).strftime(style)},{hour}\n" for hour in range(4)]
    span, _ = counted(tmp_path, "time,Submit\n" + "".join(rows))
    assert whole(span) == {(hour, "Submit"): hour for hour in range(4)} and not span.quarantined


def test_days_need_no_clock(tmp_path: Path) -> None:
    span, _ = counted(tmp_path, "date,Submit\n2025-01-01,2\n2025-01-02,3\n", minutes=1440)
    assert whole(span) == {(0, "Submit"): 2, (24, "Submit"): 3} and marked(span) == [0, 24]


def test_table_that_counts_by_place_only_has_its_whole_from_the_sums(tmp_path: Path) -> None:
    rows = ["00:00,Submit,3,site,a", "00:00,Submit,4,site,b", "01:00,Submit,1,site,a", "01:00,Submit,2,group,x"]
    span, table = counted(tmp_path, "time,kind,count,place,value\n" + "".join(f"2025-01-01 {row}\n" for row in rows))
    assert whole(span) == {(0, "Submit"): 7, (1, "Submit"): 1} and "sum over each site" in table.notes[0]


def test_names_of_places_are_text_and_bounded(tmp_path: Path) -> None:
    text = f"time,kind,count,place,value\n2025-01-01 00:00,Submit,3,,\n2025-01-01 00:00,Submit,3,node,n\x1b[2J{'x' * 5000}\n"
    span, _ = counted(tmp_path, text)
    (value,) = span.counts.filter(pl.col("place") == "node")["value"]
    assert value.isprintable() and len(value) <= 200


def test_event_of_a_clock_that_was_years_behind_makes_no_years_of_zeros(tmp_path: Path) -> None:
    times = ["2001-01-01 00:00:07", *(f"2025-01-01 0{hour}:30:00" for hour in range(5))]
    path = tmp_path / "events.csv"
    path.write_text("time,kind\n" + "".join(f"{at},Submit\n" for at in times))
    span = span_of(EventTable(path, settings_from({})))
    assert marked(span) == [0, 1, 2, 3] and [why for _, _, why in span.missing] == ["no event in 210,383 h"]


def test_long_table_has_a_row_per_kind_and_may_say_where(tmp_path: Path) -> None:
    text = (
        "timestamp,kind,count,place,value\n2025-01-01T00:00:00Z,JobHeld,7,,\n2025-01-01T00:00:00Z,JobHeld,5,node,n1\n"
        "2025-01-01T01:00:00Z,Submit,1,,\n2025-01-01T01:00:00Z,Submit,1,planet,mars\n"
    )
    span, table = counted(tmp_path, text)
    assert whole(span) == {(0, "JobHeld"): 7, (1, "Submit"): 1} and marked(span) == [0, 1]
    assert span.counts.filter(pl.col("place") == "node").select("value", "count").rows() == [("n1", 5)]
    assert "Places other than" in table.notes[0]


def test_bad_rows_are_named_and_good_ones_kept(tmp_path: Path) -> None:
    rows = [
        "2025-01-01 05:00:00,7.0,1", "2025-01-01 00:00:00,1,2", "2025-01-01 01:00:00,-1,0", "2025-01-01 02:00:00,1.5,0",
        "2025-01-01 03:00:00,many,0", "2025-01-01 04:00:00,5,1", "2025-01-01 04:00:00,9,1", "someday,1,1",
        "2099-01-01 00:00:00,1,1",
    ]  # fmt: skip
    span, _ = counted(tmp_path, "time,Submit,Execute\n" + "\n".join(rows) + "\n")
    assert span.quarantined == {"bad_count": 3, "duplicate": 2, "bad_time": 1, "future": 1}
    assert marked(span) == [0, 4, 5] and whole(span)[4, "Submit"] == 5 and whole(span)[5, "Submit"] == 7


def test_column_that_holds_no_counts_is_left_out_and_said(tmp_path: Path) -> None:
    span, table = counted(tmp_path, "time,Submit,comment\n2025-01-01 00:00:00,3,calm\n2025-01-01 01:00:00,3,\n")
    assert marked(span) == [0, 1] and table.notes == ["Columns that are no counts are left out: comment."]


def test_minutes_become_hours_where_all_of_them_are_there(tmp_path: Path) -> None:
    times = [DAY + timedelta(minutes=15 * step) for step in range(12) if step != 5]
    span, _ = counted(tmp_path, "time,Submit\n" + "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},2\n" for at in times))
    assert whole(span) == {(0, "Submit"): 8, (1, "Submit"): 6, (2, "Submit"): 8} and marked(span) == [0, 2]


def test_days_stay_days(tmp_path: Path) -> None:
    span, _ = counted(tmp_path, "date,Submit\n2025-01-01T00:00:00,2\n2025-01-02T00:00:00,3\n")
    assert span.counts["bucket_s"].unique().to_list() == [86_400]


def test_times_without_an_offset_are_in_the_zone_of_the_site(tmp_path: Path) -> None:
    span, _ = counted(tmp_path, "time,Submit\n2025-01-01 01:00:00,2\n2025-01-01 02:00:00,3\n", zone="Europe/Berlin")
    assert whole(span) == {(0, "Submit"): 2, (1, "Submit"): 3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "no column for the time"),
        ("time,Submit\n2025-01-01 00:00:00,1\n2025-01-01 00:00:07,1\n2025-01-01 00:00:14,1\n", "does not divide a day"),
        ("time,comment\n2025-01-01 00:00:00,x\n", "no column of counts"),
        ("", "is empty"),
    ],
)
def test_table_that_is_none_is_one_clear_sentence(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SourceFormatError, match=why):
        counted(tmp_path, text)


def raw_events(count: int = 500) -> pl.DataFrame:
    kinds = ["Submit", "Execute", "JobTerminated", "Brand-new"]
    return pl.DataFrame(
        {
            "time": [DAY + timedelta(seconds=97 * row) for row in range(count)],
            "kind": [kinds[row % 4] for row in range(count)],
            "site": ["FNAL" if row % 3 else None for row in range(count)],
            "submit_host": ["ap1"] * count,
            "group": [f"g{row % 5}" for row in range(count)],
            "node": [f"n{row % 50}" for row in range(count)],
        },
        schema=EVENT_SCHEMA,
    )


def events_in(path: Path, most: int = 10) -> CountedSpan:
    return span_of(EventTable(path, settings_from({"events": {"most_places": most}})))


@pytest.mark.parametrize("form", ["csv", "csv.gz", "ndjson", "parquet", "documents"])
def test_raw_events_of_every_format_are_counted_alike(tmp_path: Path, form: str) -> None:
    events = raw_events()
    path = tmp_path / f"events.{form}"
    written = events.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S.250Z"))
    theirs = written.with_columns(pl.col("kind") + "Event").rename(
        {"time": "EventTime", "kind": "MyType", "group": "Jobsub_Group"}
    )
    if form == "csv":
        theirs.write_csv(path)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(written.write_csv().encode()))
    elif form == "ndjson":
        theirs.write_ndjson(path)
    elif form == "parquet":
        events.write_parquet(path)
    else:
        theirs.select(pl.struct(pl.all()).alias("_source")).write_ndjson(path)
    span = events_in(path)
    expected = count_events(events, source=f"table:events.{form}", bucket_s=3600, most_places=10)
    marks = pl.col("kind") == COVERED
    order = ["bucket_start", "place", "kind", "value"]
    assert span.counts.filter(~marks).sort(order).equals(expected.sort(order))
    assert marked(span) == list(range(13)) and not span.quarantined


def test_raw_event_that_cannot_be_counted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    good = [f"2025-01-01T0{hour}:30:00Z,Submit\n" for hour in range(5)]
    bad = "2099-01-01T00:00:00Z,Submit\nyesterday,Submit\n2025-01-01T01:00:00Z,\n"
    path.write_text("time,kind\n" + good[0] + bad + "".join(good[1:]))
    span = events_in(path)
    assert span.quarantined == {"future": 1, "bad_time": 1, "no_kind": 1}
    assert sum(whole(span).values()) == 5 and marked(span) == [1, 2, 3]


def test_damaged_object_is_named_and_its_neighbours_count(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text(
        '{"time":"2025-01-01T00:30:00Z","kind":"Submit"}\n{"time":"2025-01\n{"time":"2025-01-01T02:30:00Z","kind":"Submit"}\n'
    )
    span = events_in(path)
    assert span.quarantined == {"bad_record": 1} and sum(whole(span).values()) == 2


def test_event_028_is_what_it_tells_of_and_a_bad_end_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(
        "@timestamp,MyType,EventTypeNumber,TriggerEventTypeNumber,ReturnValue,TerminatedNormally\n"
        "2025-01-01T00:30:00Z,JobAdInformationEvent,28,12,,\n2025-01-01T00:31:00Z,JobTerminatedEvent,5,,3,true\n"
        "2025-01-01T00:32:00Z,JobTerminatedEvent,5,,0,true\n2025-01-01T00:33:00Z,JobTerminatedEvent,5,,,false\n"
    )
    assert whole(events_in(path)) == {(0, "JobHeld"): 1, (0, "JobTerminated"): 3, (0, "JobFailed"): 2}


def test_numbers_of_events_and_unix_times_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    second = int(DAY.timestamp()) + 60
    path.write_text(f"timestamp,EventTypeNumber\n{second},0\n{second * 1000},1\n{second + 1},99\n")
    assert whole(events_in(path)) == {(0, "Submit"): 1, (0, "Execute"): 1, (0, "Event099"): 1}


def test_names_are_shown_as_text_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("time,kind,node\n2025-01-01T00:30:00Z,Submit,slot1@n7\n2025-01-01T00:30:00Z,Submit,a\x1bb" + "x" * 500 + "\n")
    values = events_in(path).counts.filter(pl.col("place") == "node")["value"].to_list()
    assert "n7" in values and all(value.isprintable() and len(value) <= 200 for value in values)


def test_table_without_a_kind_says_what_it_found(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("time,colour\n2025-01-01T00:30:00Z,red\n")
    with pytest.raises(SourceFormatError, match=r"no column for the kind.*time, colour"):
        events_in(path)


def test_what_cannot_be_counted_is_shown_with_its_place(tmp_path: Path) -> None:
    text = "time,Submit\n2025-01-01 00:00,1\n2025-01-01 01:00,-5\n2025-01-01 02:00,2.5\nnever,1\n2025-01-01 03:00,abc\n"
    _, table = counted(tmp_path, text)
    assert "No times: 'never'." in table.notes
    assert (
        "No counts in the column Submit: '-5' at 2025-01-01 01:00 UTC, '2.5' at 2025-01-01 02:00 UTC, "
        "'abc' at 2025-01-01 03:00 UTC." in table.notes
    )

"""Counts by Elasticsearch and OpenSearch: each event once, zeros told from gaps, whatever the server does meanwhile."""

import os
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.config import EventsSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, OTHER_VALUES, WHOLE
from stormpetrel.sources.elastic.counts import ElasticEvents
from stormpetrel.sources.elastic.server import SearchServer
from tests.parts.elastic import VERSIONS, ElasticServer, RealServer, kinds_of, make_grid_documents, millis, served

START = datetime(2025, 1, 6, tzinfo=UTC)
REAL = os.environ.get("STORMPETREL_TEST_ES_URL", "")
SERVERS = [*VERSIONS, *([("real", REAL)] if REAL else [])]


@pytest.fixture(params=SERVERS, ids=lambda one: " ".join(one) if one[0] != "real" else "real")
def any_server(request, tmp_path):
    """Each version of the loopback server, and the real one where there is one."""
    flavour, version = request.param
    if flavour == "real":
        real = RealServer(version, tmp_path)
        yield real
        real.remove()
    else:
        with served(ElasticServer(flavour, version)) as server:
            yield server


@pytest.fixture
def server():
    with served(ElasticServer()) as one:
        yield one


def source_of(server, *, bucket_minutes=60, most_places=100, overlap_hours=2.0, **settings):
    events = EventsSection(
        since="2025-01-01", bucket_minutes=bucket_minutes, most_places=most_places, overlap_hours=overlap_hours, settle_minutes=10
    )
    section = server.settings(**settings)
    return ElasticEvents(section, events, server=SearchServer(section, pause=lambda _: None))


def read(source, *, now, cursor=None):
    return list(source.spans(lambda _: cursor, now))


def counted(spans, **columns):
    """Counts of all spans, without marks unless asked for, as a frame."""
    counts = pl.concat([span.counts for span in spans])
    assert counts.schema == COUNT_SCHEMA
    counts = counts if columns.pop("marks", False) else counts.filter(pl.col("kind") != COVERED)
    return counts.filter(**columns) if columns else counts


def totals(spans, **columns):
    """kind: events, over all buckets."""
    frame = counted(spans, **{"place": WHOLE, **columns}).group_by("kind").agg(pl.col("count").sum())
    return dict(frame.iter_rows())


def marks(spans):
    """The hours that were seen whole, counted from START, and how many events each holds."""
    frame = counted(spans, marks=True).filter(pl.col("kind") == COVERED)
    return {
        round((start - START) / timedelta(hours=1)): count for start, count in frame.select("bucket_start", "count").iter_rows()
    }


# --- what the server counts ---------------------------------------------------------------------------------------------------


def test_counts_and_places_are_those_of_the_documents_on_every_version(any_server):
    documents = make_grid_documents(START, 5, copies=True)
    any_server.put("grid-2025.01.06", documents)
    source = source_of(any_server, page_size=10)
    spans = read(source, now=START + timedelta(hours=5, minutes=30))
    once = kinds_of([document for document in documents if "TriggerEventTypeName" not in document])
    assert totals(spans) == {**once, "JobFailed": 5}
    by_host = counted(spans, place="submit_host", kind="Execute").group_by("value").agg(pl.col("count").sum())
    assert dict(by_host.iter_rows()) == {"schedd-0": 5, "schedd-1": 5}
    assert set(counted(spans, place="site")["value"]) == {"site-0", "site-1"}
    assert marks(spans) == dict.fromkeys(range(5), 7)
    assert source.notes == [] and all(not span.missing and not span.additive for span in spans)
    position = round((START + timedelta(hours=5)).timestamp() * 1e6)
    assert spans[-1].cursor == (type(spans[-1].cursor))(source.source, position) and spans[-1].done == 1


def test_raw_documents_give_the_same_counts_on_every_version(any_server):
    documents = make_grid_documents(START, 3, copies=True)
    any_server.put("grid-2025.01.06", documents)
    source = source_of(any_server, page_size=10)
    frames = list(source.events(START, START + timedelta(hours=3)))
    events = pl.concat(frames)
    spans = read(source, now=START + timedelta(hours=4))
    assert dict(events["kind"].value_counts().iter_rows()) == totals(spans)
    assert set(events["site"]) == {"site-0", "site-1"} and events["node"].null_count() == events.height
    raw = list(source.documents(START, START + timedelta(hours=3), fields=["MyType"]))
    assert len(raw) == len(documents) and set(raw[0]) == {"MyType", "_index", "_id"}


def test_documents_that_repeat_an_event_count_once_on_every_version(any_server):
    documents = [{**one, "event_id": f"e{place}"} for place, one in enumerate(make_grid_documents(START, 2))]
    any_server.put("grid-a", documents + documents[:7] + [{"@timestamp": millis(START), "MyType": "SubmitEvent"}])
    source = source_of(any_server, index="grid-a", unique_field="event_id.keyword")
    spans = read(source, now=START + timedelta(hours=3))
    assert totals(spans) == {**kinds_of(documents), "Submit": kinds_of(documents)["Submit"] + 1, "JobFailed": 2}
    assert pl.concat(list(source.events(START, START + timedelta(hours=2)))).height == 12 + 1 + 2


def test_days_are_cut_by_the_zone_of_the_settings_on_every_version(any_server):
    late = datetime(2025, 1, 7, 5, tzinfo=UTC)  # 23:00 of the 6th in Chicago
    any_server.put("grid-a", [{"@timestamp": millis(moment), "MyType": "SubmitEvent"} for moment in (START, late)])
    spans = read(
        source_of(any_server, index="grid-a", time_zone="America/Chicago", bucket_minutes=1440), now=late + timedelta(days=2)
    )
    days = counted(spans, place=WHOLE).sort("bucket_start")
    assert days["bucket_start"].to_list() == [datetime(2025, 1, 5, 6, tzinfo=UTC), datetime(2025, 1, 6, 6, tzinfo=UTC)]
    assert set(marks(spans)) == {-18, 6, 30} and spans[-1].end == datetime(2025, 1, 8, 6, tzinfo=UTC)


# --- event 028 ----------------------------------------------------------------------------------------------------------------


def test_an_event_is_told_by_its_028_where_there_is_nothing_else(server):
    copies = [
        {"@timestamp": millis(START), "MyType": "JobAdInformationEvent", "TriggerEventTypeName": name}
        for name in ("ULOG_JOB_RELEASED", "ULOG_IMAGE_SIZE", "ULOG_JOB_RECONNECT_FAILED", "RemoteErrorEvent")
    ]
    server.put("grid-a", copies)
    spans = read(source_of(server), now=START + timedelta(hours=2))
    assert totals(spans) == {"JobRelease": 1, "JobImageSize": 1, "JobReconnectFailed": 1, "RemoteError": 1}


def test_the_form_with_more_documents_counts_in_each_bucket(server):
    plain = {"@timestamp": millis(START), "MyType": "ExecuteEvent"}
    copy = {**plain, "TriggerEventTypeName": "ULOG_EXECUTE", "MachineAttrGLIDEIN_Site0": "here"}
    later = {**plain, "@timestamp": millis(START + timedelta(hours=1))}
    server.put("grid-a", [plain, plain, plain, copy, later, {**copy, "@timestamp": later["@timestamp"]}])
    spans = read(source_of(server), now=START + timedelta(hours=3))
    assert counted(spans, place=WHOLE)["count"].to_list() == [3, 1]
    assert counted(spans, place="site").select("value", "count").rows() == [("here", 1)]  # of the second hour


def test_without_a_trigger_field_every_document_is_an_event(server):
    server.put("grid-a", make_grid_documents(START, 1, copies=True))
    spans = read(source_of(server, trigger_field=""), now=START + timedelta(hours=2))
    assert totals(spans)["Submit"] == 4


# --- zeros, gaps, cursors -----------------------------------------------------------------------------------------------------


def test_an_hour_without_events_is_a_zero_and_a_day_without_an_index_is_a_gap(server):
    for day in (6, 7, 9):
        server.put(f"grid-2025.01.{day:02}", make_grid_documents(START + timedelta(days=day - 6), 2))
    source = source_of(server)
    spans = read(source, now=START + timedelta(days=3, hours=6, minutes=10))
    gap = (START + timedelta(days=2), START + timedelta(days=3), "no index")
    assert [one for span in spans for one in span.missing] == [gap]
    seen = marks(spans)
    assert set(seen) == set(range(48)) | set(range(72, 78)) and seen[0] == 7 and seen[5] == 0
    assert spans[-1].cursor.position == round(gap[0].timestamp() * 1e6)  # so that the day is asked for again
    assert sum("_field_caps" in path for _, path, _, _ in server.requests) == 1


def test_a_missing_day_is_filled_when_its_index_comes_back_and_forgotten_after_two_weeks(server):
    for day in (6, 8):
        server.put(f"grid-2025.01.{day:02}", make_grid_documents(START + timedelta(days=day - 6), 24))
    now = START + timedelta(days=3)
    (span,) = read(source_of(server), now=now)
    assert 24 not in marks([span])
    server.put("grid-2025.01.07", make_grid_documents(START + timedelta(days=1), 24))
    spans = read(source_of(server), now=now, cursor=span.cursor.position)
    assert {24, 40, 47} <= set(marks(spans)) and not any(one.missing for one in spans)
    server.indices.remove("grid-2025.01.07")
    old = read(source_of(server, chunk_days=2), now=START + timedelta(days=20))
    assert old[0].missing and old[-1].cursor.position > round((START + timedelta(days=2)).timestamp() * 1e6)


def test_indices_that_are_not_by_day_hold_any_day(server):
    server.put("grid-2025.01.06", make_grid_documents(START, 1))
    server.put("grid-archive", make_grid_documents(START + timedelta(days=2), 1))
    spans = read(source_of(server), now=START + timedelta(days=3))
    assert set(marks(spans)) == set(range(71)) and not any(span.missing for span in spans)


def test_the_newest_bucket_is_read_when_it_is_over_and_settled(server):
    server.put("grid-a", make_grid_documents(START, 5))
    assert set(marks(read(source_of(server), now=START + timedelta(hours=4, minutes=9)))) == {0, 1, 2}
    assert set(marks(read(source_of(server), now=START + timedelta(hours=4, minutes=10)))) == {0, 1, 2, 3}


def test_nothing_before_the_first_event_is_taken_for_zeros(server):
    server.put("grid-a", make_grid_documents(START + timedelta(hours=7), 1))
    assert min(marks(read(source_of(server), now=START + timedelta(hours=10)))) == 7


def test_the_next_run_counts_again_what_may_have_come_late_and_no_more(server):
    server.put("grid-a", make_grid_documents(START, 30))
    (first,) = read(source_of(server), now=START + timedelta(hours=20, minutes=10))
    server.put("grid-a", [{"@timestamp": millis(START + timedelta(hours=19)), "MyType": "SubmitEvent"}])
    (second,) = read(source_of(server), now=START + timedelta(hours=21, minutes=10), cursor=first.cursor.position)
    assert second.start == START + timedelta(hours=18) and marks([second]) == {18: 7, 19: 8, 20: 7}
    assert second.cursor.position - first.cursor.position == 3_600_000_000


def test_long_spans_are_read_piece_by_piece(server):
    server.put("grid-a", make_grid_documents(START, 5, per_hour=3))
    spans = read(source_of(server, chunk_days=2 / 24), now=START + timedelta(hours=5, minutes=10))
    assert [(span.end - span.start) / timedelta(hours=1) for span in spans] == [2, 2, 1]
    assert [span.done for span in spans] == [0.4, 0.8, 1.0]


def test_shards_that_fail_make_a_gap_of_their_day_alone_and_hold_the_cursor(server):
    for day in range(3):
        server.put(f"grid-2025.01.{6 + day:02}", make_grid_documents(START + timedelta(days=day), 24, per_hour=3))
    server.broken["grid-2025.01.07"] = "node left"
    (span,) = read(source_of(server), now=START + timedelta(days=3))
    ((start, end, why),) = span.missing
    assert (
        (start, end) == (START + timedelta(days=1), START + timedelta(days=2))
        and "1 of 3 shards failed" in why
        and "node left" in why
    )
    assert set(marks([span])) == set(range(24)) | set(range(48, 71))
    assert counted([span])["bucket_start"].is_between(start, end, closed="left").sum() == 0
    server.broken.clear()
    again = read(source_of(server), now=START + timedelta(days=3), cursor=span.cursor.position)
    assert set(range(24, 71)) <= set(marks(again)) and not again[0].missing


def test_a_search_that_timed_out_marks_nothing(server):
    server.put("grid-a", make_grid_documents(START, 3))
    server.timed_out = True
    (span,) = read(source_of(server), now=START + timedelta(hours=4))
    assert span.counts.is_empty() and "timed out" in span.missing[0][2]


# --- bad input ----------------------------------------------------------------------------------------------------------------


def test_clocks_in_the_future_are_reported_and_not_taken_in(server):
    future = {"@timestamp": millis("2031-01-01"), "MyType": "SubmitEvent"}
    server.put("grid-a", [*make_grid_documents(START, 2), future, future, {"MyType": "SubmitEvent"}])
    source = source_of(server, chunk_days=1 / 24)
    spans = read(source, now=START + timedelta(hours=2, minutes=10))
    assert [span.quarantined for span in spans] == [{"future": 2, "bad_time": 1}, {}]
    assert "2 documents are of the future" in source.notes[0] and totals(spans)["Submit"] == 4


def test_documents_without_a_kind_are_counted_and_a_kind_never_seen_is_taken_in(server):
    odd = [
        {"@timestamp": millis(START), **more}
        for more in ({}, {"MyType": "Event"}, {"MyType": " "}, {"MyType": "Brand\nNewEvent"})
    ]
    server.put("grid-a", odd)
    (span,) = read(source_of(server), now=START + timedelta(hours=2))
    assert span.quarantined == {"no_kind": 3} and totals([span]) == {"Brand New": 1}


def test_the_largest_places_are_kept_and_the_rest_is_one(server):
    documents = [{"@timestamp": millis(START), "MyType": "ExecuteEvent", "host": f"h{number % 9}"} for number in range(40)]
    server.put("grid-a", documents)
    spans = read(source_of(server, most_places=5), now=START + timedelta(hours=2))
    places = counted(spans, place="submit_host")
    assert places.height == 6 and places["count"].sum() == 40
    assert places.filter(value=OTHER_VALUES)["count"].item() == 4 * 4


def test_a_server_that_makes_few_buckets_is_asked_for_fewer(server):
    server.put("grid-a", make_grid_documents(START, 8))
    server.max_buckets = 30
    spans = read(source_of(server), now=START + timedelta(hours=9))
    sizes = [
        body["aggs"]["counted"]["composite"]["size"] for _, path, body, _ in server.requests if "counted" in body.get("aggs", {})
    ]
    assert totals(spans)["Submit"] == 16 and sizes[0] == 1000 and max(sizes[-5:]) <= 30


@pytest.mark.parametrize(
    ("types", "settings", "words"),
    [
        ({}, {"kind_field": "MyType"}, r"'MyType' of type text.*Use 'MyType.keyword'\. \(elastic\.kind_field\)"),
        ({"MyType": "keyword"}, {}, r"no field 'MyType\.keyword'.*Try 'MyType'"),
        ({"@timestamp": "keyword"}, {}, r"'@timestamp' of type keyword, not date"),
        ({}, {"time_field": "when"}, "no field 'when'"),
        ({}, {"unique_field": "nothing"}, "no field 'nothing'"),
    ],
)
def test_a_field_of_another_type_is_one_sentence_with_what_to_do(server, types, settings, words):
    server.types |= types
    server.put("grid-a", make_grid_documents(START, 1))
    with pytest.raises(SourceFormatError, match=words):
        read(source_of(server, **settings), now=START + timedelta(hours=2))


def test_a_place_that_the_index_does_not_tell_is_left_out_and_said(server):
    server.put("grid-a", make_grid_documents(START, 1))
    source = source_of(server, site_field="nowhere", group_field="Jobsub_Group")
    spans = read(source, now=START + timedelta(hours=2))
    assert set(counted(spans)["place"]) == {WHOLE, "submit_host"}
    assert "no field 'nowhere'" in source.notes[0] and "Use 'Jobsub_Group.keyword'" in source.notes[1]


@pytest.mark.parametrize("index", ["other-*", "other"])
def test_an_index_that_does_not_exist_is_one_sentence(server, index):
    server.put("grid-a", make_grid_documents(START, 1))
    with pytest.raises(SourceUnavailableError, match=rf"has no index '{index[:-1]}.*elastic\.index"):
        read(source_of(server, index=index), now=START)


def test_an_empty_index_is_no_error_and_no_zeros(server):
    server.put("grid-a", [])
    source = source_of(server)
    assert read(source, now=START) == [] and "holds no event yet" in source.notes[0]


def test_a_shipper_that_has_stopped_is_said(server):
    server.put("grid-a", make_grid_documents(START, 1))
    source = source_of(server)
    read(source, now=START + timedelta(hours=9))
    assert "The newest event" in source.notes[0] and "2025-01-06 00:50" in source.notes[0]


def test_a_field_that_is_no_kind_is_refused_before_it_fills_the_memory(server):
    server.put("grid-a", [{"@timestamp": millis(START), "MyType": f"job {number}"} for number in range(600)])
    with pytest.raises(SourceFormatError, match=r"more than 500 different values in 'MyType\.keyword'"):
        read(source_of(server), now=START + timedelta(hours=2))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: {**answer, "aggregations": None},
        lambda answer: {
            **answer,
            "aggregations": {"counted": {"buckets": [{"key": {"time": "soon", "kind": 1}, "doc_count": 1}]}},
        },
        lambda answer: {
            **answer,
            "aggregations": {"counted": {"buckets": [{"key": {"time": 1e300, "kind": 1}, "doc_count": 1}]}},
        },
        lambda answer: {**answer, "aggregations": {"counted": {"buckets": 7}}},
    ],
)
def test_json_that_no_search_has_is_refused(server, spoil):
    server.put("grid-a", make_grid_documents(START, 1))
    plain = server._search

    def spoilt(documents, body, indices=None):
        answer = plain(documents, body, indices)
        return spoil(answer) if "counted" in body["aggs"] else answer

    server._search = spoilt
    with pytest.raises(SourceFormatError, match="form that no search has"):
        read(source_of(server), now=START + timedelta(hours=2))


def test_a_server_that_tells_the_same_page_for_ever_is_given_up(server):
    server.put("grid-a", make_grid_documents(START, 8))
    plain = server._composite
    server._composite = lambda matching, what, inside: plain(
        matching, {**what, "after": {"time": 0, "kind": None, "trigger": None}}, inside
    )
    with pytest.raises(SourceFormatError, match="same page again"):
        read(source_of(server, page_size=10), now=START + timedelta(hours=9))


def test_a_failure_on_the_way_keeps_what_was_read_and_says_where_the_next_run_goes_on(server):
    server.put("grid-a", make_grid_documents(START, 4))
    spans = source_of(server, chunk_days=2 / 24).spans(lambda _: None, START + timedelta(hours=4, minutes=10))
    first = next(spans)
    server.faults = [(503, {"error": "down"}, {})] * 2
    with pytest.raises(SourceUnavailableError, match=r"503: down \(2 tries\)\. The cursor stays at 2025-01-06T02:00:00Z"):
        next(spans)
    assert first.end == START + timedelta(hours=2)


def test_the_query_is_shown_without_asking_anybody():
    shown = ElasticEvents(ElasticServer().settings(url="http://127.0.0.1:9", query="pool:main")).query_shown(
        START, START + timedelta(days=1)
    )
    assert shown["path"] == "/grid-*/_search" and set(shown["bodies"]) == {"whole", "site", "submit_host", "group"}
    composite = shown["bodies"]["whole"]["aggs"]["counted"]["composite"]
    assert composite["sources"][0]["time"]["date_histogram"] == {
        "field": "@timestamp",
        "fixed_interval": "60m",
        "time_zone": "UTC",
    }
    assert {"query_string": {"query": "pool:main"}} in shown["bodies"]["whole"]["query"]["bool"]["filter"]


def test_a_lucene_query_chooses_among_the_documents_and_a_wrong_one_is_told(server):
    server.put(
        "grid-a", [{**one, "pool": "main" if place % 2 else "test"} for place, one in enumerate(make_grid_documents(START, 2))]
    )
    assert sum(totals(read(source_of(server, query="pool:main"), now=START + timedelta(hours=3))).values()) == 6 + 2
    with pytest.raises(SettingsError, match=r"does not understand elastic\.query"):
        read(source_of(server, query="pool:main AND ("), now=START + timedelta(hours=3))


@pytest.mark.parametrize("more", [{"time_zone": "Mars/Olympus"}, {"index": "a/../_cluster"}, {"index": "_all"}, {"index": ""}])
def test_settings_that_make_no_sense_are_told_at_once(server, more):
    with pytest.raises(SettingsError, match=rf"elastic\.{next(iter(more))}"):
        source_of(server, **more)

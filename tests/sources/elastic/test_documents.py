"""Raw documents: each once, all of one moment, and the point in time given back whatever happens."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import SourceFormatError, SourceUnavailableError
from stormpetrel.sources.elastic.counts import ElasticEvents
from tests.parts.elastic import ElasticServer, make_grid_documents, millis, served

START = datetime(2025, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(params=["elasticsearch", "opensearch"])
def server(request):
    with served(ElasticServer(request.param, "2.19.3" if request.param == "opensearch" else "8.19.4")) as one:
        yield one


def source_of(server, **settings):
    return ElasticEvents(server.settings(page_size=10, retries=0, **settings))


def test_documents_of_the_same_moment_are_all_told_over_pages(server):
    server.put("grid-a", [{"@timestamp": millis(START), "MyType": "SubmitEvent", "n": number} for number in range(35)])
    told = list(source_of(server).documents(START, START + DAY))
    assert sorted(document["n"] for document in told) == list(range(35)) and server.points == {}


def test_what_is_written_meanwhile_is_not_among_them(server):
    server.put("grid-a", make_grid_documents(START, 10))
    documents = source_of(server).documents(START, START + DAY)
    first = next(documents)
    server.put("grid-a", make_grid_documents(START, 1))
    assert len([first, *documents]) == 60


def test_a_document_that_lies_in_two_indices_is_told_once(server):
    document = make_grid_documents(START, 1)[:1]
    server.put("grid-a", document, uids=["same"])
    server.put("grid-b", document, uids=["same"])
    assert len(list(source_of(server).documents(START, START + DAY))) == 1


def test_the_point_in_time_is_given_back_when_the_reader_stops_or_the_server_fails(server):
    server.put("grid-a", make_grid_documents(START, 10))
    documents = source_of(server).documents(START, START + DAY)
    next(documents)
    assert len(server.points) == 1
    documents.close()
    assert server.points == {}
    documents = source_of(server).documents(START, START + DAY)
    next(documents)
    server.faults = [(503, b"", {})]
    with pytest.raises(SourceUnavailableError, match="503"):
        list(documents)
    assert server.points == {}


def test_a_point_in_time_that_cannot_be_given_back_is_no_error(server):
    server.put("grid-a", make_grid_documents(START, 1))
    documents = source_of(server).documents(START, START + DAY)
    told = [next(documents)]
    server.faults = [(404, {"succeeded": False}, {})]
    assert len([*told, *documents]) == 6


def test_a_server_without_points_in_time_is_told_what_raw_documents_need(server):
    server.put("grid-a", make_grid_documents(START, 1))
    plain = server._answer
    server._answer = lambda method, path, parameters, body: (
        {} if "keep_alive" in parameters else plain(method, path, parameters, body)
    )
    with pytest.raises(SourceFormatError, match=r"gives no point in time.*7\.10"):
        list(source_of(server).documents(START, START + DAY))


def test_events_of_a_bucket_are_told_together_however_the_pages_fall(server):
    server.put("grid-a", make_grid_documents(START, 4, per_hour=12, copies=True))
    frames = list(source_of(server).events(START, START + DAY))
    assert [frame.height for frame in frames] == [12 + 2] * 4
    assert all(frame["time"].dt.truncate("1h").n_unique() == 1 for frame in frames)


def test_times_in_nanoseconds_are_understood():
    with served(ElasticServer(**{"@timestamp": "date_nanos"})) as server:
        server.put("grid-a", [{"@timestamp": millis(START), "MyType": "SubmitEvent"}])
        plain = server._hits

        def in_nanoseconds(matching, body):
            return [{**hit, "sort": [hit["sort"][0] * 1_000_000, hit["sort"][1]]} for hit in plain(matching, body)]

        server._hits = in_nanoseconds
        (frame,) = source_of(server).events(START, START + DAY)
        assert frame["time"].to_list() == [START]

"""Answers in the documented form of every version are read, each as it stands in its reference."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import EventsSection
from stormpetrel.errors import SourceFormatError, SourceUnavailableError
from stormpetrel.records.events import COVERED, WHOLE
from stormpetrel.sources.elastic.counts import ElasticEvents
from stormpetrel.sources.elastic.server import SearchServer
from tests.parts.elastic import ElasticServer, served

FOLDER = Path(__file__).parents[1] / "recordings" / "elastic"
START = datetime(2025, 1, 6, tzinfo=UTC)


class Replayed(ElasticServer):
    """Answers as they were written down, whatever the documents."""

    def __init__(self, recording):
        super().__init__(recording["flavour"], recording["version"])
        self.recording, self.pages, self.hosts = recording, list(recording["pages"]), [recording["hosts"]]
        self.error = ""

    def _answer(self, method, path, parameters, body):
        if path == "/":
            return self.recording["root"]
        if path.endswith("_field_caps"):
            return self.recording["field_caps"]
        if path.endswith(("_pit", "point_in_time")):
            return self.recording["closed" if method == "DELETE" else "point"]
        if "pit" in body:
            return self.recording["hits"]
        if "known" in body["aggs"]:
            return self.recording["look"]
        by_host = any("value" in source for source in body["aggs"]["counted"]["composite"]["sources"])
        waiting = self.hosts if by_host else self.pages
        return waiting.pop(0) if waiting else self.recording["pages"][-1]


@pytest.fixture(params=sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def replayed(request):
    with served(Replayed(json.loads(request.param.read_text()))) as server:
        yield server


def source_of(server):
    settings = server.settings(retries=0)
    return ElasticEvents(settings, EventsSection(since="2025-01-01"), server=SearchServer(settings, pause=lambda _: None))


def test_there_is_a_recording_of_each_version():
    names = {path.stem for path in FOLDER.glob("*.json")}
    assert names == {"elasticsearch-7", "elasticsearch-8", "elasticsearch-9", "opensearch-2", "opensearch-3"}


def test_counts_are_read_from_each_version(replayed):
    source = source_of(replayed)
    (span,) = source.spans(lambda _: None, START + timedelta(days=2, hours=2, minutes=30))
    whole = span.counts.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED)
    assert whole.sort("bucket_start", "kind").select("kind", "count").rows() == [
        ("Submit", 3),
        ("JobRelease", 2),
        ("JobFailed", 2),
        ("JobTerminated", 3),
    ]
    hosts = span.counts.filter(place="submit_host").select("value", "count").sort("value")
    assert hosts.rows() == [("schedd-1", 1), ("schedd-2", 2)]
    assert span.quarantined == {"future": 1, "bad_time": 2, "no_kind": 1}
    assert span.missing == [(START + timedelta(days=1), START + timedelta(days=2), "no index")]
    assert span.counts.filter(kind=COVERED).height == 24 + 2


def test_raw_documents_are_read_from_each_version_and_given_back(replayed):
    (frame,) = source_of(replayed).events(START, START + timedelta(hours=1))
    assert frame.select("kind", "submit_host").rows() == [
        ("Submit", "schedd-1"),
        ("JobTerminated", "schedd-1"),
        ("JobFailed", "schedd-1"),
    ]
    assert frame["time"][0] == START
    method, path, body, _ = replayed.requests[-1]
    assert method == "DELETE" and path == ("/_search/point_in_time" if replayed.flavour == "opensearch" else "/_pit")
    assert "46To..." in json.dumps(body)


def test_errors_of_each_version_are_one_sentence(replayed):
    recording = replayed.recording
    for name, status, error, words in (
        (
            "index_not_found",
            404,
            SourceUnavailableError,
            r"has no index 'grid-\*': index_not_found_exception: no such index \[gird\]",
        ),
        ("text_field", 400, SourceFormatError, r"cannot count by a field of type text.*Use FIELD\.keyword"),
        (
            "circuit_breaker",
            429,
            SourceUnavailableError,
            r"answered 429: circuit_breaking_exception: \[parent\] Data too large.*1 try",
        ),
    ):
        with SearchServer(replayed.settings(retries=0)) as server:
            assert server.identity
            replayed.faults = [(status, recording[name], {})]
            with pytest.raises(error, match=words):
                server.search({"size": 0})

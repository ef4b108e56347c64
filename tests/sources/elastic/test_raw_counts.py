from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.config import EventsSection
from stormpetrel.ingest.events import ingest_events
from stormpetrel.records.events import COUNT_KEY
from stormpetrel.sources.elastic.counts import ElasticEvents, RawElasticEvents
from stormpetrel.store.events.series import series_of
from tests.builders import make_site
from tests.parts.elastic import ElasticServer, make_grid_documents, served

START = datetime(2025, 1, 6, tzinfo=UTC)
NOW = START + timedelta(hours=30)
EVENTS = EventsSection(since="2025-01-06")


@pytest.fixture
def server():
    with served(ElasticServer()) as one:
        one.put("grid-a", make_grid_documents(START, 24))
        yield one


def spans(kind, server):
    return list(kind(server.settings(page_size=100, retries=0), EVENTS).spans(lambda _name: None, NOW))


def test_documents_counted_here_are_what_the_server_counts(server):
    (by_server,), (here,) = spans(ElasticEvents, server), spans(RawElasticEvents, server)
    assert here.counts.height > 24
    assert here.counts.sort(COUNT_KEY).equals(by_server.counts.sort(COUNT_KEY))
    assert (here.start, here.end, here.cursor) == (by_server.start, by_server.end, by_server.cursor)


def test_an_index_is_taken_in_once_however_it_is_counted_and_a_late_document_is_a_change(server, tmp_path):
    settings = server.settings(page_size=100, retries=0)
    with make_site(tmp_path / "site") as site:
        site.now = lambda: NOW
        first = ingest_events(site, ElasticEvents(settings, EVENTS))
        series = series_of(site)
        assert first.kept == len(series) > 24 and first.read > 100 and not series.is_gap.any()
        again = ingest_events(site, RawElasticEvents(settings, EVENTS))
        assert again.kept == again.changed == 0
        server.put("grid-a", make_grid_documents(START + timedelta(hours=20), 1)[:1])
        late = ingest_events(site, ElasticEvents(settings, EVENTS))
        assert late.changed == 1 and series_of(site).counts.sum() == series.counts.sum() + 1

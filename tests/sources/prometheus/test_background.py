"""Background from a real Prometheus: `time()` and `vector()` have a known past without anything having been scraped."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.config import EventsSection, PrometheusSection
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.ingest.events import ingest_background
from stormpetrel.sources.prometheus import background as prometheus_background
from stormpetrel.sources.prometheus.background import PrometheusBackground
from stormpetrel.sources.prometheus.query import Series
from tests.builders import make_site
from tests.parts.prometheus import RealPrometheus, RealVictoria

HOUR = timedelta(hours=1)
H0 = datetime(2026, 3, 2, 10, tzinfo=UTC)
EVENTS = EventsSection(since="2026-03-02T10:00", overlap_hours=1.0)


@pytest.fixture(scope="module")
def prometheus():
    with RealPrometheus([]) as server:
        yield server


def source_of(server, *queries, events=EVENTS):
    section = PrometheusSection(url=server.url, background=list(queries))
    return PrometheusBackground(section, events, pause=lambda _s: None)


def read(source, now):
    return pl.concat([span.values for span in source.spans(lambda _name: None, now)]).sort("name", "bucket_start")


@pytest.mark.prometheus
def test_a_real_prometheus_gives_the_mean_over_each_bucket_and_no_more(prometheus):
    frame = read(source_of(prometheus, "clock=vector(time())"), H0 + 3.5 * HOUR)
    # Evaluated at every full minute from the first to the last of the hour: the mean is half a minute before its middle.
    expected = [(H0 + hour * HOUR).timestamp() + 1770 for hour in range(3)]
    assert frame["value"].to_list() == expected
    assert frame["bucket_start"].to_list() == [H0, H0 + HOUR, H0 + 2 * HOUR]


@pytest.mark.prometheus
def test_short_buckets_are_evaluated_oftener(prometheus):
    events = EventsSection(since="2026-03-02T10:00", bucket_minutes=1, settle_minutes=0.0)
    frame = read(source_of(prometheus, "clock=vector(time())", events=events), H0 + timedelta(minutes=3))
    assert frame["value"].to_list() == [H0.timestamp() + 60 * minute + 27.5 for minute in range(3)]


@pytest.mark.prometheus
def test_several_series_are_added_up_and_none_is_said(prometheus):
    two = 'label_replace(vector(1), "a", "x", "", "") or label_replace(vector(2), "a", "y", "", "")'
    source = source_of(prometheus, f"two={two}", "none=no_such_metric")
    frame = read(source, H0 + 2.5 * HOUR)
    assert frame["value"].to_list() == [3.0, 3.0]
    assert source.notes == [
        "two: 2 series were added up.",
        "none: Prometheus has no such series; check prometheus.background.",
    ]


@pytest.mark.prometheus
def test_a_query_that_is_none_names_itself_and_the_others_are_read(prometheus):
    found = []
    with pytest.raises(SettingsError, match="does not understand the query") as caught:
        found.extend(source_of(prometheus, "bad=sum(", "one=vector(1)").spans(lambda _name: None, H0 + 1.5 * HOUR))
    assert "'bad' in prometheus.background" in caught.value.hint
    assert found[0].values["value"].to_list() == [1.0]


@pytest.mark.prometheus
def test_a_server_that_was_away_leaves_no_hole(prometheus, tmp_path):
    with make_site(tmp_path / "site") as site:
        site.now = lambda: H0 + 2.5 * HOUR
        prometheus.stop()
        try:
            with pytest.raises(SourceUnavailableError, match="The cursor stays at 2026-03-02T10:00:00Z"):
                ingest_background(site, source_of(prometheus, "one=vector(1)"))
        finally:
            prometheus.start()
        assert ingest_background(site, source_of(prometheus, "one=vector(1)")).kept == 2
        site.now = lambda: H0 + 4.5 * HOUR
        again = ingest_background(site, source_of(prometheus, "one=vector(1)"))
        assert (again.kept, again.known) == (2, 1)


def test_a_server_that_finds_it_too_much_is_asked_for_halves(monkeypatch):
    asked = []

    class Server:
        def __init__(self, *_args, **_more):
            self.resume = None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def instant(self, query, at_s):
            asked.append(int(query.rpartition("[")[2].partition("s")[0]))
            if asked[-1] > 7201:
                raise SourceUnavailableError("It will not answer the query (422).")
            times = np.arange(at_s - asked[-1] + 1, at_s + 1, 60.0)  # both ends
            return [Series({}, times, np.ones(times.size))]

    monkeypatch.setattr(prometheus_background, "PrometheusServer", Server)
    section = PrometheusSection(url="http://x", background=["a=b"])
    frame = read(PrometheusBackground(section, EVENTS), H0 + 5.5 * HOUR)
    assert [seconds for seconds in asked if seconds <= 7201] == [7201, 3601, 7201]
    assert frame["value"].to_list() == [1.0] * 5


@pytest.mark.prometheus
def test_victoriametrics_gives_the_same_means():
    with RealVictoria([]) as server:
        source = source_of(server, "clock=vector(time())", "bad=sum(", "one=vector(1)")
        found = []
        with pytest.raises(SourceUnavailableError, match="will not answer the query") as caught:
            found.extend(source.spans(lambda _name: None, H0 + 3.5 * HOUR))
    assert "'bad' in prometheus.background" in caught.value.hint
    assert found[0].values["value"].to_list() == [(H0 + hour * HOUR).timestamp() + 1770 for hour in range(3)]
    assert found[1].values["value"].to_list() == [1.0] * 3

"""Elasticsearch through the store: whatever the server does, nothing counts twice, and what was not seen is a gap until it is."""

from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.errors import SettingsError, SourceError
from stormpetrel.faces.cli.main import app
from stormpetrel.ingest.events import ingest_events
from stormpetrel.records.events import COUNT_KEY
from stormpetrel.sources.elastic.counts import ElasticEvents, RawElasticEvents
from stormpetrel.sources.elastic.server import SearchServer
from stormpetrel.store.events.series import series_of
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.parts.command_line import change_settings
from tests.parts.elastic import ElasticServer, make_grid_documents, millis, served

START = datetime(2025, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
BUSY = {"error": {"type": "es_rejected_execution_exception", "reason": "rejected"}}
PAGE = b"<!doctype html><title>Sign in</title>"


@contextmanager
def grid_server():
    with served(ElasticServer(MyType="keyword")) as one:
        one.put("grid-2025.01.06", make_grid_documents(START, 24))
        yield one


@pytest.fixture
def server():
    with grid_server() as one:
        yield one


@pytest.fixture(scope="module")
def calm_rows(tmp_path_factory):
    """What a site has after sixteen hours in which nothing went wrong."""
    with grid_server() as server, make_site(tmp_path_factory.mktemp("calm") / "site", events={"since": "2025-01-06"}) as calm:
        take_in(calm, server, 16)
        return rows_of(calm)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", events={"since": "2025-01-06"}) as opened:
        yield opened


def take_in(site, server, hours, **settings):
    """Read on at so many hours and a quarter after the start."""
    site.now = lambda: START + hours * HOUR + timedelta(minutes=15)
    section = server.settings(**{"kind_field": "MyType", **settings})
    return ingest_events(site, ElasticEvents(section, site.settings.events, server=SearchServer(section, pause=lambda _: None)))


def rows_of(site):
    return site.event_counts.read(places=True).sort(COUNT_KEY).collect()


def gaps_of(site):
    return [((gap.start - START) / HOUR, (gap.end - START) / HOUR, gap.why) for gap in site.event_counts.gaps(bucket_s=3600)]


def answers(*answer):
    return lambda server: setattr(server, "faults", [answer] * 20)


def no_index(server):
    server.kept, server.indices = server.indices, set()


def of_type_text(server):
    server.types["MyType"] = "text"


def shards_away(server):
    server.broken["grid-2025.01.06"] = "node left"


def too_slow(server):
    server.timed_out = True


def mend(server):
    server.faults, server.timed_out = [], False
    server.broken.clear()
    server.types["MyType"] = "keyword"
    server.indices = getattr(server, "kept", server.indices)


@pytest.mark.parametrize(
    ("mishap", "words"),
    [
        (no_index, "has no index 'grid-*'"),
        (of_type_text, "of type text"),
        (answers(429, BUSY, {"Retry-After": "7"}), "answered 429"),
        (answers(503, b"busy", {}), "answered 503"),
        (answers(200, b'{"took": 1, "aggrega', {}), "half of it"),
        (answers(200, b'{"took": 1}', {"Content-Length": "500"}), "broke off"),
        (answers(200, PAGE, {"Content-Type": "text/html"}), "a web page"),
        (answers(200, {"took": 1}, {}), "neither Elasticsearch nor OpenSearch"),
        (shards_away, "1 of 1 shards failed (node_disconnected: node left)"),
        (too_slow, "timed out"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_a_server_does_not_tell_is_a_gap_with_its_reason_and_is_filled_later(site, server, calm_rows, mishap, words):
    take_in(site, server, 10)
    before = rows_of(site)
    mishap(server)
    for hours in (12, 14):
        with suppress(SourceError):
            take_in(site, server, hours)
    assert rows_of(site).equals(before)
    ((begin, end, why),) = gaps_of(site)
    assert (begin, end) == (10, 14) and words in why
    mend(server)
    take_in(site, server, 16)
    assert gaps_of(site) == []
    assert rows_of(site).equals(calm_rows) and calm_rows.height > 50


def test_a_failure_at_the_first_run_leaves_nothing_and_the_next_run_takes_in_all(site, server):
    server.faults = [(503, b"busy", {})] * 20
    with pytest.raises(SourceError):
        take_in(site, server, 10)
    assert rows_of(site).is_empty() and site.event_counts.gaps(bucket_s=3600) == []
    mend(server)
    take_in(site, server, 10)
    assert len(series_of(site)) == 10 and not series_of(site).is_gap.any()


def test_a_hole_between_two_days_is_shown_with_its_reason_until_its_index_is_back(site, server):
    server.put("grid-2025.01.08", make_grid_documents(START + 48 * HOUR, 4))
    take_in(site, server, 52)
    assert gaps_of(site) == [(24, 48, "no index")]
    shown = CliRunner().invoke(app, ["--site", str(site.folder), "events", "show", "--last", "6"])
    assert shown.exit_code == 0 and shown.stdout.count("gap: no index") == 2 and "2 of them gaps" in shown.stdout
    server.put("grid-2025.01.07", make_grid_documents(START + 24 * HOUR, 24))
    take_in(site, server, 53)
    assert gaps_of(site) == []
    assert "gap: " not in CliRunner().invoke(app, ["--site", str(site.folder), "events", "show", "--last", "6"]).stdout


def test_repeated_late_future_and_unknown_documents_count_as_they_should(site, server):
    def one(hour, kind, uid):
        return {"@timestamp": millis(START + hour * HOUR), "MyType": kind, "event_id": uid}

    server.remove()
    server.put("grid-a", [one(hour, "SubmitEvent", f"s{hour}") for hour in range(30)])
    for _ in range(2):
        take_in(site, server, 30, unique_field="event_id.keyword")
    server.put("grid-b", [one(hour, "SubmitEvent", f"s{hour}") for hour in range(30)])  # the shipper began anew
    server.put("grid-b", [one(6.5, "SubmitEvent", "late"), one(29.5, "WarpDriveEvent", "new")])  # a day late; never seen
    server.put("grid-b", [one(9000, "SubmitEvent", "future")])
    report = take_in(site, server, 31, unique_field="event_id.keyword")
    whole = rows_of(site).filter(pl.col("place") == "", pl.col("kind") != "")
    kinds = dict(whole.group_by("kind").agg(pl.col("count").sum()).rows())
    assert kinds == {"Submit": 31, "WarpDrive": 1} and report.quarantined == {"future": 1} and report.changed == 2
    assert gaps_of(site) == [] and "documents are of the future" in " ".join(report.notes)


def test_a_clock_of_our_own_that_was_ahead_does_not_end_the_reading(site, server):
    take_in(site, server, 10)
    take_in(site, server, 24 * 10)
    take_in(site, server, 12)
    series = series_of(site)
    assert len(series) == 12, "hours that are not over are no zeros"
    server.put("grid-2025.01.06", [{"@timestamp": millis(START + 12.5 * HOUR), "MyType": "JobHeldEvent"}])
    take_in(site, server, 14)
    held = series_of(site, kinds=["JobHeld"])
    assert held.counts[:, 0].tolist() == [0] * 12 + [1, 0]


def test_buckets_of_another_length_are_read_from_the_beginning(site, server):
    take_in(site, server, 20)
    change_settings(site.folder, events={"bucket_minutes": 15})
    with open_site(site.folder) as finer:
        take_in(finer, server, 21)
        series = series_of(finer, kinds=["Submit"])
    assert len(series) == 84 and series.bucket_s == 900 and series.counts.sum() == 42


def test_documents_are_not_counted_here_where_the_server_cuts_other_hours(site, server):
    with pytest.raises(SettingsError, match="cuts other days or hours"):
        RawElasticEvents(server.settings(time_zone="Asia/Kolkata"), site.settings.events)


def test_a_day_whose_shards_are_away_is_not_skipped_although_no_older_event_is_found(site, server):
    server.put("grid-2025.01.07", make_grid_documents(START + 24 * HOUR, 24))
    take_in(site, server, 20)
    shards_away(server)
    take_in(site, server, 30)
    ((begin, end, why),) = gaps_of(site)
    assert (begin, end) == (20, 24) and "node left" in why
    mend(server)
    take_in(site, server, 31)
    assert gaps_of(site) == [] and len(series_of(site)) == 31

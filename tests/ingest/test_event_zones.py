"""Buckets of a minute to a day, zones with half hours and summer time: counts, marks, labels and series agree."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from stormpetrel.ingest.events import ingest_events
from stormpetrel.records.event_series import ANOMALY
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.sources.elastic.counts import ElasticEvents
from stormpetrel.sources.tables.event_tables import CountTable, EventTable
from stormpetrel.store.events.series import series_of
from tests.builders import make_site
from tests.parts.elastic import ElasticServer, millis, served

ZONES = ["Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Pacific/Chatham"]
AUTUMN = datetime(2025, 10, 25, 12, tzinfo=UTC)  # the clocks of Berlin and St. John's go back in the days that follow


def site_of(folder, minutes, zone="UTC"):
    return make_site(folder / "site", site={"time_zone": zone}, events={"bucket_minutes": minutes, "since": "2025-10-01"})


def label(site, moment):
    site.outages.add(Outage(moment, moment + timedelta(minutes=1), OutageKind.OUTAGE, "hand", "1"))


def held_at(series):
    """The buckets that hold an event, and the buckets that are labelled as an outage."""
    return np.flatnonzero(series.counts[:, 0] > 0).tolist(), np.flatnonzero(series.label == ANOMALY).tolist()


@pytest.mark.parametrize(
    ("zone", "minutes"),
    [
        ("Pacific/Chatham", 1),
        ("Asia/Kolkata", 15),
        ("Asia/Kolkata", 60),
        ("Europe/Berlin", 60),
        *((zone, 1440) for zone in ZONES),
    ],
)
def test_an_event_and_the_outage_around_it_lie_in_the_same_bucket_wherever_the_server_cuts_it(tmp_path, zone, minutes):
    moments = [AUTUMN + timedelta(hours=hour, minutes=minute) for hour in range(0, 96, 7) for minute in (0, 29, 31)]
    moment = moments[20]
    with served(ElasticServer()) as server, site_of(tmp_path, minutes, zone) as site:
        site.now = lambda: AUTUMN + timedelta(days=6)
        server.put("grid-a", [{"@timestamp": millis(at), "MyType": "SubmitEvent"} for at in moments])
        server.put("grid-a", [{"@timestamp": millis(moment), "MyType": "JobHeldEvent"}])
        ingest_events(site, ElasticEvents(server.settings(time_zone=zone, retries=0), site.settings.events))
        label(site, moment)
        series = series_of(site, kinds=["JobHeld", "Submit"])
    events, outages = held_at(series)
    assert events == outages and len(events) == 1 and not series.is_gap.any()
    edges = np.append(series.start_s, series.start_s[-1] + series.bucket_s)
    expected, _ = np.histogram([at.timestamp() for at in moments], edges)
    assert series.counts[:, 1].tolist() == expected.tolist() and expected.sum() == len(moments)


@pytest.mark.parametrize(("zone", "minutes"), [("Europe/Berlin", 1), ("Asia/Kolkata", 15), ("America/St_Johns", 60)])
def test_raw_events_of_the_sites_clock_lie_in_the_bucket_of_their_outage(tmp_path, zone, minutes):
    moments = [AUTUMN + timedelta(hours=20, minutes=7 * step) for step in range(200)]
    local = [f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M:%S%z}" for at in moments]
    path = tmp_path / "events.csv"
    path.write_text("time,kind\n" + "".join(f"{at},{'JobHeld' if n == 90 else 'Submit'}\n" for n, at in enumerate(local)))
    with site_of(tmp_path, minutes, zone) as site:
        ingest_events(site, EventTable(path, site.settings))
        label(site, moments[90])
        series = series_of(site, kinds=["JobHeld", "Submit"])
    events, outages = held_at(series)
    assert events == outages and len(events) == 1 and not series.is_gap.any()


@pytest.mark.parametrize(
    ("zone", "is_downward", "minutes"),
    [("Europe/Berlin", False, 60), ("Europe/Berlin", True, 15), ("America/St_Johns", False, 15)],
)
def test_a_table_of_the_sites_clock_has_no_hole_where_the_clock_shows_an_hour_twice(tmp_path, zone, is_downward, minutes):
    count = 8 * 24 * 60 // minutes
    moments = [AUTUMN + timedelta(minutes=minutes * step) for step in range(count)]
    rows = [f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M},{n}\n" for n, at in enumerate(moments)]
    path = tmp_path / "counts.csv"
    path.write_text("time,Submit\n" + "".join(rows[::-1] if is_downward else rows))
    with site_of(tmp_path, minutes, zone) as site:
        site.now = lambda: AUTUMN + timedelta(days=30)
        report = ingest_events(site, CountTable(path, site.settings))
        series = series_of(site, kinds=["Submit"])
    assert not report.quarantined and not report.gaps and series.counts[:, 0].tolist() == list(range(count))


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
def test_a_table_of_days_lies_on_the_days_that_it_names(tmp_path, zone):
    days = [datetime(2025, 10, 20, tzinfo=ZoneInfo(zone)) + timedelta(days=day) for day in range(14)]
    path = tmp_path / "counts.csv"
    path.write_text("date,JobHeld\n" + "".join(f"{day:%Y-%m-%d},{int(n == 6)}\n" for n, day in enumerate(days)))
    with site_of(tmp_path, 1440, zone) as site:
        site.now = lambda: AUTUMN + timedelta(days=30)
        ingest_events(site, CountTable(path, site.settings))
        label(site, days[6].replace(hour=12) if zone != "Pacific/Chatham" else days[6].replace(hour=6))
        series = series_of(site, kinds=["JobHeld"])
    events, outages = held_at(series)
    assert events == outages and len(series) == 14 and not series.is_gap.any()


def test_days_that_are_cut_elsewhere_than_before_count_once(tmp_path):
    moments = [AUTUMN + timedelta(hours=hour) for hour in range(24 * 5)]
    with served(ElasticServer()) as server, site_of(tmp_path, 1440) as site:
        server.put("grid-a", [{"@timestamp": millis(at), "MyType": "SubmitEvent"} for at in moments])
        for zone in ("UTC", "Asia/Kolkata"):
            site.now = lambda: AUTUMN + timedelta(days=5)
            ingest_events(site, ElasticEvents(server.settings(time_zone=zone, retries=0), site.settings.events))
        assert series_of(site, kinds=["Submit"]).counts.max() <= 24

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.config import EventsSection, GraphiteSection, Settings, SiteSection
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL, UNLABELLED
from stormpetrel.records.events import BACKGROUND_SCHEMA, JOB_RECORD_KINDS, SEED_KINDS
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.events.series import chosen_kinds, labels_of, series_of
from stormpetrel.store.site import create_site
from tests.parts.made_events import H0, HOUR, seen_of

SETTINGS = Settings(
    site=SiteSection(time_zone="Europe/Berlin"),
    graphite=GraphiteSection(url="http://127.0.0.1:1", targets=["queued=a.b", "load=c"]),
)


@pytest.fixture
def site(tmp_path):
    with create_site(tmp_path / "site", SETTINGS) as opened:
        yield opened


def take(site, counts, source="made"):
    site.event_counts.replace(counts, source=source, start=H0, end=H0 + HOUR * 24, bucket_s=3600)


def outage(first, last, kind=OutageKind.OUTAGE):
    return Outage(H0 + HOUR * first, None if last is None else H0 + HOUR * last, kind, "")


def test_a_zero_is_a_zero_a_gap_is_a_gap_and_sources_add_up(site):
    take(site, seen_of([(0, "Submit", 5), (0, "JobHeld", 1), (2, "Submit", 9), (4, "Submit", 3)], 0, 6, unseen=[2]))
    take(site, seen_of([(4, "Submit", 4)], 4, 6, source="other"), source="other")
    values = pl.DataFrame(
        [("graphite", H0 + HOUR * 1, 3600, "queued", 7.5), ("graphite", H0 + HOUR * 1, 3600, "gone", 1.0)],
        schema=BACKGROUND_SCHEMA,
        orient="row",
    )
    site.event_background.replace(values, source="graphite", start=H0, end=H0 + HOUR * 6, bucket_s=3600)
    series = series_of(site)
    assert series.kinds == tuple(SEED_KINDS) and series.zone == "Europe/Berlin" and series.moment(0) == H0
    assert series.is_gap.tolist() == [False, False, True, False, False, False]
    submit = series.counts[:, series.kinds.index("Submit")]
    assert submit[[0, 1, 3, 4, 5]].tolist() == [5, 0, 0, 7, 0] and np.isnan(submit[2])
    assert (series.label == UNLABELLED).all()
    assert series.background_names == ("queued", "load") and series.background[1, 0] == 7.5
    assert np.isnan(series.background).sum() == 2 * 6 - 1
    part = series_of(site, since=H0 + HOUR * 2, until=H0 + HOUR * 5, kinds=["Submit", "Never"])
    assert part.kinds == ("Submit", "Never") and part.moment(0) == H0 + HOUR * 2
    assert part.counts[1:].tolist() == [[0, 0], [7, 0]] and part.is_gap.tolist() == [True, False, False]


def test_a_site_without_events_has_an_empty_series_and_labels_reach_the_series(site):
    assert len(series_of(site)) == 0
    take(site, seen_of([(0, "Submit", 5)], 0, 6))
    site.outages.add(outage(1, 2))
    assert series_of(site).label.tolist() == [NORMAL, ANOMALY, NORMAL, NORMAL, NORMAL, NORMAL]
    assert series_of(site, since=H0 + HOUR * 50).counts.shape == (0, len(JOB_RECORD_KINDS))


START_S = np.arange(6) * 3600 + int(H0.timestamp())


def labels(*outages, now=H0 + HOUR * 5):
    return labels_of(outages, START_S, 3600, now=now).tolist()


def test_without_a_label_nothing_is_known_and_a_calendar_of_maintenance_says_nothing_of_the_rest():
    assert labels() == [UNLABELLED] * 6
    assert labels(outage(1, 2, OutageKind.MAINTENANCE)) == [UNLABELLED, MAINTENANCE, *[UNLABELLED] * 4]
    assert labels(outage(1, 2, OutageKind.NORMAL)) == [NORMAL] * 6


def test_an_outage_wins_over_the_maintenance_that_it_overlaps():
    both = labels(outage(0, 4, OutageKind.MAINTENANCE), outage(2, 3), outage(3, 5, OutageKind.NORMAL))
    assert both == [MAINTENANCE, MAINTENANCE, ANOMALY, MAINTENANCE, NORMAL, NORMAL]


def test_an_outage_touches_each_bucket_that_it_lies_in_and_one_without_an_end_lasts_until_now():
    part = Outage(H0 + timedelta(minutes=59), H0 + timedelta(minutes=61), OutageKind.OUTAGE, "")
    assert labels(part) == [ANOMALY, ANOMALY, *[NORMAL] * 4]
    point = Outage(H0 + HOUR * 2, H0 + HOUR * 2, OutageKind.OUTAGE, "")
    assert labels(point) == [NORMAL, NORMAL, ANOMALY, *[NORMAL] * 3]
    assert labels(outage(3, None)) == [NORMAL] * 3 + [ANOMALY] * 2 + [NORMAL]


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (["Submit", "JobDisconnected"], tuple(SEED_KINDS)),
        (["Submit", "JobTerminated", "NodeFailed"], tuple(JOB_RECORD_KINDS)),
        (["logins", "api calls"], ("api calls", "logins")),
        ([], tuple(SEED_KINDS)),
    ],
)
def test_the_kinds_are_those_that_the_sources_can_tell(found, kinds):
    assert chosen_kinds(Settings(), found) == kinds
    assert chosen_kinds(Settings(events=EventsSection(kinds=["JobHeld"])), found) == ("JobHeld",)


def test_day_buckets_of_another_zone_keep_their_places(tmp_path):
    with create_site(tmp_path / "site", Settings(events=EventsSection(bucket_minutes=1440))) as site:
        midnights = [datetime(2024, 3, day, 23, tzinfo=UTC) for day in (28, 29)] + [datetime(2024, 3, 31, 22, tzinfo=UTC)]
        rows = [("made", start, 86_400, kind, "", "", n) for n, start in enumerate(midnights, 1) for kind in ("", "Submit")]
        counts = pl.DataFrame(rows, schema=site.event_counts.read().collect_schema(), orient="row")
        start, end = midnights[0], midnights[-1] + timedelta(days=1)
        site.event_counts.replace(counts, source="made", start=start, end=end, bucket_s=86_400)
        series = series_of(site, kinds=["Submit"])
        assert series.counts[:, 0].tolist()[:2] == [1, 2] and series.counts[3, 0] == 3 and series.is_gap[2]

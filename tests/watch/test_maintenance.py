"""Maintenance of a real downtime file silences pages, in the replay and in the watch; outside of it they are sent."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.cluster.outage_labels import label_from_file
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.records.findings import FindingKind
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.past.replay import replay
from tests.builders import make_site
from tests.parts.alarm_findings import finding
from tests.parts.replayed_site import SICK_FROM, START, replayed_site

pytestmark = pytest.mark.realdata

WORK_FROM, WORK_UNTIL = datetime(2018, 7, 20, 21, tzinfo=UTC), datetime(2018, 7, 21, 22, tzinfo=UTC)


def test_a_node_that_falls_ill_during_scheduled_work_is_paged_about_afterwards_in_the_replay(tmp_path, public_logs):
    file = public_logs / "events/GPGRID_downtime.yaml"
    with replayed_site(tmp_path / "site", start=WORK_FROM - (SICK_FROM - START) - timedelta(hours=3)) as site:
        before = sick(replay(site))
        label_from_file(site, LOCAL, file, kind=None, since=None)
        during, after = sick(replay(site, until=WORK_UNTIL)), sick(replay(site))
    assert WORK_FROM < before.paged_at[0] < WORK_UNTIL
    assert during.held_back == "maintenance" and not during.page
    assert WORK_UNTIL <= after.paged_at[0] < WORK_UNTIL + timedelta(hours=24) and after.raised_at == before.raised_at


def sick(past):
    (incident,) = (one for one in past.incidents if FindingKind.NODE_EATS_JOBS in one.kinds)
    return incident


@pytest.mark.parametrize(
    ("name", "when", "held_back"),
    [
        ("GPGRID", WORK_FROM + timedelta(hours=1), "maintenance"),
        ("GPGRID", WORK_FROM - timedelta(hours=1), ""),
        ("GPGRID", datetime(2018, 9, 27, 12, tzinfo=UTC), ""),  # unscheduled: an outage is no excuse
        ("USCMS-FNAL-WC1", datetime(2016, 9, 17, 12, tzinfo=UTC), "maintenance"),
        ("USCMS-FNAL-WC1", datetime(2016, 9, 19, 12, tzinfo=UTC), ""),
    ],
)
def test_the_watch_pages_outside_of_the_scheduled_work_of_a_real_file_only(tmp_path, public_logs, name, when, held_back):
    with make_site(tmp_path / "site") as site:
        label_from_file(site, LOCAL, public_logs / f"events/{name}_downtime.yaml", kind=None, since=None)
        (incident,) = IncidentKeeper(site).take("jobs", [finding(when=when, known=when)], "", when)
    assert incident.held_back == held_back and incident.page == (not held_back)

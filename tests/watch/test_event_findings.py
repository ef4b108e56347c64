"""The watcher of events: a log of HTCondor alone, without a model, and the incident that it tells of."""

from datetime import UTC, datetime, timedelta

from stormpetrel.alarms.titles import title
from stormpetrel.config import settings_from
from stormpetrel.records.incidents import Blame, Severity
from stormpetrel.store.site import create_site
from stormpetrel.watch.event_findings import EventFindings, GridWatch
from stormpetrel.watch.incident_keeper import IncidentKeeper
from tests.parts.made_events import H0, HOUR, seen_of

END = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOURS = 96
SUBMITTED = "Job submitted from host: <10.0.0.1:9618?addrs=10.0.0.1-9618&alias=ap1&noUDP>"
HELD = "Job was held.\n\tError from slot{}@n9: Failed to execute '/d/job.sh': (errno=5: 'Input/output error')\n\tCode 6 Subcode 5"


def written(number, text, at, job):
    return f"{number:03} ({job:03}.000.000) {at:%Y-%m-%d %H:%M:%S} {text}\n...\n"


def test_jobs_held_by_one_host_are_an_incident_of_that_host_although_their_starts_were_never_seen(tmp_path, monkeypatch):
    log, first = tmp_path / "EventLog", END - timedelta(hours=HOURS)
    minutes = [first + timedelta(minutes=10 * count) for count in range(6 * HOURS)]
    text = "".join(written(0, SUBMITTED, at, 100 + count) for count, at in enumerate(minutes))
    held = [END - timedelta(minutes=20 - count) for count in range(12)]
    log.write_text(text + "".join(written(12, HELD.format(count), at, count) for count, at in enumerate(held)))
    settings = settings_from({"htcondor": {"event_log": str(log)}, "events": {"settle_minutes": 0.0}})
    with create_site(tmp_path / "site", settings) as site:
        now = END + timedelta(minutes=1)
        monkeypatch.setattr(site, "now", lambda: now)
        watcher, keeper = EventFindings(site, GridWatch(site)), IncidentKeeper(site)
        (incident,) = keeper.take("events", watcher.step(now), watcher.state, now)
        assert EventFindings(site, GridWatch(site), state=watcher.state).step(now) == []
    assert (incident.severity, incident.blame) == (Severity.WARNING, Blame.NODE)
    assert title(incident, "UTC") == "jobs are held on n9 since 2026-03-05 11:00: 12, usual 0.011; suspected: node"


def test_a_bucket_that_is_seen_whole_only_after_later_ones_raises_an_incident_that_is_late_and_is_not_sent(tmp_path, monkeypatch):
    """Ten days of counts; the hours in which a node eats jobs are a gap, and come half a day later."""
    hours, wrong = 240, range(225, 228)
    usual = [(hour, "Execute", 4, "node", f"n{node}") for hour in range(hours + 1) for node in range(12)]
    eaten = [(hour, kind, 200, "node", "n3b") for hour in wrong for kind in ("Execute", "JobFailedFast")]
    rows = usual + eaten + [(hour, "Execute", 248 if hour in wrong else 48) for hour in range(hours + 1)]
    now = H0 + HOUR * (hours - 6)
    with create_site(tmp_path / "site", settings_from({"events": {"settle_minutes": 0.0}})) as site:
        monkeypatch.setattr(site, "now", lambda: now)

        def tell(last, unseen=()):
            told = seen_of([row for row in rows if row[0] < last and row[0] not in unseen], 0, last, unseen=unseen)
            site.event_counts.replace(told, source="made", start=H0, end=H0 + HOUR * last, bucket_s=3600)

        tell(hours - 6, unseen=wrong)
        watcher, keeper = EventFindings(site, GridWatch(site)), IncidentKeeper(site)
        assert keeper.take("events", watcher.step(now), watcher.state, now) == []
        tell(hours)
        now = H0 + HOUR * hours
        watcher = EventFindings(site, GridWatch(site), state=watcher.state)
        (incident,) = keeper.take("events", watcher.step(now), watcher.state, now)
        assert incident.late and not incident.page and incident.held_back == "late" and incident.raised_at == now
        assert title(incident, "UTC").startswith("n3b fails every job since 2024-04-09 21:00: 600 of 600")
        now += HOUR
        tell(hours + 1)
        assert watcher.step(now) == []

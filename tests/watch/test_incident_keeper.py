from datetime import timedelta

import pytest

from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, Mute
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.upkeep.upkeep import forget
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.job_findings import SETTLED, JobFindings
from stormpetrel.watch.past.replay import replay
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.replayed_site import SICK_FROM, SICK_NODE, replayed_site


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def test_findings_of_two_watchers_about_one_node_are_one_incident(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [finding()], "", at(1))
    keeper.take("traces", [finding(FindingKind.WINDOWS_ODD, family="traces", when=at(1, hour=1))], "", at(1, hour=1))
    (incident,) = site.incidents.list()
    assert incident.families == ("jobs", "traces") and incident.kinds == (FindingKind.NODE_EATS_JOBS, FindingKind.WINDOWS_ODD)


def test_the_surge_of_failures_that_a_sick_node_makes_is_part_of_its_incident(site):
    keeper = IncidentKeeper(site)
    jobs = [f"{number}-1-0-c1" for number in range(20)]
    keeper.take("jobs", [finding(jobs=jobs)], "", at(1))
    surge = finding(FindingKind.COUNTS_ODD, (SubjectKind.CLUSTER, "c1"), family="events", when=at(1, hour=1), jobs=jobs[5:])
    keeper.take("events", [surge], "", at(1, hour=1))
    (incident,) = site.incidents.list()
    assert incident.families == ("jobs", "events")


def test_a_watch_that_starts_again_goes_on_with_the_incidents_and_the_state_of_the_one_before(site):
    IncidentKeeper(site).take("jobs", [finding()], '{"cursor": 7}', at(1))
    again = IncidentKeeper(site)
    assert again.state_of("jobs") == '{"cursor": 7}'
    (incident,) = again.take("jobs", [finding(when=at(1, hour=2))], "", at(1, hour=2))
    assert incident.id == 1 and incident.findings[0].figure("lost") == 6 and len(incident.paged_at) == 1


def test_an_incident_is_over_when_nobody_finds_anything_any_more(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [finding()], "", at(1))
    assert keeper.take("system", [], "", at(1, hour=12)) == []
    assert keeper.is_due(at(3)) and not keeper.is_due(at(1, hour=12))
    (over,) = keeper.take("system", [], "", at(3))
    assert over.resolved_at == at(2)


def test_what_is_muted_or_under_maintenance_is_kept_and_not_sent(site):
    site.incidents.mute(Mute(0, "c1", Subject(SubjectKind.NODE, "n017"), at(0), at(2), "root"))
    keeper = IncidentKeeper(site)
    (muted,) = keeper.take("jobs", [finding()], "", at(1))
    site.outages.add(Outage(at(4), at(5), OutageKind.MAINTENANCE, "new switches"))
    other = finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, "n1"), when=at(4.5))
    worked_on = {one.id: one for one in keeper.take("jobs", [other], "", at(4.5))}[2]
    assert (muted.held_back, worked_on.held_back) == ("muted", "maintenance") and not muted.page and not worked_on.page


def test_a_user_who_is_forgotten_while_it_watches_is_not_written_again(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [batch_finding("ann")], "", at(1))
    forget(site, "ann")
    keeper.take("jobs", [finding(users=("bob",), when=at(1, hour=1))], "", at(1, hour=1))
    keeper.take("jobs", [], "", at(3))
    assert "ann" not in str(site.incidents.list()) and len(site.incidents.list()) == 2


@pytest.fixture(scope="module")
def sick_site(tmp_path_factory):
    with replayed_site(tmp_path_factory.mktemp("sick") / "site") as opened:
        yield opened


def test_looking_again_and_again_with_kills_between_ends_with_the_incidents_of_the_replay(sick_site):
    start, end = SICK_FROM - timedelta(days=1), SICK_FROM + timedelta(days=2)
    keeper, watcher, now = IncidentKeeper(sick_site), JobFindings(sick_site, start), start
    for look in range(1, 1000):
        now += timedelta(minutes=37)
        if now >= end:
            break
        findings = watcher.live_step(now + SETTLED, now)
        if look % 7 == 3:  # killed before what was found could be kept, and started again
            keeper = IncidentKeeper(sick_site)
            watcher = JobFindings(sick_site, start, state=keeper.state_of("jobs"))
            continue
        keeper.take("jobs", findings, watcher.state, now)
    live = sick_site.incidents.list()[::-1]
    until = now - timedelta(minutes=37)
    past = replay(sick_site, since=start, until=until, every=timedelta(minutes=37), families=("jobs",))
    assert [facts(one) for one in live] == [facts(one) for one in past.incidents] and len(live) > 1


def test_records_that_came_while_the_clock_ran_ahead_are_looked_at_when_it_is_put_right(sick_site):
    now = SICK_FROM + timedelta(hours=36)
    ahead = JobFindings(sick_site, now + timedelta(hours=2))  # as if all of it had been looked at
    found = ahead.live_step(now, now)
    assert SICK_NODE in {one.subject.name for one in found} and {one.known_at for one in found} == {now}
    assert ahead.live_step(now, now) == []


def test_a_clock_that_is_set_back_finds_nothing_twice(sick_site):
    now = SICK_FROM + timedelta(hours=36)
    watcher = JobFindings(sick_site, SICK_FROM - timedelta(days=1))
    assert SICK_NODE in {one.subject.name for one in watcher.live_step(now, now)}
    assert watcher.live_step(now - timedelta(hours=2), now - timedelta(hours=2)) == []


def facts(incident):
    counts = [(part.kind, part.subjects, part.figure("lost"), part.decided_at, part.until) for part in incident.findings]
    return incident.since, incident.until, counts, incident.severity, incident.blame, len(incident.paged_at)


def test_what_somebody_dismissed_is_not_raised_again_and_is_once_it_is_taken_back(site):
    keeper = IncidentKeeper(site)
    keeper.take("jobs", [batch_finding()], "", at(1))
    site.incidents.add_act(IncidentAct(1, at(2), "anna", ActKind.DISMISS))
    quiet = keeper.take("jobs", [batch_finding(when=at(3))], "", at(3))[-1]
    assert quiet.id == 2 and quiet.like == 1
    site.incidents.add_act(IncidentAct(1, at(3, hour=1), "anna", ActKind.WITHDRAW))
    (heard,) = keeper.take("system", [], "", at(3, hour=2))
    assert heard.id == 2 and heard.like is None

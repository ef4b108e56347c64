""""""

from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.alarms.acts import LATE, MAINTENANCE, MUTED, Silences, with_acts
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, IncidentState, Mute, Verdict
from stormpetrel.records.outages import MaintenanceWindow
from tests.parts.alarm_findings import finding
from tests.parts.alarm_jobs import at

N17 = Subject(SubjectKind.NODE, "n017")


@pytest.fixture
def incident():
    (incident,) = IncidentBook().take([finding()], at(1, hour=1))
    return incident


def act(kind, when=at(1, hour=2)):
    return IncidentAct(1, when, "root", kind)


def test_a_note_changes_nothing(incident):
    assert with_acts(incident, [act(ActKind.NOTE)]) == incident


@pytest.mark.parametrize(
    ("kind", "verdict"), [(ActKind.ACKNOWLEDGE, None), (ActKind.CONFIRM, Verdict.CONFIRMED)], ids=["ack", "confirm"]
)
def test_who_acknowledges_or_confirms_has_taken_note(incident, kind, verdict):
    seen = with_acts(incident, [act(kind)])
    assert (seen.state, seen.verdict, seen.resolved_at) == (IncidentState.ACKNOWLEDGED, verdict, None)


def test_a_dismissed_incident_is_over_and_stays_so(incident):
    seen = with_acts(incident, [act(ActKind.DISMISS)])
    assert (seen.state, seen.verdict, seen.resolved_at) == (IncidentState.RESOLVED, Verdict.DISMISSED, at(1, hour=2))
    again = replace(incident, reopened_at=(at(3),))
    assert with_acts(again, [act(ActKind.DISMISS)]).state == IncidentState.RESOLVED


def test_the_last_verdict_holds(incident):
    assert with_acts(incident, [act(ActKind.DISMISS), act(ActKind.CONFIRM)]).verdict == Verdict.CONFIRMED


def test_a_withdrawn_verdict_holds_no_more(incident):
    seen = with_acts(incident, [act(ActKind.DISMISS), act(ActKind.WITHDRAW)])
    assert (seen.verdict, seen.state) == (None, IncidentState.ACKNOWLEDGED)


def test_a_verdict_after_one_that_was_withdrawn_holds(incident):
    words = [act(ActKind.CONFIRM), act(ActKind.WITHDRAW), act(ActKind.DISMISS)]
    assert with_acts(incident, words).verdict == Verdict.DISMISSED


def test_what_comes_back_after_it_was_acknowledged_is_open_again(incident):
    again = replace(incident, reopened_at=(at(3),))
    assert with_acts(again, [act(ActKind.ACKNOWLEDGE)]).state == IncidentState.OPEN


def mute(subject=N17, until=at(2), cluster="c1"):
    return Mute(1, cluster, subject, at(0), until, "root")


def take(silences, *findings):
    book = IncidentBook()
    book.silences = silences
    for one in findings:
        book.take([one], one.known_at)
    return list(book)


@pytest.mark.parametrize(
    ("silences", "reason"),
    [
        (Silences((mute(),)), MUTED),
        (Silences((mute(cluster="other"),)), ""),
        (Silences((mute(until=at(1)),)), ""),
        (Silences(windows=(MaintenanceWindow(at(0), None),)), MAINTENANCE),
        (Silences(windows=(MaintenanceWindow(at(0), at(1)),)), ""),
        (Silences(windows=(MaintenanceWindow(at(0), at(2), frozenset({"n017"})),)), MAINTENANCE),
        (Silences(windows=(MaintenanceWindow(at(0), at(2), frozenset({"n018"})),)), ""),
        (Silences(windows=(MaintenanceWindow(at(0), at(2), cluster="other"),)), ""),
    ],
)
def test_what_is_muted_or_under_maintenance_is_listed_and_not_sent(silences, reason):
    (incident,) = take(silences, finding())
    assert incident.held_back == reason and incident.page == (not reason)


def test_a_second_node_is_told_although_the_first_one_is_muted():
    first, second = finding(), replace(finding(), subjects=(Subject(SubjectKind.NODE, "n018"),))
    (incident,) = take(Silences((mute(),)), first, second)
    assert incident.page and incident.held_back == ""


def test_nodes_that_are_worked_on_in_windows_of_their_own_are_all_under_maintenance():
    first, second = finding(), replace(finding(), subjects=(Subject(SubjectKind.NODE, "n018"),))
    windows = tuple(MaintenanceWindow(at(0), at(2), frozenset({name})) for name in ("n017", "n018"))
    (incident,) = take(Silences(windows=windows), first, second)
    assert not incident.page and incident.held_back == MAINTENANCE
    (incident,) = take(Silences(windows=windows[:1]), first, second)
    assert incident.page


def test_what_goes_on_after_the_mute_is_sent_then():
    (incident,) = take(Silences((mute(until=at(1, hour=3)),)), finding(), finding(when=at(1, hour=4)))
    assert incident.paged_at == (at(1, hour=4) + timedelta(seconds=5),)


def test_what_was_known_late_and_goes_on_is_sent_when_it_is_known_in_time():
    late, in_time = finding(known=at(1, hour=20)), finding(when=at(1, hour=20), known=at(1, hour=21))
    (alone,) = take(Silences(), late)
    assert alone.late and alone.held_back == LATE and not alone.page
    (incident,) = take(Silences(), late, in_time)
    assert incident.page and not incident.late

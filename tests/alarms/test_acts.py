from dataclasses import replace

import pytest

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.incidents import ActKind, IncidentAct, IncidentState, Verdict
from tests.parts.alarm_findings import finding
from tests.parts.alarm_jobs import at


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

"""What verdicts teach: the same false alarm does not come back, and nothing else is silenced."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.verdict_memory import DISMISSED, HALF_LIFE, VerdictMemory
from stormpetrel.records.findings import Finding, FindingKind, SubjectKind
from stormpetrel.records.incidents import ActKind, Incident, IncidentAct, JudgedIncident, Severity
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

NODE = (SubjectKind.NODE, "n017")


def judged(number: int, what: Finding, kind: ActKind = ActKind.DISMISS, when: datetime = at(2)) -> JudgedIncident:
    (incident,) = IncidentBook(first_id=number).take([what], what.known_at)
    return JudgedIncident(incident, IncidentAct(number, when, "anna", kind))


def taken(memory: VerdictMemory, *findings: Finding) -> list[Incident]:
    book = IncidentBook(first_id=50)
    book.memory = memory
    for one in findings:
        book.take([one], one.known_at)
    return list(book)


def test_what_is_like_a_dismissed_incident_is_kept_and_not_on_the_list():
    (incident,) = taken(VerdictMemory([judged(12, batch_finding())]), batch_finding(when=at(5)))
    assert incident.is_quiet and incident.like == 12


def test_a_dismissal_speaks_of_no_other_kind_of_trouble_of_the_same_node():
    odd = finding(FindingKind.WINDOWS_ODD, NODE, family="traces")
    (incident,) = taken(VerdictMemory([judged(12, odd)]), finding(FindingKind.NODE_DOWN, NODE, when=at(5)))
    assert incident.like is None


@pytest.mark.parametrize("more", [{"lost": 40}, {"deciding_score": 40.0}], ids=["jobs lost", "score"])
def test_what_is_far_larger_than_what_was_dismissed_is_raised(more):
    (incident,) = taken(VerdictMemory([judged(12, batch_finding(lost=10))]), batch_finding(when=at(5), **more))
    assert incident.like is None


def test_a_quiet_incident_that_outgrows_the_dismissed_one_is_raised():
    small = [batch_finding(when=at(5, hour=hour), lost=6) for hour in range(4)]
    (incident,) = taken(VerdictMemory([judged(12, batch_finding(lost=10))]), *small)
    assert incident.like is None and incident.findings[0].figure("lost") == 24


def test_one_dismissal_of_another_subject_is_not_enough_and_four_are():
    others = [judged(number, batch_finding(f"user{number}")) for number in range(1, 5)]
    assert taken(VerdictMemory(others[:1]), batch_finding(when=at(5)))[0].like is None
    assert taken(VerdictMemory(others), batch_finding(when=at(5)))[0].like in {1, 2, 3, 4}


def test_confirmations_weigh_against_dismissals():
    words = [judged(1, batch_finding()), judged(2, batch_finding(), ActKind.CONFIRM)]
    assert taken(VerdictMemory(words), batch_finding(when=at(5)))[0].like is None


def test_a_dismissal_is_forgotten_with_time():
    memory = VerdictMemory([judged(12, batch_finding())])
    late = at(2) + HALF_LIFE + timedelta(days=1)
    assert memory.like([batch_finding()], late - timedelta(days=2)) == 12 and memory.like([batch_finding()], late) is None


def test_a_verdict_says_nothing_about_what_was_found_before_it():
    memory = VerdictMemory([judged(12, batch_finding(), when=at(6))])
    assert memory.like([batch_finding()], at(5)) is None


def test_what_a_rule_calls_a_page_stays_on_the_list_and_is_not_sent():
    (incident,) = taken(VerdictMemory([judged(12, finding())]), finding(when=at(4)))
    assert incident.severity == Severity.PAGE and not incident.is_quiet
    assert (incident.like, incident.held_back, incident.page) == (12, DISMISSED, False)


def test_dismissals_of_other_nodes_hold_back_no_page():
    others = [judged(number, finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, f"n{number}"))) for number in range(1, 9)]
    (incident,) = taken(VerdictMemory(others), finding(when=at(5)))
    assert incident.like is None and incident.page


def test_a_node_that_goes_down_weeks_after_a_dismissal_is_raised_again():
    down = finding(FindingKind.NODE_DOWN, NODE)
    memory = VerdictMemory([judged(12, down)])
    assert memory.like([down], at(4)) == 12 and memory.like([down], at(20)) is None


def test_a_batch_that_fell_to_a_confirmed_sick_node_speaks_of_no_batch():
    (sick,) = IncidentBook(first_id=3).take([finding()], at(1))
    whole = replace(sick, findings=(*sick.findings, batch_finding()))
    memory = VerdictMemory([JudgedIncident(whole, IncidentAct(3, at(2), "anna", ActKind.CONFIRM)), judged(12, batch_finding())])
    assert memory.like([batch_finding()], at(5)) == 12


def test_a_dismissed_incident_takes_in_nothing_more():
    book = IncidentBook()
    (first,) = book.take([batch_finding()], at(1))
    book.memory = VerdictMemory([JudgedIncident(first, IncidentAct(1, at(1, hour=2), "anna", ActKind.DISMISS))])
    book.take([batch_finding(when=at(1, hour=3), lost=90)], at(1, hour=3))
    assert [(one.id, one.like) for one in book] == [(1, None), (2, None)]


def test_an_open_quiet_incident_is_listed_when_the_dismissal_is_taken_back():
    book = IncidentBook(first_id=50)
    book.memory = VerdictMemory([judged(12, batch_finding())])
    book.take([batch_finding(when=at(5))], at(5))
    book.memory = VerdictMemory()
    (changed,) = book.take([], at(5, hour=1))
    assert changed.like is None

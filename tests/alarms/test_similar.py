from dataclasses import replace

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.similar import nearest
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.incidents import Blame
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

NODE = SubjectKind.NODE


def incidents(*findings):
    """One incident each, a month apart."""
    made = []
    for number, one in enumerate(findings):
        moved = replace(one, since=at(30 * number), decided_at=at(30 * number), until=at(30 * number), known_at=at(30 * number))
        book = IncidentBook(first_id=number + 1)
        book.take([moved], moved.known_at)
        made += list(book)
    return made


def test_the_same_trouble_of_the_same_node_is_nearest_and_then_that_of_another_node():
    same, other, down, now = incidents(
        finding(), finding(FindingKind.NODE_EATS_JOBS, (NODE, "n018")), finding(FindingKind.NODE_DOWN), finding()
    )
    alike = nearest(now, [same, other, down])
    assert [(one.incident.id, one.distance) for one in alike] == [(1, 0.0), (3, 1.0), (2, 1.0)]
    assert alike[0].kinds and alike[0].subjects == now.subjects and alike[0].same_blame


def test_of_equally_near_ones_the_newest_comes_first_and_no_more_than_wanted_are_named():
    past = incidents(*(finding() for _ in range(6)))
    assert [one.incident.id for one in nearest(past[-1], past, most=2)] == [5, 4]


def test_what_shares_neither_kind_nor_subject_is_not_similar():
    batch, now = incidents(batch_finding("ann"), finding())
    assert nearest(replace(now, blame=batch.blame), [batch]) == []


def test_a_subject_that_is_only_involved_and_another_suspect_are_half_as_near():
    (first, second) = incidents(batch_finding("ann", application="fit"), batch_finding("bob", application="fit"))
    (likeness,) = nearest(second, [replace(first, blame=Blame.USER)])
    assert likeness.distance == 0.5 + 0.5 and not likeness.same_blame  # the application, and the blame


def test_later_incidents_and_those_of_other_clusters_are_not_past_ones():
    first, second = incidents(finding(), finding())
    assert nearest(first, [second]) == [] and nearest(second, [replace(first, cluster="c2")]) == []

from dataclasses import replace

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.notices import make_delivery, make_notice
from stormpetrel.alarms.routing import due_messages
from stormpetrel.alarms.silences import Silences
from stormpetrel.records.findings import FindingKind, SubjectKind
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.told_incidents import route


def notices(*findings, now=None, **options):
    book = IncidentBook()
    for one in findings:
        book.take([one], one.known_at)
    if now is not None:
        book.take([], now)
    incidents = {incident.id: incident for incident in book}
    messages = due_messages(incidents.values(), [route(severity="info")], Silences(), at(1))
    how = {"zone": "UTC", "public_url": "https://petrel.example/", "with_names": True} | options
    return [make_notice(message, incidents[message.incident], **how) for message in messages]


def delivery(*parts):
    return make_delivery(parts, is_repeat=False, site_id="0a1b2c3d", site="my\ncluster", now=at(1))


def test_a_notice_has_the_one_line_and_a_link_to_the_incident():
    (notice,) = notices(finding(lost=46, tried=46))
    assert notice.title.startswith("n017 fails every job since") and notice.title.endswith("suspected: node")
    assert notice.link == "https://petrel.example/alarms?incident=1" and notice.node == "n017"
    assert notices(finding(), public_url="")[0].link == ""


def test_where_names_may_not_leave_no_user_job_or_application_is_named():
    (notice,) = notices(batch_finding("cat", application="fit-secret", jobs=("c1/77",)), with_names=False)
    assert "cat" not in repr(notice).replace("incident", "") and "fit" not in repr(notice) and "c1/77" not in repr(notice)
    assert "jobs of a user fail" in notice.title


def test_without_names_an_application_is_an_application_and_a_node_keeps_its_name():
    of_application = finding(FindingKind.BATCH_FAILS, (SubjectKind.APPLICATION, "secret"), users=("ann", "bob", "cat"))
    assert notices(of_application, with_names=False)[0].title.startswith("an application fails for 3 users")
    assert notices(finding(), with_names=False)[0].node == "n017"


def test_what_has_changed_is_said_first_and_not_where_names_may_not_leave():
    change = "The application sweep is new since 2026-03-02: 40 jobs."
    (notice,) = notices(batch_finding("cat"), change=change)
    assert notice.evidence[0] == f"A change, not an anomaly. {change}" and len(notice.evidence) == 2
    assert "sweep" not in repr(notices(batch_finding("cat"), change=change, with_names=False))
    assert not any("A change" in line for line in notices(batch_finding("cat"))[0].evidence)


def test_hostile_names_become_one_bounded_line():
    evil = "n1\r\nBcc: all@example.org\x1b[2J\u202e" + "x" * 5000
    (notice,) = notices(finding(FindingKind.NODE_DOWN, (SubjectKind.NODE, evil)))
    for text in (notice.title, notice.node, *notice.evidence):
        assert text.isprintable() and len(text) <= 400


def test_the_same_messages_make_the_same_id_and_other_messages_another():
    first, second = notices(finding(), batch_finding("cat"))
    assert delivery(first).id == "incident-1-0-firing-ops-0a1b2c3d"
    assert delivery(first, second).id == delivery(first, second).id != delivery(second, first).id
    assert delivery(first).site == "my cluster"


def test_a_digest_says_the_last_word_on_each_incident():
    firing, resolved = notices(finding(), now=at(3))
    (other,) = notices(batch_finding("cat"))
    both = delivery(firing, resolved)
    assert both.latest == (resolved,) and both.title == "1 incident at my cluster: 0 firing, 1 resolved"
    many = delivery(firing, resolved, *[replace(other, incident=number) for number in range(2, 40)])
    assert len(many.lines) == 21 and many.lines[-1] == "and 19 more"

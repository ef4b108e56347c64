""""""

from dataclasses import replace
from datetime import timedelta

from stormpetrel.alarms.acts import Silences, with_acts
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.notices import due_messages, make_delivery, make_notice
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, MessageKind, Mute, message_key
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.told_incidents import route

PAGES, ALL = route("pages"), route("all", severity="info")


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


def raised(*findings, now=None):
    book = IncidentBook()
    for one in findings:
        book.take([one], one.known_at)
    if now is not None:
        book.take([], now)
    return list(book)


def keys(incidents, routes=(PAGES,), silences=Silences(), now=at(1), **more):
    return [message.key for message in due_messages(incidents, routes, silences, now, **more)]


def test_an_incident_is_told_on_each_route_that_it_concerns_and_again_with_the_same_keys():
    incidents = raised(finding(), batch_finding("cat"))
    told = keys(incidents, [PAGES, ALL])
    assert told == ["incident-1-0-firing-pages", "incident-1-0-firing-all", "incident-2-0-firing-all"]
    assert keys(incidents, [PAGES, ALL], now=at(2)) == told


def test_a_route_hears_only_of_its_families():
    incidents = raised(finding())
    assert keys(incidents, [route("a", families=["traces", "jobs"])]) and not keys(incidents, [route("a", families=["traces"])])


def test_what_is_over_is_told_to_be_over_where_it_was_told():
    incidents = raised(finding(), now=at(3))
    assert keys(incidents) == ["incident-1-0-firing-pages", "incident-1-0-resolved-pages"]


def test_what_comes_back_is_told_again():
    incidents = raised(finding(), finding(when=at(3)), now=None)
    assert [one.reopened_at for one in incidents] == [(at(3) + timedelta(seconds=5),)]
    assert keys(incidents) == ["incident-1-1-firing-pages"]


def test_a_page_that_was_held_back_reaches_no_route_of_pages():
    (late,) = raised(finding(known=at(2)))
    assert late.late and keys([late], [PAGES, ALL]) == []
    (raised_in_time,) = raised(finding())
    above_budget = replace(raised_in_time, paged_at=(), held_back="budget")
    assert keys([above_budget], [PAGES, ALL]) == ["incident-1-0-firing-all"]


def test_a_lesser_incident_is_not_told_while_it_is_silenced_or_when_it_was_known_late():
    incidents = raised(batch_finding("cat"))
    mute = Mute(1, "c1", Subject(SubjectKind.USER, "cat"), at(0), at(2), "root")
    assert keys(incidents, [ALL], Silences(mutes=(mute,))) == []
    assert keys(incidents, [ALL], Silences(mutes=(mute,)), now=at(2)) == ["incident-1-0-firing-all"]
    assert keys(raised(batch_finding("cat", known=at(3))), [ALL]) == []


def test_what_was_told_before_it_was_muted_is_told_to_be_over():
    incidents = raised(batch_finding("cat"), now=at(3))
    mute = Mute(1, "c1", Subject(SubjectKind.USER, "cat"), at(0), at(9), "root")
    firing = message_key(1, 0, MessageKind.FIRING, "all")
    assert keys(incidents, [ALL], Silences(mutes=(mute,)), known={firing}) == [firing, "incident-1-0-resolved-all"]


def test_a_dismissed_incident_is_told_only_to_be_over_where_it_was_told():
    (incident,) = raised(finding())
    dismissed = with_acts(incident, [IncidentAct(1, at(1, hour=1), "root", ActKind.DISMISS)])
    assert keys([dismissed]) == []
    assert keys([dismissed], known={"incident-1-0-firing-pages"})[-1] == "incident-1-0-resolved-pages"


def test_a_new_route_hears_nothing_of_what_was_over_before_it_came_but_what_is_open():
    over, still = raised(finding(), now=at(3))[0], replace(raised(finding())[0], id=2)
    assert keys([over, still], routes_since={"pages": at(4)}) == ["incident-2-0-firing-pages"]
    assert len(keys([over], routes_since={"pages": at(0)})) == 2

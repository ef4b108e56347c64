from dataclasses import replace
from datetime import timedelta

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.routing import due_messages
from stormpetrel.alarms.silences import Silences
from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, MessageKind, Mute, message_key
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.told_incidents import route

PAGES, ALL = route("pages"), route("all", severity="info")


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

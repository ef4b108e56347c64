from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.errors import NotThereError, StoreError, UsageError
from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import ActKind, IncidentAct, Mute, Severity
from stormpetrel.store.incidents.incidents import LONGEST_NOTE
from stormpetrel.store.state_tables import incidents as table
from stormpetrel.store.upkeep.scrub import scrub
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

HOUR = timedelta(hours=1)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def kept(site, *findings, watcher_state="{}"):
    book = IncidentBook(site.incidents.list(), first_id=site.incidents.next_number())
    for one in findings:
        changed = book.take([one], one.known_at)
        site.incidents.commit(changed, watcher="jobs", watcher_state=watcher_state, now=one.known_at)
    return list(book)


def test_an_incident_comes_back_as_it_was_kept(site):
    made = kept(site, finding(jobs=("c1/1", "c1/2"), users=("ann", "bob")), batch_finding("cat"))
    assert site.incidents.list() == made[::-1]
    assert site.incidents.get(2) == made[1] and site.incidents.next_number() == 3


def test_a_book_opened_again_goes_on_as_one_that_was_never_closed(site):
    parts = [finding(jobs=("c1/1",)), batch_finding("cat", when=at(1, hour=2)), finding(when=at(1, hour=3), jobs=("c1/9",))]
    whole = IncidentBook()
    for one in parts:
        kept(site, one)
        whole.take([one], one.known_at)
    assert site.incidents.list()[::-1] == list(whole)


def test_incidents_and_their_watcher_are_kept_together_or_not_at_all(site):
    kept(site, finding(), watcher_state='{"seen": 1}')
    again = replace(site.incidents.get(1), severity=Severity.INFO)
    with pytest.raises(StoreError):  # the database refuses a watcher without a state, after it has taken the incident
        site.incidents.commit([again], watcher="jobs", watcher_state=None, now=at(2))
    assert site.incidents.get(1).severity == Severity.PAGE
    assert site.incidents.watcher_state("jobs") == '{"seen": 1}' and site.incidents.watcher_state("traces") == ""


def test_incidents_are_listed_by_whether_they_are_over_and_how_loud_they_are(site):
    book = IncidentBook()
    changed = book.take([finding(), batch_finding("cat")], at(1))
    site.incidents.commit(changed, watcher="jobs", watcher_state="", now=at(1))
    site.incidents.commit(book.take([], at(1, hour=12)), watcher="jobs", watcher_state="", now=at(1, hour=12))
    assert [one.id for one in site.incidents.list(is_open=True)] == [1]
    assert [one.id for one in site.incidents.list(is_open=False)] == [2]
    assert [one.id for one in site.incidents.list(severities=[Severity.INFO])] == [2]
    assert [one.id for one in site.incidents.list(resolved_after=at(9))] == [1]


def test_what_people_did_is_kept_apart_from_what_the_watch_writes(site):
    (made,) = kept(site, finding())
    site.incidents.add_act(IncidentAct(1, at(1, hour=1), "root", ActKind.ACKNOWLEDGE, "on my way\x1b[2J"))
    site.incidents.commit([made], watcher="jobs", watcher_state="", now=at(2))
    (act,) = site.incidents.acts([1])[1]
    assert act == IncidentAct(1, at(1, hour=1), "root", ActKind.ACKNOWLEDGE, "on my way [2J")


def test_nobody_can_act_on_an_incident_that_is_not_there_or_write_a_book_about_one(site):
    with pytest.raises(NotThereError, match="no incident 7"):
        site.incidents.add_act(IncidentAct(7, at(1), "root", ActKind.NOTE, "hm"))
    with pytest.raises(NotThereError, match="alarms list"):
        site.incidents.get(7)
    kept(site, finding())
    with pytest.raises(UsageError, match="too long"):
        site.incidents.add_act(IncidentAct(1, at(1), "root", ActKind.NOTE, "x" * (LONGEST_NOTE + 1)))


def test_a_mute_replaces_the_one_before_it_and_one_without_length_ends_it(site):
    node = Subject(SubjectKind.NODE, "n017")
    site.incidents.mute(Mute(0, "c1", node, at(1), at(5), "root", "new disk"))
    site.incidents.mute(Mute(0, "c1", node, at(2), at(3), "root", "sooner"))
    first, second = site.incidents.mutes()
    assert (first.until, second.until) == (at(2), at(3)) and first.id != second.id
    site.incidents.mute(Mute(0, "c1", node, at(2, hour=1), at(2, hour=1), "root"))
    assert site.incidents.mutes(after=at(2, hour=1)) == []


def test_an_incident_written_by_a_newer_version_says_so(site):
    kept(site, finding())
    with site.state.transaction() as connection:
        connection.execute(table.update().values(body='{"id": 1}'))
    with pytest.raises(StoreError, match="newer version"):
        site.incidents.get(1)


def test_a_forgotten_user_is_named_nowhere_in_incidents(site):
    state = '{"counted": [{"name": "ann", "part": "ann"}]}'
    made = kept(site, finding(users=("ann", "bob")), batch_finding("ann", application="fit"), watcher_state=state)
    site.incidents.add_act(IncidentAct(1, at(1), "ann", ActKind.NOTE, "ann was here"))
    site.incidents.mute(Mute(0, "c1", Subject(SubjectKind.USER, "ann"), at(1), at(5), "root", "ann knows"))
    scrub(site.state, "ann")
    assert "ann" not in str([site.incidents.list(), site.incidents.acts([1]), site.incidents.mutes()])
    assert "ann" not in site.incidents.watcher_state("jobs")
    assert [one.kinds for one in site.incidents.list()] == [one.kinds for one in made[::-1]]


def test_forgetting_a_user_with_the_name_of_a_figure_leaves_incidents_readable(site):
    (made,) = kept(site, finding(users=("users", "node")))
    scrub(site.state, "users")
    scrub(site.state, "node")
    assert site.incidents.get(1).findings[0].evidence == made.findings[0].evidence
    assert site.incidents.get(1).users == {"[forgotten]"}

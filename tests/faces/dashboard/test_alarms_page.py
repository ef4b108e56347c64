"""Alarms: the list of incidents and one of them, what they show to whom, and a verdict in a real browser."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.alarms.incidents import show_incident
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.faces.dashboard.shell import page_of
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.incidents import Message, MessageKind, message_key
from tests.builders import make_site
from tests.faces.dashboard.served import PHONE, Board
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

browser_test = pytest.mark.browser
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MARKUP = "<img src=x onerror=\"window.hacked='note'\">"
NODE = "<b>n017</b>"
REFS = [f"{number}-1714953600000000-0-c1" for number in (101, 102, 103)]
ANN, EVE = (Viewer(user, is_admin=False) for user in ("ann", "eve"))


@pytest.fixture(scope="module")
def board(tmp_path_factory, address):
    """A site with a sick node three weeks ago and now, whose name and notes are markup, a batch of ann's and a wave; served."""
    folder = tmp_path_factory.mktemp("alarms") / "site"
    with make_site(folder, serve={"requests_per_minute": 1_000_000}, site={"time_zone": "UTC"}) as site:
        sick = (FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, NODE))
        raise_incidents(
            site,
            finding(*sick, when=NOW - 21 * DAY, users=("ann", "bob")),
            batch_finding("ann", when=NOW - 3 * HOUR),
            finding(*sick, when=NOW - 2 * HOUR, jobs=REFS, users=("ann", "bob")),
            finding(FindingKind.TIMEOUT_WAVE, (SubjectKind.CLUSTER, "c1"), when=NOW - HOUR, users=("bob", "cat")),
        )
        act_on_incident(site, LOCAL, 1, "confirm", f"new disk {MARKUP}")
        write_messages(site)
        live = LiveSite(site)
        live.refresh()
        with address.showing(live) as url:
            yield Board(url, site, live)


def write_messages(site):
    """One that was delivered and one that was given up."""
    keys = [message_key(incident, 0, MessageKind.FIRING, "ops") for incident in (2, 3)]
    site.messages.insert([Message(key, "ops", MessageKind.FIRING, 2 + place, 0, NOW) for place, key in enumerate(keys)])
    site.messages.begin(keys, NOW)
    site.messages.delivered(keys[:1], NOW)
    site.messages.give_up(keys[1:], f"refused {MARKUP}")


def sent(live, viewer, query=""):
    """The page as the server sends it to a viewer."""
    with seen_by(viewer):
        return json.dumps(page_of("/alarms", query, live), cls=PlotlyJSONEncoder)


def test_a_user_sees_own_incidents_only_and_no_form(board):
    own = sent(board.live, ANN, "state=all")
    assert "incident=3" in own and "incident=2" in own and "incident=4" not in own
    assert "There is no open incident" in sent(board.live, EVE)
    one = sent(board.live, ANN, "incident=3")
    assert "alarms-acknowledge" not in one and "new disk" not in one and "bob" not in one
    assert "There is no incident 4" in sent(board.live, ANN, "incident=4")


def test_who_may_only_read_is_shown_no_form(board):
    reader = Viewer("root", is_admin=True, scopes=frozenset({"read"}))
    assert "alarms-confirm" not in sent(board.live, reader, "incident=3") and "alarms-confirm" in sent(
        board.live, LOCAL, "incident=3"
    )


def test_every_message_and_its_fate_is_shown_to_administrators_alone(board):
    told = sent(board.live, LOCAL, "state=messages")
    assert all(words in told for words in ("alarms-messages", "delivered", "given up", "incident=3", "Given up: 1."))
    seen_by_ann = sent(board.live, ANN, "state=messages")
    assert "alarms-messages" not in seen_by_ann and "given up" not in seen_by_ann and "Messages" not in seen_by_ann


@pytest.mark.parametrize("query", ["incident=x", "incident=-1", f"incident={'9' * 400}", "incident=999", "state=7"])
def test_a_link_that_makes_no_sense_is_answered_in_a_sentence(board, query):
    told = sent(board.live, LOCAL, query)
    assert "There is no" in told or (query == "state=7" and "alarms-table" in told)


@browser_test
def test_a_link_changes_nothing_and_a_verdict_does(browser, board):
    visit = browser.open("/alarms", wait_for="#alarms-table .cell-link")
    assert visit.axe() == []
    visit.page.click("#alarms-table .ag-row:has-text('n017') .cell-link >> nth=0")
    visit.page.wait_for_selector("h1:has-text('Incident 3')")
    body = visit.page.locator("#alarms-body")
    for words in (NODE, "jobs lost", "What happened", "Lost jobs", "Like it before", MARKUP):
        assert words in body.inner_text()
    assert body.locator("a", has_text="101").get_attribute("href").startswith("/jobs?view=all&job=101-")
    assert show_incident(board.site, LOCAL, 3).state == "open" and show_incident(board.site, LOCAL, 3).acts == []

    visit.page.click("#alarms-note-act")
    visit.page.wait_for_selector("#alarms-message:has-text('The note is empty')")
    visit.page.fill("#alarms-note", f"mine {MARKUP}")
    visit.page.click("#alarms-confirm-act")
    visit.page.wait_for_selector("#alarms-body .incident-title:has-text('Confirmed')")
    assert visit.page.input_value("#alarms-note") == "" and f"mine {MARKUP}" in body.inner_text()
    assert show_incident(board.site, LOCAL, 3).verdict == "confirmed"

    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == [] and visit.overflow() == 0
    visit.page.goto(f"{board.url}/alarms?state=messages")
    visit.page.wait_for_selector("#alarms-messages .ag-row:has-text('given up')")
    assert visit.axe() == [] and visit.overflow() == 0
    assert visit.page.evaluate("window.hacked") is None
    visit.clean()


@browser_test
def test_the_first_page_says_whether_to_act_and_what_is_new_since_the_last_visit(browser, board):
    visit = browser.open("/", wait_for="#now-headline")
    page = visit.page
    assert "open incidents, 1 of them a page" in page.inner_text("#now-headline")
    assert page.locator("#now-body a", has_text="n017").get_attribute("href") == "/alarms?incident=3"
    assert "calm" not in page.inner_text("main").lower()
    page.wait_for_function("localStorage.getItem('stormpetrel-visit /')")
    assert page.locator("#now-news .card").count() == 0  # the first visit: nothing is new, or everything
    assert visit.axe() == []

    page.evaluate("at => localStorage.setItem('stormpetrel-visit /', JSON.stringify({seen: at}))", (NOW - 4 * HOUR).isoformat())
    page.reload()
    page.wait_for_selector("#now-news .card:has-text('raised')")
    visit.show(PHONE, "dark")
    page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == [] and visit.overflow() == 0 and page.evaluate("window.hacked") is None

    page.goto(f"{board.url}/?view=all")  # the table of jobs was the first page once
    page.wait_for_selector("h1:has-text('Jobs')")
    assert page.url == f"{board.url}/jobs?view=all"
    visit.clean()


def test_cases_to_judge_are_shown_to_administrators_with_two_buttons_and_to_nobody_else(board):
    with seen_by(LOCAL):
        page = json.dumps(page_of("/cases", "", board.live), cls=PlotlyJSONEncoder)
    assert "case-answer" in page and "incident:2" in page and "undecided" in page
    with seen_by(ANN):
        assert "incident:2" not in json.dumps(page_of("/cases", "", board.live), cls=PlotlyJSONEncoder)

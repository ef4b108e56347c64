"""Actions: the ledger and the switch for administrators, a user's own acts, and the cancel of a job's panel in a real browser."""

import json

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, SCOPES, Viewer, seen_by
from stormpetrel.faces.dashboard.pages.job_panel import fate_of, panel
from stormpetrel.faces.dashboard.shell import page_of
from stormpetrel.records.actions.acts import Mode
from tests.faces.dashboard.served import Board
from tests.parts.acting_site import acting_site, flag, job_ref, turn

ADA, EVE = (Viewer(user, is_admin=False) for user in ("ada", "eve"))


@pytest.fixture(scope="module")
def board(tmp_path_factory, address):
    """A site with a dry act on ada's job, which asks for tokens."""
    serve = {"requests_per_minute": 1_000_000, "login": "token", "admins": ["root"]}
    with acting_site(tmp_path_factory.mktemp("actions"), serve=serve, site={"time_zone": "UTC"}) as (site, _):
        flag(site)
        turn(site)
        live = LiveSite(site)
        live.refresh()
        with address.showing(live) as url:
            yield Board(url, site, live)


def logged_in(browser, board, user, path, *, wait_for):
    """A page of the board, opened by somebody who has pasted a token."""
    visit = browser.open("/login", wait_for="input[name=token]")
    visit.page.fill("input[name=token]", board.site.tokens.add(f"{user} {path}", user=user, scopes=list(SCOPES)))
    visit.page.click("button[type=submit]")
    visit.page.wait_for_selector("#shell-page h1")
    visit.page.goto(board.url + path)
    visit.page.wait_for_selector(wait_for)
    return visit


def sent(live, viewer, query=""):
    """The page as the server sends it to a viewer."""
    with seen_by(viewer):
        return json.dumps(page_of("/actions", query, live), cls=PlotlyJSONEncoder)


def test_an_administrator_sees_the_ledger_and_the_switch_and_a_user_the_own_acts(board):
    whole, own, nothing = (sent(board.live, viewer) for viewer in (LOCAL, ADA, EVE))
    assert "Stop all actions" in whole and "two minutes in, risk 0.9 or more" in whole and "cannot be armed yet" in whole
    assert "Stop all actions" not in own and "cannot be armed" not in own and '"dry"' in own
    assert "No decisions and no actions so far." in nothing and "policy:cancel" not in nothing


def test_who_may_only_read_is_shown_no_switch(board):
    assert "actions-off" not in sent(board.live, Viewer("root", is_admin=True, scopes=frozenset({"read"})))


@pytest.mark.browser
def test_one_click_stops_everything_and_one_lets_it_go_on(browser, board):
    visit = logged_in(browser, board, "root", "/actions", wait_for="#actions-table .cell-link")
    assert visit.axe() == []
    visit.page.fill("#actions-why", "upgrade")
    visit.page.click("#actions-off")
    visit.page.wait_for_selector("#actions-body:has-text('Actions are switched off')")
    assert board.site.actions.switch().why == "upgrade" and not board.site.actions.switch().is_on
    visit.page.click("#actions-on")
    visit.page.wait_for_selector("#actions-message:has-text('Acting is on.')")
    assert board.site.actions.switch().is_on
    visit.clean()


@pytest.mark.browser
def test_the_owner_cancels_a_job_from_its_panel_by_writing_its_id(browser, board):
    link = f"/jobs?view=all&job={job_ref(board.site)}"
    page = logged_in(browser, board, "ada", link, wait_for="#panel-cancelling").page
    page.click("#panel-cancelling summary")
    page.click("#panel-cancel")
    page.wait_for_selector("#panel-cancel-message:has-text('not confirmed')")
    page.fill("#panel-cancel-confirm", "7")
    page.click("#panel-cancel")
    page.wait_for_selector("#panel-cancel-message:has-text('agreed')")
    assert [act.by for act in board.site.actions.list(modes=[Mode.PERSON])] == ["ada"]


def test_the_panel_of_a_job_has_its_cancel_only_for_whom_it_may_be(tmp_path):
    with acting_site(tmp_path) as (site, _):
        live = LiveSite(site)
        live.refresh()
        shown = {viewer.user: shown_panel(live, viewer) for viewer in (ADA, Viewer("root", is_admin=True))}
        assert all("Write 7 to confirm" in text for text in shown.values())
        reader = Viewer("ada", is_admin=False, scopes=frozenset({"read"}))
        assert "panel-cancel" not in shown_panel(live, reader)


def shown_panel(live, viewer):
    return json.dumps(panel(live, viewer, job_ref(live.site)), cls=PlotlyJSONEncoder)


def test_what_became_of_a_cancel_is_one_sentence():
    class Receipt:
        state, why = "held_back", "Slurm is away."

    assert fate_of(Receipt()) == "It was not cancelled (held back): Slurm is away."

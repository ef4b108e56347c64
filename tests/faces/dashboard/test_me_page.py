"""My jobs: the own page of a person, what is on it, and the switch for the digest, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.faces.dashboard.shell import page_of
from tests.answers.personal.sites import people_site
from tests.faces.dashboard.served import PHONE, Board
from tests.parts.inbox import Inbox
from tests.parts.mail_site import mail_settings


@pytest.fixture(scope="module")
def board(tmp_path_factory, address) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("me")
    with Inbox() as inbox, people_site(folder / "site", **mail_settings(folder, inbox)) as site:
        live = LiveSite(site)
        live.refresh()
        live.boards.books.wait(live)
        with address.showing(live) as url:
            yield Board(url, site, live)


def shown(live: LiveSite, viewer: Viewer, query: str = "") -> str:
    live.boards.books.wait(live)
    with seen_by(viewer):
        return json.dumps(page_of("/me", query, live), cls=PlotlyJSONEncoder)


def test_a_user_sees_the_own_figures_beside_those_of_people_alike_and_no_name(board):
    text = shown(board.live, Viewer("ada", is_admin=False))
    assert "4 of 10 jobs" in text and "at least 6 others" in text and "#SBATCH --mem=" in text
    assert [name for name in (f"bo{k}" for k in range(6)) if name in text] == []
    assert '"40 %"' in text and not re.search(r"\d\.\d %", text)


def test_a_user_cannot_open_the_page_of_another(board):
    text = shown(board.live, Viewer("bo1", is_admin=False), "?user=ada")
    assert "You may ask for your own jobs only." in text and "4 of 10" not in text


def test_an_administrator_opens_the_page_of_a_user_without_a_switch_for_mail(board):
    text = shown(board.live, Viewer("root", is_admin=True), "?user=ada")
    assert "4 of 10 jobs" in text and "me-digest-on" not in text


def test_without_a_login_the_page_says_whose_it_cannot_be(board):
    assert "Nobody is logged in" in shown(board.live, LOCAL)


@pytest.mark.browser
def test_the_page_is_shown_in_a_browser_for_whom_its_link_names(board, browser):
    visit = browser.open("/me?user=ada", wait_for="text=4 of 10 jobs")
    assert visit.page.locator("h1").inner_text() == "My jobs" and visit.page.locator(".stat").count() == 5
    assert visit.axe() == []
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == []
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    visit.clean()

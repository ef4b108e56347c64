"""One served site and one browser for all tests of the dashboard's pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.store.site import open_site
from tests.faces.dashboard.served import WAIT_MS, Board, OneAddress, Visitor, make_dashboard_site
from tests.jobs.logs import one_thread
from tests.parts.browser import PausedLoop, open_chromium
from tests.parts.made_once import made_once
from tests.parts.quick_sacct import answering
from tests.parts.watched_site import copy_site


@pytest.fixture(scope="package")
def dashboard_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A site with jobs, models and predictions: made once per run, 6 s."""

    def make(folder: Path) -> None:
        with one_thread():
            make_dashboard_site(folder)

    folder = tmp_path_factory.mktemp("dashboard") / "site"
    with answering() as sacct:
        copy_site(made_once(tmp_path_factory, "dashboard-site", make), folder, sacct=sacct).close()
        yield folder


@pytest.fixture(scope="package")
def address() -> Iterator[OneAddress]:
    """Where every board is served, one at a time."""
    with OneAddress.opened() as address:
        yield address


@pytest.fixture(scope="package")
def board(dashboard_folder: Path, address: OneAddress) -> Iterator[Board]:
    """The site, served on a free port; a file that serves a site of its own has a `board` of its own."""
    site = open_site(dashboard_folder)
    live = LiveSite(site)
    live.refresh()
    with address.showing(live) as url:
        yield Board(url, site, live)
    site.close()


@pytest.fixture(scope="package")
def tabs() -> Iterator[tuple[Visitor, PausedLoop]]:
    """A browser; its loop is paused while no test asks for it, since it would be in the way of tests with one of their own."""
    with open_chromium(wait_ms=WAIT_MS) as browser:
        visitor, loop = Visitor(browser), PausedLoop()
        yield visitor, loop
        loop.resume()
        visitor.close()


@pytest.fixture
def browser(tabs: tuple[Visitor, PausedLoop], board: Board) -> Iterator[Visitor]:
    """Opens pages of the board: `browser.open("/jobs")`; collects console errors and requests that leave this machine."""
    visitor, loop = tabs
    loop.resume()
    visitor.url = board.url
    yield visitor
    visitor.leave()
    loop.pause()

"""One served site and one browser for all tests of the dashboard's pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.faces.web.app import create_app
from stormpetrel.store.site import open_site
from tests.faces.dashboard.served import WAIT_MS, Board, Visitor, make_dashboard_site
from tests.faces.web.made import running
from tests.jobs.logs import one_thread
from tests.parts.browser import open_chromium
from tests.parts.made_once import made_once
from tests.parts.quick_sacct import answering
from tests.parts.watched_site import copy_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
def board(dashboard_folder: Path) -> Iterator[Board]:
    """The site, served on a free port."""
    site = open_site(dashboard_folder)
    live = LiveSite(site)
    live.refresh()
    with running(create_app(live)) as url:
        yield Board(url, site, live)
    site.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser; it is closed with the module, since its event loop would be in the way of tests with one of their own."""
    with open_chromium(wait_ms=WAIT_MS) as browser:
        yield browser


@pytest.fixture(scope="module")
def visitor(chromium: Browser, board: Board) -> Iterator[Visitor]:
    """The tabs of the module; a file that serves a site of its own has a `board` of its own."""
    visitor = Visitor(chromium, board)
    yield visitor
    visitor.close()


@pytest.fixture
def browser(visitor: Visitor) -> Iterator[Visitor]:
    """Opens pages of the board: `browser.open("/jobs")`; collects console errors and requests that leave this machine."""
    yield visitor
    visitor.leave()

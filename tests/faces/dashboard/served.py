"""A site that is served and looked at with a real browser: jobs, models, predictions of two days, and hostile names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl
from fastapi import FastAPI
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.faces.web.app import create_app
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.records.jobs import VALUES, field_mask
from stormpetrel.simulate.feed import write_fake_sacct
from stormpetrel.store.site import Site
from stormpetrel.watch.loop import Watch
from tests.faces.web.sample_site import running
from tests.faces.web.sample_site import wait_until as until
from tests.parts.quick_sacct import answering, write_quick_sacct
from tests.parts.watched_site import TRAINED, make_watched_site, move_clock

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

HOSTILE_NAME = "<img src=x onerror=\"window.hacked='name'\">"
HOSTILE_USER = "</td><script>window.hacked='user'</script>"
HOSTILE_ID = 990_001
LAPTOP = (1366, 850)
PHONE = (390, 844)
WAIT_MS = 60_000
# No selector of each element, and no more than is told sent over: two thirds of the processor time.
_FIND_FAULTS = """async () => {
  const {violations} = await axe.run(document, {resultTypes: ["violations"], selectors: false});
  const shown = nodes => nodes.slice(0, 3).map(node => node.html.slice(0, 200));
  return violations.map(({id, help, impact, nodes}) => ({id, help, impact, nodes: shown(nodes)}));
}"""


def wait_until(holds: Callable[[], bool], limit_s: float = WAIT_MS / 1000) -> None:
    """Wait for what a page shows: it is asked ten times a second, since each time costs the browser more than a hundred waits."""
    until(holds, limit_s, every_s=0.1)


def make_dashboard_site(folder: Path) -> None:
    """A site with jobs up to `TRAINED`, models of what came before its last two days, and what they said about these."""
    with make_watched_site(folder, serve={"requests_per_minute": 1_000_000}, watch={"replay_days": 2.0}) as site:
        _add_hostile(site)
        site.predictions.begin(TRAINED - timedelta(days=2))
        with answering() as sacct:
            write_quick_sacct(folder / "feed", sacct)
            Watch(site).step()
        write_fake_sacct(folder / "feed")


def _add_hostile(site: Site) -> None:
    """A job that runs, whose name and user are markup."""
    running = site.jobs.read_jobs().filter(pl.col("state") == "RUNNING").head(1).collect()
    rows = running.with_columns(
        job_id=pl.lit(HOSTILE_ID, dtype=pl.Int64),
        job_id_raw=pl.lit(HOSTILE_ID, dtype=pl.Int64),
        job_name=pl.lit(HOSTILE_NAME),
        user=pl.lit(HOSTILE_USER),
        submit_line=pl.lit(f"sbatch {HOSTILE_NAME}"),
        fingerprint=pl.lit(HOSTILE_ID, dtype=pl.Int64),
        line=pl.lit(0, dtype=pl.Int64),
    )
    commit_jobs(site.jobs, rows, fields=field_mask(frozenset(VALUES)), as_of=TRAINED)


class OneAddress:
    """A web server that shows one site after the other: what a browser has read and compiled of an address, it reads once.

    A site that is shown while another one is hides it, until it is over.
    """

    def __init__(self) -> None:
        self._url = ""
        self._apps: list[FastAPI] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """What uvicorn asks, the newest app answers."""
        await self._apps[-1](scope, receive, send)

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """The server, which has nothing to show yet."""
        address = cls()
        address._apps.append(FastAPI())  # is told that the server starts and ends
        with running(address) as address._url:
            yield address

    @contextmanager
    def showing(self, live: LiveSite) -> Iterator[str]:
        """Show a site's pages; their address."""
        self._apps.append(create_app(live))
        yield self._url
        self._apps.pop()


@dataclass
class Board:
    """A served dashboard."""

    url: str
    site: Site
    live: LiveSite

    def watch(self, until: datetime) -> None:
        """Let the site's clock go on, and the watch see what happened."""
        move_clock(self.site, until)
        Watch(self.site).step()
        self.live.refresh()

    def rows(self) -> pl.DataFrame:
        """Every job, as the overview has it."""
        return self.live.overview.frame


@dataclass
class Visit:
    """An open page, and what went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def clean(self) -> None:
        """Nothing was complained about, and no request left this machine."""
        assert not self.errors, self.errors
        assert not self.outside, self.outside

    def show(self, size: tuple[int, int], theme: Literal["light", "dark"]) -> None:
        """Give the window another size, and prefer another theme."""
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    def axe(self) -> list[str]:
        """The serious and critical faults that axe-core finds."""
        from axe_playwright_python.base import AXE_SCRIPT

        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        return [
            f"{fault['id']}: {fault['help']} {fault['nodes']}"
            for fault in self.page.evaluate(_FIND_FAULTS)
            if fault["impact"] in ("serious", "critical")
        ]

    def click_in(self, plot: str, target: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click on a place of a plot as a person does: when nothing moves any more and its label shows under the mouse."""
        shape = self.page.locator(f"{plot} {target}").first
        deadline = time.monotonic() + WAIT_MS / 1000
        while time.monotonic() < deadline:
            shape.scroll_into_view_if_needed()
            box = shape.bounding_box()
            assert box is not None, f"{target} is not in {plot}"
            at = box["x"] + box["width"] * across, box["y"] + box["height"] * down
            self.page.mouse.move(0, 0)
            self.page.mouse.move(*at)
            with suppress(PlaywrightTimeout):
                self.page.wait_for_selector(f"{plot} .hoverlayer .hovertext", timeout=2_000)
                if shape.bounding_box() == box:
                    self.page.mouse.click(*at)
                    return
        raise AssertionError(f"No label showed over {target} of {plot}.")

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window, once its plots have followed the window."""
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        for _ in range(100):  # not by wait_for_function: the pages allow no eval
            if not self.page.evaluate(wider):
                return 0
            self.page.wait_for_timeout(100)
        return int(self.page.evaluate(wider))


class Visitor:
    """Opens pages of a board in tabs that it takes again for the next test, which saves reading and compiling the scripts anew.

    A test that ends leaves nothing in its tab: no page, no cookie, nothing in the browser's storage.
    """

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self.url = ""  # of the board that is looked at
        self._context: BrowserContext | None = None
        self._free: list[Page] = []
        self._visits: list[tuple[Visit, dict[str, Callable[[Any], None]]]] = []

    def open(
        self,
        path: str,
        *,
        size: tuple[int, int] = LAPTOP,
        theme: Literal["light", "dark"] = "light",
        wait_for: str = "#shell-page h1",
    ) -> Visit:
        """Visit a path, and wait until something is there."""
        visit = Visit(self._free.pop() if self._free else self._new_page())
        self._visits.append((visit, self._listen(visit)))
        visit.show(size, theme)
        visit.page.goto(self.url + path)
        visit.page.wait_for_selector(wait_for)
        return visit

    def _new_page(self) -> Page:
        if self._context is None:
            self._context = self._chromium.new_context(reduced_motion="reduce")
            self._context.set_default_timeout(WAIT_MS)
        return self._context.new_page()

    def _listen(self, visit: Visit) -> dict[str, Callable[[Any], None]]:
        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                visit.errors.append(message.text)

        def see(request: Request) -> None:
            if not request.url.startswith((self.url, "data:", "blob:")):
                visit.outside.append(request.url)

        listeners = {"console": hear, "pageerror": lambda error: visit.errors.append(str(error)), "request": see}
        for event, listener in listeners.items():
            visit.page.on(event, listener)  # type: ignore[call-overload]
        return listeners

    def leave(self) -> None:
        """Leave every page, and clear what they have put into the browser."""
        for visit, listeners in self._visits:
            for event, listener in listeners.items():
                visit.page.remove_listener(event, listener)
            visit.page.goto(f"{self.url}/healthz")  # of the same origin: its storage can be cleared, and nothing asks again
            visit.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            visit.page.context.clear_cookies()
            self._free.append(visit.page)
        self._visits.clear()

    def close(self) -> None:
        """Close every tab."""
        if self._context is not None:
            self._context.close()

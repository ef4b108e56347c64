"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.parts import find_program, require

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WAIT_MS = 30_000
# One process draws all tabs of a context: another one would read and compile every script anew (2 s of the processor).
_ONE_RENDERER = ("--renderer-process-limit=1", "--disable-site-isolation-trials")
# A page lives for seconds: what the optimising compilers cost is not earned back (an eighth of the processor time).
_NO_COMPILERS = ("--js-flags=--no-opt --no-maglev",)


@contextmanager
def open_chromium(*arguments: str, wait_ms: int = WAIT_MS) -> Iterator[Browser]:
    """Start Chromium, and close it at the end of the block; the test is skipped where there is none."""
    require("chromium", install="chromium fonts-liberation")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=wait_ms)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=[*_ONE_RENDERER, *_NO_COMPILERS, *arguments]
        )
        yield browser
        browser.close()


class PausedLoop:
    """The event loop of a browser that is kept open between tests: while it is paused, a test may run a loop of its own.

    From its first call on, Playwright's loop is marked as the one that runs in this thread, and `asyncio.run` refuses to start.
    """

    def __init__(self) -> None:
        self._loop = asyncio._get_running_loop()
        self.pause()

    def pause(self) -> None:
        """Nothing runs, as far as asyncio can see; the browser must not be asked."""
        asyncio._set_running_loop(None)

    def resume(self) -> None:
        """The browser may be asked again."""
        asyncio._set_running_loop(self._loop)

"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.parts import find_program, require

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WAIT_MS = 30_000
# One process draws all tabs of a context: another one would read and compile every script anew (2 s of the processor).
_ONE_RENDERER = ("--renderer-process-limit=1", "--disable-site-isolation-trials")


@contextmanager
def open_chromium(*arguments: str, wait_ms: int = WAIT_MS) -> Iterator[Browser]:
    """Start Chromium, and close it at the end of the block; the test is skipped where there is none."""
    require("chromium", install="chromium fonts-liberation")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=wait_ms)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_program("chromium"), args=[*_ONE_RENDERER, *arguments])
        yield browser
        browser.close()

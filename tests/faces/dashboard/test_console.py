"""No page writes an error or a warning to the browser's console, whatever it shows."""

import polars as pl
import pytest
from playwright.sync_api import expect

from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.records.jobs import ref_text

pytestmark = pytest.mark.browser
JUDGED = pl.col("risk").is_not_null()


def ref_of(board, condition):
    """The reference of the newest job of that kind."""
    return board.rows().filter(condition).sort("submit_time", descending=True).select(ref_text())["ref"][0]


def test_a_walk_through_every_page_writes_nothing_to_the_console(browser):
    visit = browser.open("/")
    for page in PAGES:
        link = visit.page.locator(f".nav-link:text-is('{page.title}')")
        if not link.is_visible():
            visit.page.locator(f"summary:text-is('{page.heading}')").click()
        link.click()
        expect(visit.page.locator("#shell-page h1")).to_contain_text(page.title)
    visit.page.wait_for_load_state("networkidle")
    visit.clean()


def test_a_job_without_predictions_writes_nothing_to_the_console(browser, board):
    visit = browser.open(f"/jobs?view=all&job={ref_of(board, ~JUDGED)}", wait_for="#panel-why")
    expect(visit.page.locator("#panel-why")).to_contain_text("Nothing was predicted")
    visit.page.wait_for_load_state("networkidle")
    visit.clean()


def test_going_from_a_judged_job_to_one_that_was_not_writes_nothing_to_the_console(browser, board):
    visit = browser.open(f"/jobs?view=all&job={ref_of(board, JUDGED)}", wait_for="#panel-waterfall")
    link = f"/jobs?view=all&job={ref_of(board, ~JUDGED)}"
    visit.page.evaluate("link => { history.pushState({}, '', link); window.dispatchEvent(new PopStateEvent('popstate')); }", link)
    expect(visit.page.locator("#panel-why")).to_contain_text("Nothing was predicted")
    visit.page.wait_for_load_state("networkidle")
    visit.clean()

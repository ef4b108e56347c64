"""The page of jobs in a real browser."""

import contextlib
import re
from datetime import timedelta
from urllib.parse import quote

import polars as pl
import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect

from stormpetrel.records.jobs import ref_text
from tests.faces.dashboard.served import HOSTILE_ID, HOSTILE_NAME, HOSTILE_USER, LAPTOP, PHONE, wait_until
from tests.parts.watched_site import TRAINED

pytestmark = pytest.mark.browser
LOADED = "#jobs-grid .ag-cell[col-id=prediction] :is(.chip, .soft)"  # empty until rows have come
CELLS = """name => [...document.querySelectorAll("#jobs-grid .ag-center-cols-container .ag-row")]
  .sort((one, other) => one.getAttribute("row-index") - other.getAttribute("row-index"))
  .map(row => row.querySelector(`[col-id="${name}"]`)?.innerText ?? "")"""
UNFINISHED = ["RUNNING", "PENDING", "SUSPENDED", "RESIZING", "HELD", "UNKNOWN"]


def column(visit, name):
    """What the table shows in a column, from the top."""
    return visit.page.evaluate(CELLS, name)


def jobs_in(visit, *, at_least=1):
    wait_until(lambda: len([text for text in column(visit, "job") if text]) >= at_least)
    return column(visit, "job")


def said(visit, words):
    expect(visit.page.locator("#jobs-count")).to_have_text(re.compile(words))


def a_job(board, *conditions):
    """The reference of a job that was judged."""
    rows = board.rows().filter(pl.col("risk").is_not_null(), *conditions).select("job", "user", ref_text())
    return rows.row(0, named=True)


def test_the_page_opens_without_complaint_and_asks_nobody_else(browser):
    visit = browser.open("/jobs", wait_for=LOADED)
    expect(visit.page).to_have_title("Jobs · Stormpetrel")
    expect(visit.page.locator(".nav-link[aria-current]")).to_have_text("Jobs")
    visit.clean()


def test_the_first_view_has_the_jobs_that_wait_or_run_riskiest_first(browser, board):
    visit = browser.open("/jobs", wait_for=LOADED)
    now = board.rows().filter(pl.col("state").is_in(UNFINISHED)).sort("risk", descending=True, nulls_last=True)
    said(visit, f"^{now.height:,} jobs?, what cannot run first, then riskiest first")
    assert jobs_in(visit)[0] == now["job"].item(0)


def test_the_server_sorts_filters_and_pages(browser, board):
    visit = browser.open("/jobs?view=all", wait_for=LOADED)
    said(visit, f"^{board.rows().height:,} jobs, newest first")
    visit.page.locator("#jobs-grid .ag-header-cell[col-id=user]").click()
    expect(visit.page).to_have_url(re.compile("sort=-user"))
    last_user = board.rows()["user"].max()
    wait_until(lambda: column(visit, "user")[0] == last_user)
    visit.page.goto(visit.page.url + f"&user=equals:{quote(a_job(board)['user'])}")
    count = board.rows().filter(pl.col("user") == a_job(board)["user"]).height
    said(visit, f"^{count:,} jobs?")
    visit.page.get_by_role("button", name="Clear filters").click()
    said(visit, f"^{board.rows().height:,} jobs")
    visit.page.evaluate("window.dash_ag_grid.getApi('jobs-grid').ensureIndexVisible(700)")
    wait_until(lambda: any(text for text in column(visit, "job")))
    visit.clean()


def test_a_filter_set_in_the_table_is_in_the_link(browser, board):
    visit = browser.open("/jobs?view=all", wait_for=LOADED)
    user, in_link = a_job(board)["user"], re.compile("user=contains:")
    for _ in range(3):  # on a busy machine the grid may still be settling, and drop what was typed
        visit.page.locator("#jobs-grid .ag-header-cell[col-id=user] .ag-header-cell-filter-button").click()
        visit.page.locator(".ag-filter input:visible").first.fill(user)
        with contextlib.suppress(PlaywrightTimeout):
            visit.page.wait_for_url(in_link, timeout=10_000)
            break
        visit.page.keyboard.press("Escape")
    expect(visit.page).to_have_url(re.compile(f"user=contains:{user}"))
    said(visit, f"^{board.rows().filter(pl.col('user').str.contains(user, literal=True)).height:,} jobs?")


def test_the_views_are_links(browser, board):
    visit = browser.open("/jobs", wait_for=LOADED)
    visit.page.get_by_role("link", name="Running").click()
    expect(visit.page).to_have_url(re.compile("view=running"))
    said(visit, f"^{board.rows().filter(pl.col('state') == 'RUNNING').height:,} jobs?")
    visit.page.go_back()
    expect(visit.page.locator("[data-view=now]")).to_have_attribute("aria-current", "true")


def test_an_id_in_the_search_opens_the_job(browser, board):
    job = a_job(board, pl.col("failed"))
    visit = browser.open("/jobs", wait_for=LOADED)
    field = visit.page.get_by_label("Search by job id")
    field.fill(job["job"])
    field.press("Enter")
    expect(visit.page.locator(".job-title")).to_have_text(f"Job {job['job']}")
    expect(visit.page).to_have_url(re.compile(f"job={job['ref']}"))


def test_a_search_that_finds_nothing_says_what_to_do(browser):
    visit = browser.open("/jobs?view=all&search=no-such-thing", wait_for="#jobs-grid")
    said(visit, "No job fits")
    visit.clean()


def test_a_row_that_is_clicked_shows_everything_about_its_job(browser, board):
    visit = browser.open("/jobs?view=all&state=equals:COMPLETED&prediction=notBlank", wait_for=LOADED)
    first = jobs_in(visit)[0]
    visit.page.locator("#jobs-grid .ag-row[row-index='0'] .ag-cell[col-id=job]").click()
    panel = visit.page.locator("#job-panel")
    expect(panel.locator(".job-title")).to_have_text(f"Job {first}")
    for title in ("Advice", "Why", "Profile", "History", "Record"):
        expect(panel.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(panel.locator(".step")).to_have_count(3)
    expect(panel.locator("#panel-waterfall .js-plotly-plot")).to_be_visible()
    expect(visit.page.locator(".ag-row-selected")).to_have_count(1)
    panel.get_by_text("What moves forecasts in general").click()
    expect(panel.locator("#panel-importance-plot .js-plotly-plot")).to_be_visible()
    panel.get_by_role("button", name="Close the job").click()
    expect(panel).to_be_hidden()
    visit.page.go_back()
    expect(panel.locator(".job-title")).to_be_visible()
    visit.clean()


def test_a_figure_can_be_taken_along(browser, board):
    visit = browser.open(f"/jobs?job={a_job(board)['ref']}", wait_for="#panel-waterfall .js-plotly-plot")
    for kind, begins in {"CSV": b"series,x,y", "SVG": b"<svg", "PNG": b"\x89PNG"}.items():
        with visit.page.expect_download() as taken:
            visit.page.get_by_role("button", name=f"Download as {kind}").first.click()
        assert taken.value.suggested_filename.endswith(f"-reasons.{kind.lower()}"), kind
        assert taken.value.path().read_bytes().startswith(begins), kind
    visit.clean()


def test_a_row_is_opened_by_the_keyboard(browser):
    visit = browser.open("/jobs?view=all", wait_for=LOADED)
    visit.page.evaluate("window.dash_ag_grid.getApi('jobs-grid').setFocusedCell(1, 'job')")
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator(".job-title")).to_be_visible()
    expect(visit.page.locator(".ag-row-selected")).to_have_attribute("row-index", "1")


def test_a_link_restores_view_sort_filter_and_job(browser, board):
    job = a_job(board, pl.col("failed"))
    visit = browser.open(f"/jobs?view=all&sort=submit_time&user=contains:{job['user']}&job={job['ref']}", wait_for=".job-title")
    mine = board.rows().filter(pl.col("user").str.contains(job["user"], literal=True)).sort("submit_time", "job_id")
    said(visit, f"^{mine.height:,} jobs?$")
    assert jobs_in(visit)[0] == mine["job"].item(0)
    expect(visit.page.locator(".job-title")).to_have_text(f"Job {job['job']}")
    expect(visit.page.locator(".verdict-words")).to_have_text(re.compile("^This job (failed|ran out)"))


def test_a_job_that_is_not_there_says_so(browser):
    visit = browser.open("/jobs?job=1-1718000000000000-0-nowhere", wait_for="#job-panel .notice-error")
    expect(visit.page.locator("#job-panel")).to_contain_text("There is no job 1")
    visit.clean()


def test_hostile_names_are_shown_as_text(browser, board):
    job = a_job(board, pl.col("job_id") == HOSTILE_ID)
    visit = browser.open(f"/jobs?view=all&search={HOSTILE_ID}&job={quote(job['ref'])}", wait_for=".job-title")
    assert column(visit, "user")[0] == HOSTILE_USER
    expect(visit.page.locator(".job-name")).to_have_text(HOSTILE_NAME)
    visit.page.locator("#panel-record summary").click()
    expect(visit.page.locator("#record-fields")).to_contain_text(f"sbatch {HOSTILE_NAME}")
    assert visit.page.evaluate("window.hacked") is None
    visit.clean()


def test_the_record_is_narrowed_by_what_is_typed(browser, board):
    visit = browser.open(f"/jobs?job={a_job(board)['ref']}", wait_for=".job-title")
    visit.page.locator("#panel-record summary").click()
    visit.page.get_by_label("Show fields with").fill("submit_time")
    expect(visit.page.locator("#record-fields tr:visible")).to_have_count(1)


def test_an_opinion_on_advice_is_kept(browser, board):
    ran_out = a_job(board, pl.col("state").is_in(["TIMEOUT", "OUT_OF_MEMORY"]))
    visit = browser.open(f"/jobs?job={ran_out['ref']}", wait_for=".advice")
    visit.page.locator(".advice").first.get_by_role("button", name="Yes").click()
    expect(visit.page.locator(".opinion").first).to_contain_text("Thank you")
    assert list(board.site.opinions.of("", ran_out["ref"]).values()) == [True]


def test_a_view_is_saved_under_a_name_and_found_again(browser, board):
    visit = browser.open("/jobs?view=failed", wait_for="#jobs-grid")
    visit.page.locator("#views-menu summary").click()
    visit.page.get_by_label("Save what you see now as").fill("Morning <b>round</b>")
    visit.page.get_by_role("button", name="Save", exact=True).click()
    expect(visit.page.locator("#views-message")).to_contain_text("Saved")
    assert [view.link for view in board.site.views.list("")] == ["/jobs?view=failed"]
    visit.page.goto(visit.page.url.partition("?")[0])
    visit.page.locator("#views-menu summary").click()
    visit.page.get_by_role("link", name="Morning <b>round</b>").click()
    expect(visit.page).to_have_url(re.compile("view=failed"))
    expect(visit.page.locator("[data-view=failed]")).to_have_attribute("aria-current", "true")
    visit.page.locator("#views-menu summary").click()
    visit.page.get_by_role("button", name="Delete the view").click()
    expect(visit.page.locator("#views-message")).to_contain_text("Deleted")
    assert not board.site.views.list("")


def test_the_theme_is_switched_and_remembered(browser):
    visit = browser.open("/jobs", wait_for=LOADED)
    root = visit.page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    light = visit.page.evaluate("getComputedStyle(document.querySelector('.ag-row')).backgroundColor")
    visit.page.get_by_role("button", name="Theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    assert visit.page.evaluate("getComputedStyle(document.querySelector('.ag-row')).backgroundColor") != light
    visit.page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    visit.clean()


@pytest.mark.parametrize(
    "themes",
    [
        {"laptop": "light", "phone": "dark"},
        pytest.param({"laptop": "dark", "phone": "light"}, marks=pytest.mark.slow),
    ],
    ids=["laptop-light and phone-dark", "laptop-dark and phone-light"],
)
def test_no_serious_fault_of_accessibility_and_nothing_wider_than_the_window(browser, board, themes):
    job = a_job(board, pl.col("state").is_in(["TIMEOUT", "OUT_OF_MEMORY"]))
    waterfall = "#panel-waterfall .js-plotly-plot"
    visit = browser.open(f"/jobs?view=all&job={job['ref']}", theme=themes["laptop"], wait_for=waterfall)
    for name, size in {"laptop": LAPTOP, "phone": PHONE}.items():
        visit.show(size, themes[name])
        visit.page.wait_for_selector(f"html[data-theme={themes[name]}]")
        visit.page.wait_for_selector(LOADED)
        assert visit.axe() == [], name
        assert visit.overflow() <= 0, name
    visit.clean()


def test_on_a_phone_the_pages_are_behind_a_button(browser):
    visit = browser.open("/jobs", size=PHONE, wait_for=LOADED)
    pages = visit.page.get_by_role("navigation", name="Pages")
    expect(pages).to_be_hidden()
    visit.page.get_by_role("button", name="Pages").click()
    expect(pages).to_be_visible()


def test_the_page_updates_by_itself(browser, board):
    visit = browser.open("/jobs?view=all", wait_for=LOADED)
    before = board.rows().height
    board.watch(TRAINED + timedelta(hours=8))
    assert board.rows().height > before
    said(visit, f"^{board.rows().height:,} jobs")
    newest = board.rows().sort("submit_time", "job_id", descending=True)["job"].item(0)
    wait_until(lambda: column(visit, "job")[0] == newest)
    visit.clean()

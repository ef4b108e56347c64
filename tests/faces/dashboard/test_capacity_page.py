"""Capacity: what the page shows to whom, and in a real browser."""

import json

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.faces.dashboard.pages import capacity as capacity_page
from stormpetrel.faces.dashboard.pages.capacity import cores_of
from stormpetrel.faces.dashboard.shell import page_of
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.events.loads import end_of, steady_jobs
from tests.faces.dashboard.served import PHONE, Board, wait_until

browser_test = pytest.mark.browser
DRAWN = "#capacity-load .main-svg"
MARKUP = "<img src=x onerror=\"window.hacked='group'\">"
ADA = Viewer("ada", is_admin=False)


@pytest.fixture(scope="module")
def board(tmp_path_factory, address):
    """A site with twelve weeks of jobs, one account of which is markup, served."""
    jobs = steady_jobs(12, growth=0.05, load=0.62, cores=200)
    named = pl.when(pl.col("account") == "chemistry").then(pl.lit(MARKUP)).otherwise("account").alias("account")
    with make_site(tmp_path_factory.mktemp("capacity") / "site", serve={"requests_per_minute": 1_000_000}) as site:
        site.now = lambda: end_of(12)
        put_jobs(site, jobs.with_columns(named))
        live = LiveSite(site)
        live.refresh()
        live.boards.capacity.wait(live)
        with address.showing(live) as url:
            yield Board(url, site, live)


def sent(live, viewer, query=""):
    with seen_by(viewer):
        return json.dumps(page_of("/capacity", query, live), cls=PlotlyJSONEncoder)


def test_a_user_is_sent_the_load_of_all_but_no_group(board):
    own, full = sent(board.live, ADA), sent(board.live, LOCAL)
    assert "physics" in full and "physics" not in own and "Load grows" in own and "capacity-load" in own


@pytest.mark.parametrize(
    ("query", "problem"), [("cores=many", True), ("cores=-3", True), ("cores=1e99", True), ("cores=200", False)]
)
def test_a_number_of_cores_that_is_none_is_told_and_left_out(board, query, problem):
    told = sent(board.live, LOCAL, query)
    assert ("is not a number of cores" in told) is problem and ("as given" in told) is not problem


def test_a_number_of_cores_may_be_written_with_commas():
    assert cores_of("4,096") == (4096.0, "") and cores_of("") == (None, "") and cores_of("nan")[0] is None


def test_an_empty_site_names_the_next_command_to_administrators(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)

        def laid_out(viewer):
            return json.dumps(capacity_page.layout(live, viewer, {}), cls=PlotlyJSONEncoder)

        wait_until(lambda: "stormpetrel ingest jobs" in laid_out(LOCAL))
        assert "stormpetrel" not in laid_out(ADA) and "no whole week" in laid_out(ADA)


@browser_test
def test_the_page_opens_without_complaint_and_follows_the_number_of_cores(browser):
    visit = browser.open("/capacity", wait_for=DRAWN)
    visit.page.locator("#capacity-groups").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#capacity-groups .ag-row .ag-cell")
    assert MARKUP in visit.page.inner_text("#capacity-groups")
    assert visit.axe() == [] and visit.overflow() == 0
    visit.page.fill("#capacity-cores", "1000")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#capacity-body:has-text('Capacity: 1,000 cores, as given.')")
    assert "cores=1000" in visit.page.evaluate("window.location.search")
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == [] and visit.overflow() == 0
    assert visit.page.locator("#main img").count() == 0 and visit.page.evaluate("window.hacked") is None
    visit.clean()

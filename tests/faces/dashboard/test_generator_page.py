"""Generator: what the page shows to whom, and in a real browser: fit, show, make jobs, download."""

import json

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.workload import WorkloadFitting
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.answers.workload.workload import workload_answer
from stormpetrel.faces.dashboard.pages import generator
from stormpetrel.faces.dashboard.pages import generator as generator_page
from stormpetrel.faces.dashboard.shell import page_of
from tests.answers.workload_sites import GENERATOR, GROUP, put_generator, put_workload
from tests.builders import make_site
from tests.faces.dashboard.served import PHONE, Board, wait_until

browser_test = pytest.mark.browser
DRAWN = "#generator-cdf .main-svg"
ADA = Viewer("ada", is_admin=False)
BAR = """() => {
  const bar = document.querySelectorAll(".navigation > *");
  const place = link => ({...link.getBoundingClientRect().toJSON(), visible: link.checkVisibility({visibilityProperty: true})});
  return [[...bar].map(place), document.querySelector(".tools").getBoundingClientRect().x];
}"""


@pytest.fixture(scope="module")
def board(tmp_path_factory, address):
    """A site with a long name, two weeks of jobs and a generator with a group whose name is markup, served."""
    serve = {"requests_per_minute": 1_000_000}
    site_named = {"name": "the cluster of the institute of everything"}
    with make_site(tmp_path_factory.mktemp("generator") / "site", serve=serve, site=site_named) as site:
        put_workload(site)
        put_generator(site)
        live = LiveSite(site)
        live.refresh()
        live.workload.board.wait(live)
        with address.showing(live) as url:
            yield Board(url, site, live)


def sent(live, viewer, query=""):
    with seen_by(viewer):
        return json.dumps(page_of("/generator", query, live), cls=PlotlyJSONEncoder)


def test_users_are_shown_that_the_page_is_not_theirs(board):
    told = sent(board.live, ADA)
    assert "for administrators" in told and GENERATOR not in told and "generator-make" not in told


def test_an_administrator_without_the_scope_can_look_but_neither_fit_nor_make(board):
    told = sent(board.live, Viewer("root", is_admin=True, scopes=frozenset({"read"})))
    assert (
        "generator-scores" in told
        and "generator-fit" not in told.replace("generator-fitting", "")
        and "generator-make" not in told
    )


def test_a_column_that_does_not_exist_shows_the_first_one(board):
    assert "How interval is distributed" in sent(board.live, LOCAL, "column=nonsense")
    assert "How run time is distributed" in sent(board.live, LOCAL, "column=runtime_s")


def test_a_site_without_a_generator_offers_to_fit_one(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        wait_until(lambda: "being worked out" not in sent(live, LOCAL))
        told = sent(live, LOCAL)
        assert "Fit a generator" in told and "generator-make" not in told


@pytest.mark.parametrize(
    ("fitting", "words"),
    [
        (WorkloadFitting(running=True, share=0.4, words="reading jobs"), "reading jobs (40 %)"),
        (WorkloadFitting(problem="There are too few jobs."), "There are too few jobs."),
        (WorkloadFitting(done="synth-4"), "synth-4 is fitted and in use."),
    ],
)
def test_how_far_a_fitting_is_stands_on_the_page(board, monkeypatch, fitting, words):
    monkeypatch.setattr(board.live.workload.fitting, "state", fitting)
    card = generator.state_card(board.live, LOCAL, workload_answer(board.live, LOCAL))
    assert words in json.dumps(card, cls=PlotlyJSONEncoder)
    assert generator_page.layout(board.live, LOCAL, {}).children[2].disabled is not fitting.running


@browser_test
def test_the_page_opens_without_complaint_and_draws_any_column(browser):
    visit = browser.open("/generator", wait_for=DRAWN)
    visit.page.locator("#generator-scores").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#generator-scores .ag-row .ag-cell")
    assert "Lag-1 autocorrelation" in visit.page.inner_text("#generator-scores")
    assert visit.axe() == [] and visit.overflow() == 0
    visit.page.click("#choose-column-runtime_s")
    visit.page.wait_for_selector("#choose-column-runtime_s[aria-current]")
    visit.page.wait_for_selector(DRAWN)
    assert "column=runtime_s" in visit.page.url
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == [] and visit.overflow() == 0
    assert visit.page.locator("#main img").count() == 0 and visit.page.evaluate("window.hacked") is None
    assert GROUP in visit.page.inner_text("#generator-group")
    visit.clean()


@browser_test
def test_the_headings_fit_into_the_bar_on_top_and_open_by_keyboard(browser):
    visit = browser.open("/health")  # nothing that draws itself anew at each width
    for width in (1920, 1440, 1366, 1280, 1120, 1000):
        visit.page.set_viewport_size({"width": width, "height": 700})
        wait_until(lambda: visit.overflow() == 0)
        links, tools = visit.page.evaluate(BAR)
        assert len(links) == 6 and all(link["visible"] for link in links)
        assert len({round(link["y"]) for link in links}) == 1
        assert links[-1]["right"] <= tools
    summary, link = (
        visit.page.locator(f".navigation {where}") for where in ("summary:text-is('Plan')", ".nav-link:text-is('Generator')")
    )
    summary.focus()
    visit.page.keyboard.press("Enter")
    wait_until(link.is_visible)
    assert visit.axe() == []
    visit.page.keyboard.press("Escape")
    wait_until(lambda: not link.is_visible())
    visit.page.set_viewport_size({"width": 960, "height": 700})
    assert not visit.page.locator(".nav-link >> nth=0").is_visible() and visit.page.locator(".menu-toggle").is_visible()
    visit.clean()


@browser_test
def test_jobs_are_made_as_asked_for_and_downloaded_or_refused_in_words(browser, tmp_path):
    visit = browser.open("/generator", wait_for="#generator-make")
    visit.page.fill("#generator-amount", "1,500")
    visit.page.fill("#generator-start", "2027-01-04")
    visit.page.fill("#generator-seed", "9")
    visit.page.select_option("#generator-waits", "yes")
    visit.page.select_option("#generator-format", "csv")
    with visit.page.expect_download() as download:
        visit.page.click("#generator-make")
    download.value.save_as(tmp_path / "jobs.csv")
    made = pl.read_csv(tmp_path / "jobs.csv")
    assert download.value.suggested_filename == "workload-9.csv" and made.height == 1500
    assert made["submit_time"][0].startswith("2027-01-0") and made["wait_s"].min() >= 0
    visit.page.wait_for_selector("#generator-message:has-text('1,500 jobs in workload-9.csv')")
    visit.clean()
    visit.page.fill("#generator-users", "2")
    visit.page.click("#generator-make")
    visit.page.wait_for_selector("#generator-message[data-kind=error]:has-text('cannot change the number of users')")
    visit.page.fill("#generator-amount", "many")
    visit.page.click("#generator-make")
    visit.page.wait_for_selector("#generator-message[data-kind=error]:has-text('body.jobs')")
    assert visit.page.locator("#generator-make").is_enabled()


@browser_test
def test_the_button_fits_a_generator_and_the_page_takes_it_up(browser, board, monkeypatch):
    def fit(live, viewer, name=None):
        viewer.require("manage")
        live.workload.fitting.state = WorkloadFitting(running=True, share=0.25, words="reading jobs")

    monkeypatch.setattr(generator_page, "start_fit", fit)
    before = board.site.models.current_training("synth").name
    visit = browser.open("/generator", wait_for=DRAWN)
    visit.page.click("#generator-fit")
    visit.page.wait_for_selector("#generator-state:has-text('reading jobs (25 %)')")
    assert visit.page.locator("#generator-fit").is_disabled()
    made = put_generator(board.site)
    board.live.workload.fitting.state = WorkloadFitting(done=made.name)
    visit.page.wait_for_selector(f"#generator-state:has-text('{made.name} in use')")
    visit.page.wait_for_selector(DRAWN)
    assert made.name != before and visit.page.locator("#generator-fit").is_enabled()
    visit.clean()

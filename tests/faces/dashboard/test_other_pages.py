"""Trends, waste, profiles, model and health: what they show to whom, and in a real browser."""

import json
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.history.energy import amount_text
from stormpetrel.answers.history.profiles import profiles
from stormpetrel.answers.history.waste import policy_point, policy_text, waste
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.history import WasteQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.faces.dashboard.shell import page_of
from tests.builders import make_site
from tests.faces.dashboard.served import PHONE, wait_until

browser_test = pytest.mark.browser
PATHS = ("/trends", "/waste", "/profiles", "/model", "/health")
GRIDS = {"/trends": "#trends-table", "/waste": "#waste-table", "/profiles": "#profiles-users"}
THERE = {path: f"{path.replace('/', '#')}-body .js-plotly-plot .main-svg" for path in PATHS} | {"/health": ".health-line"}
MARKUP = "<img src=x onerror=\"window.hacked='group'\">"


def shown(live, viewer, path, query=""):
    """A page as the server sends it to a viewer, once everything is worked out."""
    live.boards.books.wait(live)
    live.boards.settled.wait(live)
    live.boards.inspections.wait(live)
    profiles(live, viewer)
    with seen_by(viewer):
        return json.dumps(page_of(path, query, live), cls=PlotlyJSONEncoder)


def laid_out(path, live):
    """A page as it is at this moment, for an administrator."""
    page = next(page for page in PAGES if page.path == path)
    return json.dumps(page.layout(live, LOCAL, {}), cls=PlotlyJSONEncoder)


def users_of(board):
    ended = board.rows().filter(pl.col("failed").is_not_null())
    return ended.group_by("user").len().sort("len", descending=True)["user"].drop_nulls().to_list()


@pytest.mark.parametrize("path", PATHS)
def test_users_are_sent_no_other_users_name(board, path):
    user, *others = users_of(board)
    sent = shown(board.live, Viewer(user, is_admin=False), path)
    assert [name for name in others if name in sent] == []


def test_another_user_and_one_who_does_not_exist_look_the_same(board):
    user, other, *_ = users_of(board)
    viewer = Viewer(user, is_admin=False)
    sent = [shown(board.live, viewer, "/trends", f"by=user&group={name}").replace(name, "?") for name in (other, "nobody")]
    assert sent[0] == sent[1]
    assert "No job of user ?" in sent[0]


def test_who_may_not_change_the_model_is_shown_no_button(board):
    user = users_of(board)[0]
    assert "model-ask" in shown(board.live, LOCAL, "/model") or len(board.site.models.trainings("jobs")) == 1
    for viewer in (Viewer(user, is_admin=False), Viewer("root", is_admin=True, scopes=frozenset({"read"}))):
        assert '"model-ask"' not in shown(board.live, viewer, "/model")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["by=nonsense&every=1h&weeks=-3&tau=9&at=never&version=x&profile=99", f"group={'x' * 3000}"])
def test_a_link_that_makes_no_sense_shows_the_page_all_the_same(board, path, query):
    assert "went wrong" not in shown(board.live, LOCAL, path, query)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/trends", "stormpetrel watch"),
        ("/waste", "stormpetrel watch"),
        ("/profiles", "The site has no jobs yet"),
        ("/model", "No predictions have been settled yet"),
        ("/health", "Start it: stormpetrel watch"),
    ],
)
def test_an_empty_site_says_what_to_do_next(tmp_path, path, words):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        live.refresh()
        wait_until(lambda: words in laid_out(path, live))


def test_what_is_not_there_yet_is_being_worked_out(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert "being computed" in laid_out("/trends", LiveSite(site))


@browser_test
@pytest.mark.parametrize("path", PATHS)
def test_each_page_opens_without_complaint_and_is_usable_by_everybody(browser, path):
    visit = browser.open(path, wait_for=THERE[path])
    if path in GRIDS:
        visit.page.locator(GRIDS[path]).scroll_into_view_if_needed()
        visit.page.wait_for_selector(f"{GRIDS[path]} .ag-row .ag-cell")
    assert visit.axe() == []
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == []
    assert visit.overflow() == 0
    visit.clean()


@browser_test
def test_every_choice_is_in_the_link_and_a_link_restores_the_view(browser, board):
    visit = browser.open("/trends", wait_for=THERE["/trends"])
    visit.page.click("#choose-by-account")
    visit.page.wait_for_selector("#choose-by-account[aria-current]")
    visit.page.click("#choose-every-1d")
    visit.page.wait_for_selector("#choose-every-1d[aria-current]")
    assert parse_qs(urlsplit(visit.page.url).query) == {"by": ["account"], "every": ["1d"]}
    assert visit.page.evaluate("document.activeElement.id") == "choose-every-1d"  # the keyboard goes on from there
    again = browser.open(visit.page.url[len(board.url) :], wait_for=THERE["/trends"])
    assert again.page.inner_text("[aria-current=true] >> nth=0") == "Account"
    assert again.page.inner_text("#choose-every-1d[aria-current]") == "Day"
    visit.clean()


@browser_test
def test_one_group_is_chosen_by_its_name_and_back_takes_it_back(browser, board):
    user = users_of(board)[0]
    visit = browser.open("/trends", wait_for=THERE["/trends"])
    visit.page.fill("#trends-group", user)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector(f"h2:has-text('User {user}')")
    assert f"group={user}" in visit.page.url
    visit.page.go_back()
    visit.page.wait_for_selector("h2:has-text('The users with the most failures')")
    assert visit.page.input_value("#trends-group") == ""
    visit.clean()


@browser_test
def test_a_name_leads_to_its_jobs(browser):
    visit = browser.open("/trends", wait_for="#trends-table .cell-link")
    name = visit.page.inner_text("#trends-table .cell-link >> nth=0")
    visit.page.click("#trends-table .cell-link >> nth=0")
    wait_until(lambda: set(visit.page.locator("#jobs-grid .ag-row .ag-cell[col-id=user]").all_inner_texts()) == {name})
    assert parse_qs(urlsplit(visit.page.url).query) == {"view": ["all"], "user": [f"equals:{name}"]}
    visit.clean()


@browser_test
def test_a_hostile_name_is_shown_as_text(browser):
    visit = browser.open(f"/trends?group={MARKUP}", wait_for="#trends-body .notice")
    assert MARKUP in visit.page.inner_text("#trends-body")
    assert visit.page.evaluate("window.hacked") is None
    visit.clean()


@browser_test
def test_the_slider_says_what_the_policy_says_and_stays_in_the_link(browser, board):
    visit = browser.open("/waste?tau=30", wait_for="#waste-policy .main-svg")
    settled = board.live.boards.settled.wait(board.live)
    assert visit.page.inner_text("#waste-words") == policy_text(policy_point(settled, LOCAL, 0.3), 0.3)
    visit.page.focus("#waste-tau")
    for _ in range(4):
        visit.page.keyboard.press("ArrowRight")
    wait_until(lambda: visit.page.inner_text("#waste-words") == policy_text(policy_point(settled, LOCAL, 0.34), 0.34))
    wait_until(lambda: "tau=34" in visit.page.url)
    line = visit.page.evaluate("document.querySelector('#waste-policy .js-plotly-plot').layout.shapes[1].x0")
    assert line == pytest.approx(0.34)
    visit.clean()


@browser_test
def test_the_ledgers_last_row_is_the_sum_of_the_job_table(browser, board):
    visit = browser.open("/waste?by=account&weeks=all", wait_for="#waste-table .ag-row-pinned .ag-cell[col-id=jobs]")
    total = waste(board.live, LOCAL, WasteQuestion(by="account")).total
    assert visit.page.inner_text("#waste-table .ag-row-pinned .ag-cell[col-id=jobs]") == f"{total.jobs:,}"
    lost = visit.page.inner_text("#waste-table .ag-row-pinned .ag-cell[col-id=lost_hours]")
    assert lost == f"{total.lost_core_seconds / 3600:,.0f}"
    energy = visit.page.inner_text("#waste-table .ag-row-pinned .ag-cell[col-id=lost_kwh]")
    assert float(energy.replace(",", "")) == float(amount_text(total.lost_kwh).replace(",", ""))
    assert "of the energy was measured, by whole nodes; the rest is estimated" in visit.page.inner_text("#waste-body")
    visit.clean()


@browser_test
def test_newer_figures_do_not_disturb_who_is_reading(browser):
    visit = browser.open("/waste", wait_for="#waste-table .ag-row .ag-cell[col-id=user]:not(:empty)")
    visit.page.click("#waste-body details.numbers >> nth=0 >> summary")
    visit.page.evaluate("() => window.dash_clientside.set_props('waste-stamp', {data: 'older'})")
    visit.page.evaluate("() => window.dash_clientside.set_props('waste-tick', {n_intervals: 1})")
    visit.page.wait_for_selector("#waste-newer:not([hidden])")
    assert visit.page.evaluate("document.querySelector('#waste-body details.numbers').open")
    visit.page.click("#waste-newer")
    visit.page.wait_for_selector("#waste-newer", state="hidden")
    assert not visit.page.evaluate("document.querySelector('#waste-body details.numbers').open")
    visit.clean()


@browser_test
def test_a_change_of_the_model_is_asked_about_first(browser, board):
    before = board.site.models.current_training("jobs").name
    visit = browser.open("/model", wait_for="#model-trainings table")
    board.site.models.add_together(*_copied(board.site))
    visit.page.reload()
    visit.page.wait_for_selector("#model-trainings button")
    visit.page.click("#model-trainings button:has-text('Put in use')")
    visit.page.wait_for_selector("#model-dialog[open]")
    visit.page.keyboard.press("Escape")
    assert board.site.models.current_training("jobs").name == before
    visit.page.click("#model-trainings button:has-text('Put in use')")
    visit.page.wait_for_selector("#model-dialog[open]")
    visit.page.click("#model-confirm")
    visit.page.wait_for_selector("#model-message .notice")
    assert board.site.models.current_training("jobs").name != before
    visit.page.click("#model-trainings button:has-text('Go back')")
    visit.page.wait_for_selector("#model-dialog[open]")
    visit.page.click("#model-confirm")
    visit.page.wait_for_selector(f"#model-message :has-text('{before} is in use now')")
    assert board.site.models.current_training("jobs").name == before
    visit.clean()


def _copied(site):
    """The models in use, once more."""
    import shutil

    from stormpetrel.store.registry.models import NewModel

    def save(source):
        return lambda folder: shutil.copytree(source, folder)

    models = site.models.current_training("jobs").models
    about = {"trained_until": models[0].about["trained_until"], "why": "a copy"}
    return ({model.name: NewModel(save(site.models.folder_of(model.name, model.version)), about) for model in models},)

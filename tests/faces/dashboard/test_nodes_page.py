"""Nodes and traces: what the page shows to whom, and in a real browser."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, quote, urlsplit

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.nodes.nodes import node_drawing, nodes
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.errors import MissingExtraError
from stormpetrel.faces.dashboard.pages import nodes as nodes_page
from stormpetrel.faces.dashboard.pages.node_cards import diagnosis, embeddings
from stormpetrel.faces.dashboard.pages.node_trace import trace_part
from stormpetrel.faces.dashboard.pages.nodes import question
from stormpetrel.faces.dashboard.shell import page_of
from stormpetrel.records.jobs import ref_text
from tests.answers import traced_sites as made
from tests.builders import make_site
from tests.faces.dashboard.served import PHONE, Board, wait_until

browser_test = pytest.mark.browser
DRAWN = "#nodes-lines .main-svg"
MARKUP = "<img src=x onerror=\"window.hacked='node'\">"
WINDOWS = made.campaign()
HOSTILE = WINDOWS.head(4).with_columns(
    node=pl.lit(MARKUP), job_type=pl.lit(f"</script>{MARKUP}"), trace=pl.lit(f"{{a}}.{MARKUP}"), job_id=pl.lit(f"7{MARKUP}")
)
EVERYTHING = pl.concat([WINDOWS, HOSTILE])
ADA = Viewer("ada", is_admin=False)


@pytest.fixture(scope="module", autouse=True)
def _stand_in_model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stormpetrel.answers.nodes.board.load_trace_model", made.stand_in_model)
        yield


@pytest.fixture(scope="module")
def traced(tmp_path_factory, address):
    """A site with windows and scores, served."""
    folder = tmp_path_factory.mktemp("traced") / "site"
    with make_site(folder, serve={"requests_per_minute": 1_000_000}) as site:
        made.put_people(site)
        live = made.make_live(site, EVERYTHING, made.scores_of(EVERYTHING))
        with address.showing(live) as url:
            yield Board(url, site, live)


@pytest.fixture(scope="module")
def board(traced):
    """What the browser looks at."""
    return traced


def drawn(live, viewer, of_link):
    return node_drawing(live.boards.nodes.wait(live).value, viewer, of_link)


def sent(live, viewer, query=""):
    """Everything that the page sends to a viewer: itself, its maps, and its first window."""
    of_link = question(dict(part.split("=", 1) for part in query.split("&") if part))
    answer, drawing = nodes(live, viewer, of_link), drawn(live, viewer, of_link)
    with seen_by(viewer):
        parts = [page_of("/nodes", query, live)]
    if answer.windows:
        parts += [embeddings(live, answer, drawing), diagnosis(live, answer, drawing)]
        parts.append(trace_part(live, viewer, answer.worst[0].key, "user"))
    return json.dumps(parts, cls=PlotlyJSONEncoder)


# --- what is sent to whom -------------------------------------------------------------------------------------------------------


def test_a_user_is_sent_nothing_of_other_peoples_jobs_and_nodes(traced):
    theirs = traced.rows().filter(pl.col("user") == "kim").select(ref_text())["ref"].to_list()
    foreign = {"node002", *theirs, *(f'"{job}"' for job in made.KIM_JOBS), '"1009"', "onerror"}
    own, everything = sent(traced.live, ADA), sent(traced.live, LOCAL)
    assert [name for name in foreign if name in own] == []
    assert {"node002", '"1009"', "onerror"} <= {name for name in foreign if name in everything}


def test_a_user_who_asks_for_anothers_window_is_told_that_there_is_none(traced):
    foreign = nodes(traced.live, Viewer("kim", is_admin=False)).worst[0].key
    with pytest.raises(Exception, match="no such window that you may see"):
        trace_part(traced.live, ADA, foreign, "user")


@pytest.mark.parametrize(
    "query",
    ["span=never&at=9..x&node=nowhere&type=&mode=7", f"node={'x' * 3000}", "at=99999999999..99999999999", "at=5..1&pick=%00"],
)
def test_a_link_that_makes_no_sense_shows_the_page_all_the_same(traced, query):
    assert "Nodes and traces" in sent(traced.live, LOCAL, query)


def test_a_part_of_the_windows_is_said_to_be_one(traced, monkeypatch):
    monkeypatch.setattr("stormpetrel.answers.nodes.nodes.MOST_POINTS", 100)
    monkeypatch.setattr("stormpetrel.answers.nodes.nodes.sampled.__defaults__", (100,))
    answer, drawing = (ask(traced.live, LOCAL, question({"span": "week"})) for ask in (nodes, drawn))
    told = json.dumps(embeddings(traced.live, answer, drawing), cls=PlotlyJSONEncoder)
    assert f"100 of {EVERYTHING.height} windows shown: all {answer.flagged} flagged ones, the others at random." in told


def laid_out(live):
    return json.dumps(nodes_page.layout(live, LOCAL, {}), cls=PlotlyJSONEncoder)


def test_each_step_that_is_not_done_names_the_next_command(tmp_path, monkeypatch):
    with make_site(tmp_path / "site") as site:
        live = made.make_live(site)
        wait_until(lambda: "stormpetrel ingest traces FILE" in laid_out(live))
        made.put_windows(site, WINDOWS)
        with_windows = LiveSite(site)
        wait_until(lambda: "stormpetrel traces score" in laid_out(with_windows))
        monkeypatch.setattr(nodes_page, "find_spec", lambda name: None)
        without_extra = LiveSite(site)
        wait_until(lambda: "pip install 'stormpetrel[scoring]'" in laid_out(without_extra))


def test_scores_of_the_shipped_encoder_are_said_to_be_so(tmp_path):
    with make_site(tmp_path / "site") as site:
        shipped = made.scores_of(WINDOWS).with_columns(model=pl.lit("traces-shipped"), flagged=pl.lit(False))
        live = made.make_live(site, WINDOWS, shipped)
        wait_until(lambda: "come from the shipped encoder" in laid_out(live))
        told = laid_out(live)
    assert "no threshold yet: a ranking only" in told and "stormpetrel traces train" in told


def test_who_has_no_windows_is_told_so_without_commands(traced):
    told = sent(traced.live, Viewer("eve", is_admin=False))
    assert "None of your jobs has been seen" in told and "stormpetrel ingest" not in told


def test_without_the_extra_the_measured_trace_stands_alone(traced, monkeypatch):
    def missing(*_):
        raise MissingExtraError("Drawing a trace by the model", "traces")

    monkeypatch.setattr("stormpetrel.answers.nodes.traces.model_of", missing)
    told = sent(traced.live, LOCAL)
    assert "stormpetrel[traces]" in told and "nodes-threads-made" not in told and '"reconstruction"' not in told


# --- in a browser ---------------------------------------------------------------------------------------------------------------


def picked(visit):
    """The window that the link names."""
    search = visit.page.evaluate("window.location.search")  # `page.url` stands still while nothing is asked of the browser
    return parse_qs(search.lstrip("?")).get("pick", [""])[0]


def heading(key):
    cpu, _, node = key.split("-")[:3]
    return f"Node {node}, CPU {cpu}"


@browser_test
def test_the_page_opens_without_complaint_and_is_usable_by_everybody(browser):
    visit = browser.open("/nodes", wait_for=DRAWN)
    visit.page.wait_for_selector("#nodes-map .point")
    for table in ("#nodes-table", "#nodes-thread-table", "#nodes-windows"):
        visit.page.locator(table).scroll_into_view_if_needed()
        visit.page.wait_for_selector(f"{table} .ag-row .ag-cell")
    assert visit.axe() == []
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == []
    assert visit.overflow() == 0
    assert visit.page.evaluate("window.hacked") is None
    visit.clean()


@browser_test
def test_who_is_above_in_the_newest_seconds_is_shown_with_a_way_to_the_node(browser, traced):
    start = datetime.now(UTC) - timedelta(seconds=50)
    rows = [made.sliding_row(start, name, above, job="1001", since=start) for name, above in (("node002", 200), (MARKUP, 7))]
    made.put_sliding(traced.site, rows)
    visit = browser.open("/nodes", wait_for="#nodes-seconds li a")
    told = visit.page.inner_text("#nodes-seconds")
    assert "2 nodes are above the threshold" in told and "incidents come from whole windows" in told
    assert "node node002: 4 of 8 threads above what one calm second in 1,000 reaches" in told and MARKUP in told
    visit.page.wait_for_selector("#nodes-findings h3:has-text('In whole windows')")
    assert "This is how it was then, not now." in visit.page.inner_text("#nodes-findings")
    visit.page.wait_for_selector(DRAWN)
    for table in ("#nodes-table", "#nodes-thread-table", "#nodes-windows"):
        visit.page.locator(table).scroll_into_view_if_needed()
        visit.page.wait_for_selector(f"{table} .ag-row .ag-cell")
    assert visit.axe() == []
    visit.page.click("#nodes-seconds li a:has-text('node002')")
    visit.page.wait_for_selector("#nodes-clear-node")
    visit.clean()


@browser_test
def test_a_click_on_a_cell_shows_its_node_and_time_and_back_takes_it_back(browser, traced):
    visit = browser.open("/nodes", wait_for="#nodes-heat .hm image")
    rows = len(drawn(traced.live, LOCAL, question({})).heat.nodes)  # node002 is the third of four: markup comes first
    visit.click_in("#nodes-heat", ".hm image", down=2.5 / rows)
    visit.page.wait_for_selector("#nodes-clear-node")
    query = parse_qs(urlsplit(visit.page.url).query)
    start, end = (int(text) for text in query["at"][0].split(".."))
    assert query["node"] == ["node002"] and end - start == 100
    assert 0 <= start - made.START.timestamp() <= WINDOWS["window_start"].n_unique() * 100
    visit.page.wait_for_selector("h2:has-text('Node node002, CPU')")
    visit.page.go_back()
    visit.page.wait_for_selector("#nodes-clear-node", state="detached")
    visit.page.wait_for_selector(DRAWN)
    visit.clean()


@browser_test
def test_a_point_that_is_clicked_on_shows_its_trace_and_stays_in_the_link(browser, traced):
    visit = browser.open("/nodes", wait_for=DRAWN)
    before = visit.page.inner_text("#nodes-trace h2")
    visit.page.wait_for_selector("#nodes-map .point")
    visit.click_in("#nodes-map", ".point")
    wait_until(lambda: picked(visit) != "")
    visit.page.wait_for_selector(f"#nodes-trace h2:has-text('{heading(picked(visit))}')")
    assert picked(visit) in set(drawn(traced.live, LOCAL, question({})).points["key"])
    again = browser.open(visit.page.url[len(traced.url) :], wait_for=DRAWN)
    assert again.page.inner_text("#nodes-trace h2") == heading(picked(visit)) != before
    visit.clean()


@browser_test
def test_a_window_is_chosen_by_keyboard_from_the_table(browser, traced):
    visit = browser.open("/nodes", wait_for=DRAWN)
    visit.page.locator("#nodes-windows").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#nodes-windows .ag-row .ag-cell a")
    visit.page.focus("#nodes-windows .ag-row[row-index='0'] .ag-cell[col-id=when]")
    for _ in range(3):
        visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("Enter")
    fourth = nodes(traced.live, LOCAL).worst[3].key
    wait_until(lambda: picked(visit) == fourth)
    visit.page.wait_for_selector(f"#nodes-trace h2:has-text('{heading(fourth)}')")
    visit.clean()


@browser_test
def test_another_mode_and_another_thread_are_chosen_beside_the_trace(browser):
    visit = browser.open("/nodes?node=node001", wait_for=DRAWN)
    visit.page.focus("#choose-mode-iowait")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#choose-mode-iowait[aria-current]")
    assert "mode=iowait" in visit.page.url
    wait_until(lambda: visit.page.evaluate("document.activeElement.id") == "choose-mode-iowait")
    visit.click_in("#nodes-threads", ".hm image", down=0.98)  # the last thread
    wait_until(lambda: picked(visit) != "")
    visit.page.wait_for_selector(f"#nodes-trace h2:has-text('{heading(picked(visit))}')")
    assert "mode=iowait" in visit.page.url and "node=node001" in visit.page.url
    visit.clean()


@browser_test
def test_a_job_leads_to_the_table_of_jobs(browser, traced):
    points = drawn(traced.live, LOCAL, question({})).points
    row = points.filter(pl.col("user") == "ada").row(0, named=True)
    visit = browser.open(f"/nodes?pick={quote(row['key'])}", wait_for=f"#nodes-trace a:has-text('job {row['job_id']}')")
    visit.page.click(f"#nodes-trace .nodes-facts a:has-text('job {row['job_id']}')")
    visit.page.wait_for_selector("#job-panel h2, #job-panel .notice")
    assert parse_qs(urlsplit(visit.page.url).query)["job"] == [row["ref"]]


@browser_test
def test_hostile_names_are_shown_as_text(browser, traced):
    key = drawn(traced.live, LOCAL, question({})).points.filter(pl.col("node") == MARKUP)["key"].item(0)
    visit = browser.open(f"/nodes?node={quote(MARKUP)}&pick={quote(key)}", wait_for=DRAWN)
    visit.page.wait_for_selector("#nodes-map .point")
    assert MARKUP in visit.page.inner_text("#nodes-trace h2")
    assert MARKUP in visit.page.inner_text(".nodes-chosen")
    assert visit.page.locator("#main img").count() == 0
    assert visit.page.evaluate("window.hacked") is None
    visit.clean()

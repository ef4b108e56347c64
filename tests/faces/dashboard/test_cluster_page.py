"""Grid: what the page shows to whom, and in a real browser."""

import json
from datetime import datetime, timedelta
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from stormpetrel.answers.cluster.cluster import cluster_period
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.cluster import BucketQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer, seen_by
from stormpetrel.faces.dashboard.pages import cluster as cluster_page
from stormpetrel.faces.dashboard.pages.cluster import bucket_part, moment_of, question
from stormpetrel.faces.dashboard.pages.cluster_cards import counts, length
from stormpetrel.faces.dashboard.shell import page_of
from stormpetrel.records.outages import Outage, OutageKind
from tests.answers import cluster_sites as made
from tests.builders import make_site
from tests.faces.dashboard.served import PHONE, Board, wait_until

browser_test = pytest.mark.browser
DRAWN = "#cluster-counts .main-svg"
MARKUP = "<img src=x onerror=\"window.hacked='title'\">"
ZONE = "America/Chicago"
CLUSTER = made.sample_grid()
END = CLUSTER.series.moment(len(CLUSTER.series) - 1) + made.HOUR
SCORES = made.scores_of(CLUSTER)
ADA = Viewer("ada", is_admin=False)
HOSTILE = Outage(CLUSTER.series.moment(380), CLUSTER.series.moment(383), OutageKind.OUTAGE, MARKUP)


def hostile_scores():
    """The scores, with markup in what the newest alarm says."""
    words = json.dumps([{"kind": "new kind", "words": f"{MARKUP} seen", "event_kind": MARKUP}])
    newest = pl.col("alarm") & (pl.col("bucket_start") > SCORES.filter(pl.col("alarm"))["bucket_start"].max() - timedelta(days=1))
    return SCORES.with_columns(why=pl.when(newest).then(pl.lit(words)).otherwise("why"))


@pytest.fixture(scope="module")
def board(tmp_path_factory, address):
    """A site with counts, outages, a gap and scores, served."""
    folder = tmp_path_factory.mktemp("cluster") / "site"
    with make_site(folder, serve={"requests_per_minute": 1_000_000}, site={"time_zone": ZONE}, graphite=made.GRAPHITE) as site:
        site.now = lambda: END + timedelta(minutes=20)
        made.put_background(site, CLUSTER)
        made.put_outages(site, CLUSTER, HOSTILE)
        live = made.make_live(site, CLUSTER, hostile_scores())
        with address.showing(live) as url:
            yield Board(url, site, live)


def drawn_counts(live, period):
    return counts(live, period, live.boards.cluster.wait(live).value.value.arrays.between(period.start, period.end))


def sent(live, viewer, query=""):
    """Everything that the page sends to a viewer: itself, its counts, and the bucket that it opens with."""
    live.boards.cluster.wait(live)
    with seen_by(viewer):
        page = page_of("/cluster", query, live)
    asked = dict(part.split("=", 1) for part in query.split("&") if part)
    period = cluster_period(live, viewer, question(live, asked)[0])
    parts = [page]
    if period.buckets:
        picked = next(one.data for one in page.children[3].children if getattr(one, "id", "") == "cluster-pick")
        bucket = BucketQuestion(at=moment_of(picked["at"], ZONE))
        parts += [drawn_counts(live, period), bucket_part(live, viewer, bucket)]
    return json.dumps(parts, cls=PlotlyJSONEncoder)


# --- what is sent to whom --------------------------------------------------------------------------------------------------


def test_a_user_is_sent_the_counts_but_no_group_no_node_and_no_reason_of_a_gap(board):
    own, everything = sent(board.live, ADA, "span=all"), sent(board.live, LOCAL, "span=all")
    secrets = {made.SECRET_NODE, made.SECRET_GROUP, "rotated", "cluster-where-group", "cluster-where-node"}
    assert [secret for secret in secrets if secret in own] == []
    assert {secret for secret in secrets if secret in everything} == secrets
    for shown in ("JobDisconnected", "host2", "cluster-where-submit_host", "Outages and maintenance", HOSTILE.title.split()[0]):
        assert shown in own


@pytest.mark.parametrize("viewer", [ADA, LOCAL])
def test_queue_and_slots_are_drawn_beside_the_alarms(board, viewer):
    told = sent(board.live, viewer, "span=all")
    assert "cluster-background" in told and "queued, running, utilisation: the mean of each hour" in told


def test_a_time_without_background_has_no_empty_figure(board):
    began = f"{CLUSTER.series.moment(101).astimezone(ZoneInfo(ZONE)):%Y-%m-%dT%H:%M}"
    ended = f"{CLUSTER.series.moment(109).astimezone(ZoneInfo(ZONE)):%Y-%m-%dT%H:%M}"
    told = sent(board.live, LOCAL, f"from={began}&to={ended}")
    assert "cluster-background" not in told and "Events of each kind" in told


@pytest.mark.parametrize(
    "query",
    ["span=never&at=x&kind=7", "from=yesterday&to=9999-99-99", "from=2025-01-09&to=2025-01-08", f"kind={'x' * 3000}", "at=%00"],
)
def test_a_link_that_makes_no_sense_shows_the_page_all_the_same(board, query):
    board.live.boards.cluster.wait(board.live)
    with seen_by(LOCAL):
        told = json.dumps(page_of("/cluster", query, board.live), cls=PlotlyJSONEncoder)
    assert "Score and alarms" in told and ("is not a date" in told) == ("yesterday" in query)
    assert ("swap them" in told) == ("2025-01-08" in query)


def test_a_time_without_counts_is_told(board):
    assert "no counts of this time" in sent(board.live, LOCAL, "from=2031-01-01")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2025-07-01", "2025-07-01T05:00"), ("2025-07-01T14:00", "2025-07-01T19:00"),
        ("2025-07-01T14:00+00:00", "2025-07-01T14:00"), ("2025-11-02T01:30", "2025-11-02T06:30"), ("", None),
        ("noon", None), ("0001-01-01", None), ("9999-12-31", None),
    ],
)  # fmt: skip
def test_a_time_in_a_link_is_that_of_the_clock_on_the_wall(text, utc):
    found = moment_of(text, ZONE)
    assert found == (None if utc is None else datetime.fromisoformat(f"{utc}+00:00"))


def test_a_day_at_the_end_of_a_span_is_whole(board):
    asked, problems = question(board.live, {"from": "2025-01-08", "to": "2025-01-08"})
    assert asked.until - asked.since == timedelta(days=1) and problems == []


@pytest.mark.parametrize(
    ("minutes", "words"), [(1, "1 minute"), (15, "15 minutes"), (60, "1 hour"), (1440, "24 hours"), (2880, "2 days")]
)
def test_a_bucket_has_a_length_in_words(minutes, words):
    assert length(60 * minutes) == words


def laid_out(live, viewer=LOCAL):
    return json.dumps(cluster_page.layout(live, viewer, {}), cls=PlotlyJSONEncoder)


def test_each_step_that_is_not_done_names_the_next_command(tmp_path):
    with make_site(tmp_path / "site") as site:
        site.now = lambda: END + timedelta(minutes=20)
        live = LiveSite(site)
        live.refresh()
        wait_until(lambda: "stormpetrel ingest events --live" in laid_out(live))
        assert "stormpetrel" not in laid_out(live, ADA)
        made.put_counts(site, CLUSTER, by_place=False)
        counted = LiveSite(site)
        wait_until(lambda: "stormpetrel events train" in laid_out(counted))
        told = json.dumps(drawn_counts(counted, cluster_period(counted, LOCAL)), cls=PlotlyJSONEncoder)
        assert "without a forecast" in told and "toself" not in told


# --- in a browser ----------------------------------------------------------------------------------------------------------


def parameter(visit, name):
    search = visit.page.evaluate("window.location.search")  # `page.url` stands still while nothing is asked of the browser
    return parse_qs(search.lstrip("?")).get(name, [""])[0]


def heading(visit, moment):
    """Wait until the bucket of a moment is shown."""
    local = moment.astimezone(ZoneInfo(ZONE))
    visit.page.wait_for_selector(f"#cluster-bucket h2:has-text('{local:%d %b %Y, %H:%M} to')")


@browser_test
def test_the_page_opens_without_complaint_and_is_usable_by_everybody(browser):
    visit = browser.open("/cluster?span=all", wait_for=DRAWN)
    visit.page.wait_for_selector("#cluster-bucket .cluster-findings")
    assert MARKUP in visit.page.inner_text("#cluster-bucket")
    for table in ("#cluster-alarms", "#cluster-outages"):
        visit.page.locator(table).scroll_into_view_if_needed()
        visit.page.wait_for_selector(f"{table} .ag-row .ag-cell")
    assert visit.axe() == []
    visit.show(PHONE, "dark")
    visit.page.wait_for_selector("html[data-theme=dark]")
    assert visit.axe() == []
    assert visit.overflow() == 0
    assert visit.page.locator("#main img").count() == 0 and visit.page.evaluate("window.hacked") is None
    visit.clean()


@browser_test
def test_a_link_of_an_older_version_leads_to_the_page_inside_an_open_tab_too(browser):
    visit = browser.open("/grid?span=day", wait_for=DRAWN)
    assert visit.page.url.endswith("/cluster?span=day")
    visit.page.click(".brand")
    visit.page.wait_for_selector("#shell-page h1:text-is('Now')")
    visit.page.evaluate("window.stormpetrelLink.go('/grid?span=month')")  # as a saved view does
    visit.page.wait_for_selector("#choose-span-month[aria-current]")
    assert visit.page.url.endswith("/cluster?span=month") and visit.page.title() == "Cluster · Stormpetrel"
    visit.clean()


@browser_test
def test_a_point_that_is_clicked_on_shows_its_bucket_and_stays_in_the_link(browser):
    visit = browser.open("/cluster?span=day", wait_for=DRAWN)
    visit.page.wait_for_selector("#cluster-bucket h2")
    visit.click_in("#cluster-counts", ".nsewdrag[data-subplot='xy2']", across=0.3)
    wait_until(lambda: parameter(visit, "at") != "")
    at, kind = moment_of(parameter(visit, "at"), ZONE), parameter(visit, "kind")
    assert END - timedelta(days=1) < at < END - timedelta(hours=12) and kind == CLUSTER.series.kinds[1]
    heading(visit, at)
    visit.page.wait_for_selector(f"#cluster-bucket h3:has-text('Where: {kind}')")
    visit.page.reload()
    heading(visit, at)
    visit.clean()


@browser_test
def test_an_alarm_is_chosen_by_keyboard_and_so_is_the_bucket_before_it_and_another_time(browser, board):
    alarms = cluster_period(board.live, LOCAL, question(board.live, {"span": "all"})[0]).alarms
    visit = browser.open("/cluster?span=all", wait_for=DRAWN)
    visit.page.locator("#cluster-alarms").scroll_into_view_if_needed()
    visit.page.wait_for_selector("#cluster-alarms .ag-row .ag-cell a")
    visit.page.focus("#cluster-alarms .ag-row[row-index='0'] .ag-cell[col-id=start]")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("Enter")
    heading(visit, alarms[1].worst)
    visit.page.focus("#cluster-earlier")
    visit.page.keyboard.press("Enter")
    heading(visit, alarms[1].worst - made.HOUR)
    wait_until(lambda: visit.page.evaluate("document.activeElement.id") == "cluster-earlier")
    visit.page.fill("#cluster-from", "2025-01-15")
    visit.page.keyboard.press("Enter")
    wait_until(lambda: parameter(visit, "from") == "2025-01-15")
    visit.page.wait_for_selector("#cluster-body:has-text('15 Jan 2025 00:00 to')")
    visit.page.go_back()
    visit.page.wait_for_selector("#choose-span-all[aria-current]")
    visit.clean()

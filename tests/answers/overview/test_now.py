from datetime import timedelta

import pytest

from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.cluster.cluster import cluster_now
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.now import incident_headline, news_since, now_page, top_page
from stormpetrel.answers.overview.overview import Overview
from stormpetrel.answers.schemas.health import NowNode
from stormpetrel.answers.schemas.jobs import JobsQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.figures.nodes import node_map
from stormpetrel.records.findings import FindingKind, SubjectKind
from tests.answers import cluster_sites as made
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.raised_incidents import raise_incidents

HOUR = timedelta(hours=1)
CLUSTER = made.sample_grid()
END = CLUSTER.series.moment(len(CLUSTER.series) - 1) + made.HOUR
ANN, EVE = (Viewer(user, is_admin=False) for user in ("ann", "eve"))


@pytest.fixture
def live(tmp_path):
    """A site with counts of events and their scores."""
    with make_site(tmp_path / "site", site={"time_zone": "UTC"}) as site:
        site.now = lambda: END + timedelta(minutes=20)
        live = made.make_live(site, CLUSTER, made.scores_of(CLUSTER))
        for board in (live.boards.cluster, live.boards.books, live.boards.nodes):
            board.wait(live)
        yield live


def test_a_site_without_anything_wrong_says_so_and_leaves_out_what_it_does_not_have(live):
    answer = now_page(live, LOCAL)
    assert (answer.headline, answer.level, answer.incidents, answer.at_risk, answer.nodes) == (
        "No open incident.",
        "ok",
        [],
        [],
        [],
    )
    assert answer.hour is not None and answer.hour.start == END - made.HOUR
    assert {kind.kind for kind in answer.hour.kinds} == set(CLUSTER.series.kinds)


def test_what_is_still_worked_out_after_a_start_is_named_and_there_soon(tmp_path, monkeypatch):
    with make_site(tmp_path / "site", site={"time_zone": "UTC"}) as site:
        site.now = lambda: END + timedelta(minutes=20)
        live = made.make_live(site, CLUSTER, made.scores_of(CLUSTER))
        monkeypatch.setattr(live.boards.cluster, "peek", lambda live: None)
        answer = now_page(live, LOCAL)
        assert "hour" in answer.pending and answer.hour is None
        monkeypatch.undo()
        for board in (live.boards.cluster, live.boards.books, live.boards.nodes):
            board.wait(live)
        assert now_page(live, LOCAL).pending == [] and now_page(live, LOCAL).hour is not None


def test_calm_is_never_said_above_an_open_incident(live):
    assert cluster_now(live, LOCAL).state == "calm"
    raise_incidents(live.site, finding(when=END - HOUR), batch_finding("ann", when=END - HOUR))
    for viewer, count in ((LOCAL, 2), (ANN, 2)):
        now = cluster_now(live, viewer)
        assert (
            now.state == "incident" and now.headline.startswith(f"{count} open incidents") and "calm" not in now.headline.lower()
        )
        assert "calm" not in now_page(live, viewer).model_dump_json().lower()
    assert cluster_now(live, EVE).state == "calm"


def test_pages_come_first_and_acknowledged_ones_are_counted(live):
    wave = finding(FindingKind.TIMEOUT_WAVE, (SubjectKind.CLUSTER, "c1"), when=END - HOUR / 2, users=("bob", "cat"))
    raise_incidents(live.site, finding(when=END - HOUR), wave)
    answer = now_page(live, LOCAL)
    assert (answer.headline, answer.level) == ("2 open incidents, 1 of them a page.", "problem")
    assert [line.id for line in answer.incidents] == [1, 2]
    assert [(node.node, node.incidents) for node in answer.nodes] == [("n017", [1])]
    act_on_incident(live.site, LOCAL, 1, "acknowledge")
    answer = now_page(live, LOCAL)
    assert (answer.headline, answer.level) == ("2 open incidents, 1 of them a page; 1 acknowledged.", "warning")
    assert (now_page(live, EVE).headline, now_page(live, EVE).nodes) == ("No open incident.", [])
    assert incident_headline(answer.incidents[:1]) == "1 open incident, a page; acknowledged."


def test_top_says_of_a_site_that_nobody_serves_what_its_page_says(live):
    raise_incidents(live.site, finding(when=END - HOUR), batch_finding("ann", when=END - HOUR))
    overview = Overview()
    overview.refresh(live.site)
    page, answer = now_page(live, LOCAL), top_page(live.site, overview, LOCAL, JobsQuestion())
    assert (answer.headline, answer.level, answer.incidents) == (page.headline, page.level, page.incidents)
    assert (answer.incidents_total, answer.at_risk_total, answer.jobs_total) == (2, 0, live.overview.frame.height)
    assert top_page(live.site, overview, EVE, JobsQuestion()).incidents == []


def test_what_is_new_is_what_happened_after_a_time(live):
    raise_incidents(live.site, finding(when=END - 3 * HOUR))
    act_on_incident(live.site, LOCAL, 1, "note", "new disk")
    assert [line.words for line in news_since(live, LOCAL, END - 4 * HOUR).news][-2:] == ["raised", "sent at once"][::-1]
    (note,) = news_since(live, LOCAL, END - HOUR).news
    assert note.incident == 1 and note.words.endswith(": new disk")
    assert (
        "new disk" not in news_since(live, ANN, END - 4 * HOUR).model_dump_json()
        and news_since(live, EVE, END - 4 * HOUR).news == []
    )


def test_a_site_that_has_nothing_yet_has_a_page(tmp_path):
    with make_site(tmp_path / "site") as site:
        answer = now_page(LiveSite(site), LOCAL)
        assert (answer.headline, answer.grid, answer.hour, answer.nodes) == ("No open incident.", None, None, [])


def test_ten_thousand_nodes_are_one_trace_and_markup_in_a_name_is_text():
    none = {"incidents": [], "windows": None, "flagged": None}
    figure = node_map([NowNode(node=f"<b>n{k}", jobs=10, failed=k % 10, **none) for k in range(10_000)])
    assert len(figure.data) == 1 and figure.data[0].texttemplate is None
    assert "&lt;b&gt;n0" in figure.data[0].hovertext[0][0] and max(max(row) for row in figure.data[0].z[:3]) == 0.9

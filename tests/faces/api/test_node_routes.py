"""Nodes and windows over HTTP: the answers of the desk, for those who may see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import polars as pl
import pytest

from stormpetrel.answers.nodes.nodes import nodes
from stormpetrel.answers.schemas.nodes import NodesQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.web.app import bare_app, protected
from tests.answers import traced_sites as made
from tests.builders import make_site
from tests.faces.api.sample_site import ADMIN, World

WINDOWS = made.campaign()


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A served site with windows and scores."""
    serve = {"login": "token", "admins": [ADMIN], "requests_per_minute": 1_000_000, "hosts": ["testserver"]}
    with make_site(tmp_path_factory.mktemp("traced") / "site", serve=serve) as site:
        made.put_people(site)
        live = made.make_live(site, WINDOWS, made.scores_of(WINDOWS))
        app = bare_app(live)
        app.include_router(router(live))
        yield World(site, live, protected(app, site))


@pytest.fixture(autouse=True)
def _stand_in_model(monkeypatch):
    monkeypatch.setattr("stormpetrel.answers.nodes.board.load_trace_model", made.stand_in_model)


def test_nodes_are_those_of_the_desk(traced):
    answer = nodes(traced.live, LOCAL, NodesQuestion(span="all", limit=7))
    assert traced.get("/nodes?span=all&limit=7") == answer.model_dump(mode="json")
    assert (answer.windows, len(answer.worst), answer.lack) == (WINDOWS.height, 7, None)
    assert {row["node"] for row in traced.get("/nodes?node=node002")["nodes"]} == {"node002"}
    begun = traced.get(f"/nodes?until={quote((made.START + timedelta(seconds=100)).isoformat())}")
    assert begun["windows"] == WINDOWS.filter(pl.col("window_start") < made.START + timedelta(seconds=100)).height > 0
    assert traced.get("/nodes?job_type=Bad%20IO")["windows"] == WINDOWS.filter(job_type="Bad IO").height


def test_a_window_is_told_with_its_reconstruction(traced):
    key = traced.get("/nodes")["worst"][0]["key"]
    told = traced.get(f"/nodes/windows/{quote(key, safe='')}")
    assert told["modes"] == ["user", "system", "iowait", "other"] and told["problem"] is None
    thread = next(one for one in told["threads"] if one["key"] == key)
    assert [len(mode) for mode in thread["original"]] == [len(mode) for mode in thread["reconstruction"]] == [100] * 4


def test_a_user_gets_windows_of_the_own_jobs_only(traced):
    told = traced.get("/nodes?span=all", user="ada")
    assert told["own_only"] and {window["job_id"] for window in told["worst"]} <= {str(job) for job in made.ADA_JOBS}
    foreign = traced.get("/nodes?span=all", user="kim")["worst"][0]["key"]
    answers = [traced.ask("GET", f"/nodes/windows/{quote(key)}", user="ada") for key in (foreign, f"{foreign}x")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json() == answers[1].json()


def test_what_is_odd_is_for_administrators(traced):
    told = traced.get("/nodes/findings")
    assert (told["judged"], told["findings"], told["nodes"], told["cluster"]) == (False, [], [], None)
    assert "prometheus.url" in told["sliding"]["why_not"] and not told["sliding"]["fresh"]
    assert told["windows_until"] == (made.START + timedelta(minutes=11, seconds=40)).isoformat().replace("+00:00", "Z")
    assert traced.ask("GET", "/nodes/findings", user="ada").status_code == 403


def test_who_is_above_in_the_newest_seconds_is_told_at_once(traced):
    start = datetime.now(UTC) - timedelta(seconds=50)
    traced.get("/nodes/findings")  # what is said of whole windows is kept
    made.put_sliding(traced.site, [made.sliding_row(start, "n003", 200, job="4711", since=start)])
    told = traced.get("/nodes/findings")["sliding"]
    assert told["fresh"] and [node["node"] for node in told["nodes"]] == ["n003"]
    assert told["nodes"][0]["sentence"].endswith("(job 4711)") and told["above_share"] == 200 / 3200


def test_a_site_without_traces_says_what_it_lacks(world):
    told = world.get("/nodes")
    assert (told["lack"], told["windows"], told["nodes"], told["worst"]) == ("windows", 0, [], [])


@pytest.mark.parametrize("path", ["/nodes?span=year", "/nodes?limit=0", "/nodes?colour=red", "/nodes/windows/nonsense"])
def test_what_makes_no_sense_is_refused(traced, path):
    assert traced.ask("GET", path).status_code == 422

"""Capacity over HTTP: the answers of the desk, for those who may see them."""

from __future__ import annotations

import pytest

from stormpetrel.answers.cluster.capacity import capacity
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.cluster import CapacityQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.client import Client
from stormpetrel.faces.web.app import bare_app, protected
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.events.loads import end_of, steady_jobs
from tests.faces.api.sample_site import ADMIN, World
from tests.faces.web.sample_site import running


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A served site with twelve weeks of jobs."""
    serve = {"login": "token", "admins": [ADMIN], "requests_per_minute": 1_000_000, "hosts": ["testserver"]}
    with make_site(tmp_path_factory.mktemp("capacity") / "site", serve=serve) as site:
        site.now = lambda: end_of(12)
        put_jobs(site, steady_jobs(12, growth=0.05, load=0.62, cores=200))
        live = LiveSite(site)
        live.refresh()
        app = bare_app(live)
        app.include_router(router(live))
        yield World(site, live, protected(app, site))


def test_the_answer_is_that_of_the_desk(served):
    sent, answer = served.get("/capacity?cores=200"), capacity(served.live, LOCAL, CapacityQuestion(cores=200))
    assert sent == answer.model_dump(mode="json") and sent["unit"] == "core-hours" and sent["capacity"] == 200
    assert len(sent["weeks"]) == 11 and len(sent["forecast"]) == 26


def test_groups_are_told_to_administrators_only(served):
    own, full = (served.ask("GET", "/capacity", user=user).text for user in ("ada", ADMIN))
    assert "physics" in full and "physics" not in own


@pytest.mark.parametrize("query", ["cores=0", "cores=1e-310", "cores=-1", "cores=many", "cores=nan", "cores=1e30", "colour=red"])
def test_what_makes_no_sense_is_refused(served, query):
    assert served.ask("GET", f"/capacity?{query}").status_code == 422


def test_the_client_asks_for_the_same(served):
    with running(served.app) as url, Client(url, served.token(ADMIN)) as client:
        assert client.capacity(cores=200)["headline"] == served.get("/capacity?cores=200")["headline"]

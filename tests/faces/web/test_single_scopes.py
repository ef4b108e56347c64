"""Every path and every callback of the server × every single scope: nothing of a job leaves it without the scope to read."""

import json
import re

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import MANAGE, PREDICT, READ, SCOPES, WRITE
from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.faces.web import security
from stormpetrel.faces.web.app import create_app
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import Job, make_site, write_sacct
from tests.faces.web.sample_site import BROWSER, client_of

SECRET = "a-name-for-readers-only"
UPDATE = "/_dash-update-component"
ROWS = "jobs-rows.data"
OPEN = {"/login", "/login.css", "/logout", "/healthz", "/readyz"}
VALUES = {"jobs-request.data": {"id": 1, "view": "all", "startRow": 0, "endRow": 100}, "jobs-asked.data": {"text": "4711"}}


class Server:
    """The whole server of a site with one job, and an administrator's token for each scope."""

    def __init__(self, site):
        live = LiveSite(site)
        live.refresh()
        self.app = create_app(live)
        self.tokens = {scope: site.tokens.add(scope, user="root", scopes=[scope]) for scope in SCOPES}

    def ask(self, scope, path, *, method="GET", **options):
        headers = BROWSER | {"Authorization": f"Bearer {self.tokens[scope]}"}
        return client_of(self.app).request(method, path, headers=headers, **options)

    def call(self, scope, callback):
        """Run a callback of the dashboard, as its page would after a change of its first input."""
        return self.ask(scope, UPDATE, method="POST", json=body_of(callback))

    def callbacks(self):
        """Those that run in the server, as Dash itself lists them."""
        listed = self.ask(READ, "/_dash-dependencies").json()
        return [one for one in listed if not one.get("clientside_function")]

    def paths(self):
        """Every path of the application outside the API, each with one of its methods."""
        routes = [route for route in self.app.routes if not getattr(route, "path", "/api/").startswith("/api/")]
        return [(re.sub(r"\{[^}]*\}", "x", route.path), min(getattr(route, "methods", None) or ["GET"])) for route in routes]


def body_of(callback):
    """What a browser sends: an id with a pattern has no component yet."""
    inputs = [given(one) for one in callback["inputs"]]
    outputs = [output_of(text) for text in callback["output"].strip(".").split("...")]
    first = callback["inputs"][0] if callback["inputs"] else None
    return {
        "output": callback["output"],
        "outputs": outputs if callback["output"].startswith("..") else outputs[0],
        "inputs": inputs,
        "state": [given(one) for one in callback["state"]],
        "changedPropIds": [f"{first['id']}.{first['property']}"] if first else [],
    }


def given(one):
    if one["id"].startswith("{"):
        return []
    return {"id": one["id"], "property": one["property"], "value": VALUES.get(f"{one['id']}.{one['property']}")}


def output_of(text):
    name, _, prop = text.rpartition(".")
    return {"id": json.loads(name) if name.startswith("{") else name, "property": prop}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scopes")
    serve = {"login": "token", "admins": ["root"], "requests_per_minute": 1_000_000}
    with make_site(folder / "site", serve=serve) as site:
        ingest_jobs(site, SacctText(write_sacct(folder / "log", [Job(job_id=4711, user="kim", name=SECRET)])))
        yield Server(site)


def test_the_callbacks_show_the_job_to_who_may_read(server):
    callbacks = server.callbacks()
    assert len(callbacks) >= 20 and ROWS in [one["output"] for one in callbacks]
    rows = next(one for one in callbacks if one["output"] == ROWS)
    assert SECRET in server.call(READ, rows).text
    assert [one["output"] for one in callbacks if server.call(READ, one).status_code == 403] == []


@pytest.mark.parametrize("scope", [PREDICT, WRITE, MANAGE])
def test_no_callback_answers_a_token_that_may_not_read(server, scope):
    for callback in server.callbacks():
        answer = server.call(scope, callback)
        assert answer.status_code == 403 and f"'{READ}'" in answer.json()["error"]["what"], callback["output"]


@pytest.mark.parametrize("scope", [PREDICT, WRITE, MANAGE])
def test_behind_an_open_door_a_callback_still_asks_for_the_scope(server, scope, monkeypatch):
    monkeypatch.setattr(security, "_check_scope", lambda request, known: None)
    for callback in server.callbacks():
        answer = server.call(scope, callback)
        assert SECRET not in answer.text and f"needs the scope '{READ}'" in answer.text, callback["output"]


@pytest.mark.parametrize("scope", [PREDICT, WRITE, MANAGE])
def test_no_path_outside_the_api_is_open_to_a_token_that_may_not_read(server, scope):
    paths = [(path, method) for path, method in server.paths() if path not in OPEN]
    assert {page.path for page in PAGES} <= {path for path, _ in paths} and (UPDATE, "POST") in paths
    open_to_it = [path for path, method in paths if server.ask(scope, path, method=method).status_code != 403]
    assert open_to_it == []

"""The viewer is known inside real Dash callbacks, and what goes wrong there is told as everywhere else."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from dash import Dash, Input, Output, html
from dash.exceptions import PreventUpdate

from stormpetrel.answers.viewer import Viewer, current_viewer, seen_by
from stormpetrel.errors import NotThereError
from stormpetrel.faces.web.app import bare_app, protected
from stormpetrel.faces.web.response_headers import inline_script_hashes
from tests.faces.web.sample_site import BROWSER, client_of, live_of


@pytest.fixture
def app(make):
    site = make(login="proxy", requests_per_minute=100_000)
    server = bare_app(live_of(site))
    dash = Dash("stormpetrel", server=server, assets_folder="")
    with seen_by(Viewer("nobody", is_admin=False)):  # Dash looks at a layout when it is given one
        dash.layout = lambda: html.Div(f"layout of {current_viewer().user}", id="who")

    @dash.callback(Output("plain", "children"), Input("in", "value"))
    def plain(value):
        return answer(value)

    @dash.callback(Output("waiting", "children"), Input("in", "value"))
    async def waiting(value):
        await asyncio.sleep(0)
        return await asyncio.to_thread(answer, value)

    def answer(value):
        if value == "stop":
            raise PreventUpdate
        if value == "gone":
            raise NotThereError("There is no such job.", hint="Look again.")
        if value == "broken":
            raise RuntimeError("password=hunter2")
        return f"{value} for {current_viewer().user}"

    return protected(server, site, script_hashes=dash.csp_hashes())


def call(app, output, value, user="kim"):
    body = {
        "output": f"{output}.children",
        "outputs": {"id": output, "property": "children"},
        "inputs": [{"id": "in", "property": "value", "value": value}],
        "changedPropIds": ["in.value"],
    }
    return client_of(app).post("/_dash-update-component", json=body, headers=BROWSER | {"X-Forwarded-User": user})


@pytest.mark.parametrize("output", ["plain", "waiting"])
def test_a_callback_knows_its_viewer(app, output):
    assert call(app, output, "jobs").json()["response"][output]["children"] == "jobs for kim"


@pytest.mark.parametrize("output", ["plain", "waiting"])
def test_callbacks_at_the_same_time_keep_their_viewers_apart(app, output):
    users = [f"user{number % 5}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda user: call(app, output, "jobs", user).json()["response"][output]["children"], users)
        assert list(answers) == [f"jobs for {user}" for user in users]


def test_the_layout_knows_its_viewer(app):
    layout = client_of(app).get("/_dash-layout", headers={"X-Forwarded-User": "lee"})
    assert layout.json()["props"]["children"] == "layout of lee"


@pytest.mark.parametrize(
    "path", ["/", "/_dash-layout", "/_dash-dependencies", "/_dash-component-suites/dash/deps/x.js", "/_reload-hash"]
)
def test_nothing_of_the_dashboard_is_shown_to_nobody(app, path):
    assert client_of(app).get(path).status_code == 401


def test_a_callback_that_another_site_calls_is_not_run(app):
    body = {"output": "plain.children", "inputs": [], "changedPropIds": []}
    headers = {"X-Forwarded-User": "kim", "Sec-Fetch-Site": "cross-site"}
    assert client_of(app).post("/_dash-update-component", json=body, headers=headers).status_code == 403


@pytest.mark.parametrize("output", ["plain", "waiting"])
def test_what_goes_wrong_in_a_callback_is_told_as_everywhere_else(app, output, caplog):
    assert call(app, output, "stop").status_code == 204
    gone = call(app, output, "gone")
    assert gone.status_code == 404 and gone.json() == {"error": {"what": "There is no such job.", "hint": "Look again."}}
    with caplog.at_level(logging.ERROR, "stormpetrel.serve"):
        broken = call(app, output, "broken")
    assert broken.status_code == 500 and "hunter2" not in broken.text
    assert "hunter2" in caplog.text


def test_the_policy_lets_dash_start_itself_and_no_other_script(app):
    page = client_of(app).get("/", headers=BROWSER | {"X-Forwarded-User": "kim"})
    allowed = page.headers["Content-Security-Policy"]
    inline = inline_script_hashes(page.text)
    assert inline and all(one in allowed for one in inline)
    assert "'unsafe-inline'" not in allowed.partition("style-src")[0] and "unsafe-eval" not in allowed

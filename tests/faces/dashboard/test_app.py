"""The dashboard inside the web server: its paths, its scripts, its callbacks, and who they answer to."""

import json
import re
import threading

import pytest
from dash import Input, Output

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import UsageError
from stormpetrel.faces.dashboard.app import add_dashboard
from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.faces.web.app import bare_app, protected
from tests.builders import make_site
from tests.faces.web.sample_site import BROWSER, client_of

PREFIX = "/node/login1/8050"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A site behind a proxy, its app, and three callbacks."""
    folder = tmp_path_factory.mktemp("served") / "site"
    with make_site(folder, serve={"login": "proxy", "prefix": PREFIX, "requests_per_minute": 100_000}) as site:
        live = LiveSite(site)
        live.refresh()
        app = bare_app(live)
        dash = add_dashboard(app, live)

        @dash.callback(Output("who", "children"), Input("in", "value"))
        def who(value):
            if value == "wrong":
                raise UsageError("That makes no sense.", hint="Ask otherwise.")
            if value == "broken":
                raise RuntimeError("password=hunter2")
            return f"{current_viewer().user} {threading.current_thread() is threading.main_thread()}"

        yield protected(app, site, script_hashes=dash.csp_hashes())


def get(served, path, **headers):
    return client_of(served).get(path, headers={"X-Forwarded-User": "kim", **headers})


def call(served, value):
    body = {
        "output": "who.children",
        "outputs": {"id": "who", "property": "children"},
        "inputs": [{"id": "in", "property": "value", "value": value}],
        "changedPropIds": ["in.value"],
    }
    headers = BROWSER | {"X-Forwarded-User": "kim"}
    return client_of(served).post(f"{PREFIX}/_dash-update-component", json=body, headers=headers).json()


@pytest.mark.parametrize("path", ["/", *(page.path for page in PAGES)])
def test_every_page_has_a_path(served, path):
    answer = get(served, PREFIX + path)
    assert answer.status_code == 200
    assert "_dash-renderer" in answer.text


@pytest.mark.parametrize(("earlier", "today"), [("/grid", "/cluster"), ("/workload", "/generator")])
def test_a_path_of_an_older_version_redirects_with_its_parameters(served, earlier, today):
    link = f"{PREFIX}{earlier}?span=all&at=2026-03-02T14:00"
    answer = client_of(served).get(link, headers={"X-Forwarded-User": "kim"}, follow_redirects=False)
    assert answer.status_code == 308
    assert answer.headers["location"] == f"{PREFIX}{today}?span=all&at=2026-03-02T14:00"


@pytest.mark.parametrize("path", ["/nothing", "/jobs/1", "/_dash-ws-callback"])
def test_other_paths_are_not_there(served, path):
    assert get(served, PREFIX + path).status_code == 404


def test_every_address_in_the_page_is_below_the_prefix(served):
    page = get(served, f"{PREFIX}/jobs").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(addresses) > 10
    assert all(address.startswith(f"{PREFIX}/") for address in addresses)


def test_no_script_stands_in_the_page_but_the_one_that_starts_dash(served):
    page = get(served, f"{PREFIX}/jobs").text
    inline = re.findall(r"<script(?![^>]*src=)(?![^>]*application/json)[^>]*>", page)
    assert len(inline) == 1


def test_scripts_come_compressed_to_who_can_read_them(served):
    page = get(served, f"{PREFIX}/").text
    script = next(address for address in re.findall(r'src="([^"]+)"', page) if "react-dom" in address)
    plain, packed = get(served, script, **{"Accept-Encoding": "identity"}), get(served, script, **{"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 2


def test_a_callback_runs_in_a_thread_and_knows_its_viewer(served):
    assert call(served, "x")["response"]["who"]["children"] == "kim False"


def test_an_error_of_ours_is_told_on_the_page(served):
    answer = call(served, "wrong")
    assert answer["sideUpdate"]["shell-problem"]["children"] == "That makes no sense. Ask otherwise."


def test_an_error_nobody_foresaw_is_logged_and_not_told(served, caplog):
    answer = call(served, "broken")
    assert "hunter2" not in json.dumps(answer)
    assert "its log has the details" in answer["sideUpdate"]["shell-problem"]["children"]
    assert "unexpected" in caplog.text


@pytest.mark.parametrize(
    "body",
    [{}, {"output": "nothing.data"}, {"output": "who.children", "inputs": 5}, {"output": ["who"]}, [], "text", 5, None],
)
def test_what_no_page_of_ours_sends_is_told_to_who_sent_it_and_not_to_the_log(served, body, caplog):
    headers = BROWSER | {"X-Forwarded-User": "kim"}
    answer = client_of(served).post(f"{PREFIX}/_dash-update-component", json=body, headers=headers)
    assert answer.status_code == 422 and "page of the dashboard" in answer.json()["error"]["what"]
    assert not [record for record in caplog.records if record.exc_info]

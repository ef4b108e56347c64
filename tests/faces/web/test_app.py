"""The whole web server: every part behind the same door."""

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.errors import SettingsError
from stormpetrel.faces.web.app import create_app, prefix_of
from stormpetrel.faces.web.response_headers import inline_script_hashes
from tests.builders import make_site
from tests.faces.web.sample_site import BROWSER, ELSEWHERE, client_of, door_site, live_of, small_app

PREFIX = "/node/login1/8050"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole server in token mode under a prefix, and a token for it."""
    with make_site(tmp_path_factory.mktemp("whole") / "site", serve={"login": "token", "prefix": PREFIX}) as site:
        live = LiveSite(site)
        live.refresh()
        yield create_app(live), {"Authorization": f"Bearer {site.tokens.add('t', user='kim', scopes=['read'])}"}


def paths(app):
    """Every path of the server, with something in place of its parameters."""
    found = {route.path for route in _routes(app.routes)}
    return sorted(path.replace("{path:path}", "x").replace("{fingerprinted_path:path}", "x") for path in found)


def _routes(routes):
    for route in routes:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        if inner is not None:
            yield from _routes(inner)
        elif hasattr(route, "path"):
            yield route


def test_every_path_but_the_login_and_the_health_needs_a_viewer(whole):
    app, _ = whole
    client = client_of(app)
    open_to_all = {path for path in paths(app) if client.get(path).status_code != 401}
    assert open_to_all == {"/healthz", "/readyz", "/login", "/login.css", "/logout"}
    assert any(path.startswith("/api/v1/") for path in paths(app)) and "/_dash-update-component" in paths(app)


def test_pages_and_answers_load_nothing_from_another_host(whole):
    app, token = whole
    page = client_of(app).get(f"{PREFIX}/", headers=BROWSER | token)
    assert page.status_code == 200
    assert "https://" not in page.text and "http://" not in page.text
    allowed = page.headers["Content-Security-Policy"]
    assert inline_script_hashes(page.text) and all(one in allowed for one in inline_script_hashes(page.text))
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect", "/openapi.json"):
        assert client_of(app).get(path, headers=token).status_code == 404


def test_every_script_of_the_page_is_served_under_the_prefix_and_kept_by_the_browser(whole):
    import re

    app, token = whole
    page = client_of(app).get(f"{PREFIX}/", headers=BROWSER | token).text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources and all(source.startswith(f"{PREFIX}/") for source in sources)
    for source in sources:
        answer = client_of(app).get(source, headers=token)
        assert answer.status_code == 200, source
        if "_dash-component-suites" in source:
            assert "max-age=31536000" in answer.headers["Cache-Control"]


def test_the_api_has_one_form_of_error_for_programs(whole):
    app, token = whole
    answer = client_of(app).get(f"{PREFIX}/api/v1/nothing", headers=BROWSER | token)
    assert answer.status_code == 404 and set(answer.json()["error"]) == {"what", "hint"}


def test_a_server_that_is_still_reading_is_alive_and_not_ready(make):
    live = live_of(make())
    from stormpetrel.faces.web.app import bare_app, protected

    live.refreshed_at = None
    client = client_of(protected(bare_app(live), live.site), peer=ELSEWHERE)
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503


def test_a_server_tells_everybody_how_the_watch_is_and_nothing_else(make):
    from stormpetrel.faces.web.app import bare_app, protected
    from stormpetrel.store.watch_status import WatchStatus, write_status

    live = live_of(make())
    long_ago = dict.fromkeys(("started", "stepped", "stepped_real"), "2026-01-01T00:00:00+00:00")
    write_status(live.site.state, WatchStatus(pid=4711, host="login7", problem="/srv/secret", **long_ago))
    answer = client_of(protected(bare_app(live), live.site), peer=ELSEWHERE).get("/readyz")
    assert answer.status_code == 200 and answer.json()["watch"] == "silent" and answer.json()["watch_heard_s_ago"] > 1e6
    assert set(answer.json()) == {"status", "watch", "watch_heard_s_ago"}


@pytest.mark.parametrize("prefix", ["node", "/a b", "/a/../b?", "//evil.example", '/"><script>'])
def test_a_prefix_that_is_no_path_is_one_sentence(tmp_path, prefix):
    with door_site(tmp_path / "site", serve={"prefix": prefix}) as site, pytest.raises(SettingsError, match="not a path"):
        prefix_of(site)


def test_the_small_app_of_the_tests_stands_behind_the_same_door(make):
    assert [middleware.cls.__name__ for middleware in small_app(make()).user_middleware] == ["Security", "LogUnexpected"]


def test_the_door_is_the_outermost_middleware(whole):
    app, _ = whole
    assert app.user_middleware[0].cls.__name__ == "Security"

import asyncio
import logging

import pytest

from stormpetrel.faces.web.security import LARGEST_BODY
from stormpetrel.watch.host_names import HostNames
from tests.faces.web.sample_site import BROWSER, ELSEWHERE, LOOPBACK, OTHER_PAGE, client_of, small_app

WHO, ECHO = "/api/v1/who", "/api/v1/echo"
JSON = {"Content-Type": "application/json"}
MOZILLA = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}


@pytest.fixture
def app(make):
    return small_app(make())


# --- hosts --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:1234", "[::1]:8050", "LOCALHOST.", "127.1.2.3", "stats.example"])
def test_the_servers_own_names_are_answered(make, host):
    assert client_of(small_app(make(hosts=["stats.example:443"])), host=host).get(WHO).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8050", "10.9.8.7", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_page_whose_name_was_rebound_to_us_gets_nothing(app, host):
    answer = client_of(app, host=host).get(WHO)
    assert answer.status_code == 421 and "serve.hosts" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("headers", [[], [("Host", "")], [("Host", "localhost"), ("Host", "evil.example")]])
def test_a_host_that_is_missing_or_there_twice_is_refused(app, headers):
    sent = []
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": "GET", "path": WHO, "raw_path": WHO.encode(), "query_string": b"", "root_path": ""}
    scope |= {"scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8050), "headers": raw, "http_version": "1.1"}

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400


def test_bound_to_every_address_a_bare_address_is_one_of_ours():
    assert HostNames([], bound_to="0.0.0.0").include("10.9.8.7:8050")
    assert not HostNames([], bound_to="0.0.0.0").include("evil.example")
    assert not HostNames([], bound_to="10.1.1.1").include("10.9.8.7")
    assert HostNames([], bound_to="10.1.1.1").include("10.1.1.1:8050")
    assert HostNames([], bound_to="fd00::1").include("[fd00::1]:8050")


# --- origins ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        OTHER_PAGE,
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine: another user's server
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8050"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:9999"},
        {"Cookie": "a=b"},
        MOZILLA,
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)
def test_no_page_of_another_site_can_act(app, headers):
    answer = client_of(app).post(ECHO, content=b"{}", headers=headers)
    assert answer.status_code == 403 and "another site" in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"} | MOZILLA,
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:8050"} | MOZILLA,
        JSON,
        {},
    ],
)
def test_our_own_pages_and_programs_can_act(app, headers):
    assert client_of(app).post(ECHO, content=b"{}", headers=headers).json() == {"bytes": 2}


def test_a_token_is_never_sent_by_a_browser_itself_so_it_may_come_from_anywhere(make):
    site = make(login="token")
    token = site.tokens.add("a", user="kim", scopes=["read"])
    client = client_of(small_app(site))
    assert client.post(ECHO, content=b"{}", headers=OTHER_PAGE | {"Authorization": f"Bearer {token}"}).status_code == 200
    assert client.post(ECHO, content=b"{}", headers=OTHER_PAGE | {"Authorization": "Bearer sp_guess"}).status_code == 401


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST", "BREW"])
def test_every_method_that_is_not_known_to_be_safe_needs_our_own_origin(app, method):
    assert client_of(app).request(method, WHO, headers=OTHER_PAGE).status_code == 403


def test_no_page_of_another_site_can_look(app):
    client = client_of(app)
    for where in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": where, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert client.get(WHO, headers=headers).status_code == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/page", headers=followed).status_code == 200
    answer = client.get(WHO, headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_behind_a_trusted_proxy_the_name_that_the_browser_used_counts(make):
    app = small_app(make(login="proxy"))
    headers = {"X-Forwarded-User": "kim", "Origin": "http://stats.example"} | JSON
    assert client_of(app).post(ECHO, content=b"{}", headers=headers).status_code == 403
    headers |= {"X-Forwarded-Host": "stats.example"}
    assert client_of(app).post(ECHO, content=b"{}", headers=headers).status_code == 200


def test_who_is_no_trusted_proxy_cannot_say_which_name_the_browser_used(make):
    app = small_app(make(login="proxy", proxies=["10.9.0.0/16"]))
    token_less = {"Origin": "http://stats.example", "X-Forwarded-Host": "stats.example"}
    assert client_of(app).post("/logout", headers=token_less).status_code == 403


# --- sizes --------------------------------------------------------------------------------------------------------------------


def test_a_request_that_says_it_is_too_large_is_not_read(app):
    answer = client_of(app).post(ECHO, content=b"x", headers=JSON | {"Content-Length": str(LARGEST_BODY + 1)})
    assert answer.status_code == 413 and "2 MB" in answer.json()["error"]["what"]


def test_a_request_that_does_not_say_how_large_it_is_is_cut_off(app):
    async def chunks():
        for _ in range(30):
            yield b"x" * 100_000

    assert client_of(app).post(ECHO, content=chunks(), headers=JSON).status_code == 413
    assert client_of(app).post(ECHO, content=b"x" * LARGEST_BODY, headers=JSON).json() == {"bytes": LARGEST_BODY}


def test_a_request_that_never_ends_is_given_up(app, monkeypatch):
    monkeypatch.setattr("stormpetrel.faces.web.security._BODY_WAIT_S", 0.05)

    async def stuck():
        yield b"x"
        await asyncio.Event().wait()

    assert client_of(app).post(ECHO, content=stuck(), headers=JSON).status_code == 408


# --- rates --------------------------------------------------------------------------------------------------------------------


def test_too_many_requests_of_one_viewer_are_refused_and_others_are_not(make):
    client = client_of(small_app(make(login="proxy", requests_per_minute=10)))
    answers = [client.get(WHO, headers={"X-Forwarded-User": "kim"}) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 6
    assert client.get(WHO, headers={"X-Forwarded-User": "lee"}).status_code == 200


def test_requests_of_nobody_are_counted_by_address(make):
    app = small_app(make(login="token", requests_per_minute=10))
    assert [client_of(app).get(WHO).status_code for _ in range(11)] == [401] * 10 + [429]
    assert client_of(app).get("/readyz").status_code == 429
    assert client_of(app, peer=ELSEWHERE).get(WHO).status_code == 401


def test_the_many_addresses_of_loopback_are_counted_as_one(make):
    app = small_app(make(login="token", requests_per_minute=10))
    statuses = [client_of(app, peer=(f"127.0.{number}.1", 1)).get(WHO).status_code for number in range(10)]
    assert statuses == [401] * 10
    assert client_of(app, peer=("::1", 1)).get(WHO).status_code == 429


def test_whether_the_server_is_alive_is_told_whatever_others_send(make):
    app = small_app(make(login="token", requests_per_minute=10))
    assert [client_of(app).get(WHO).status_code for _ in range(11)][-1] == 429
    assert {client_of(app).get("/healthz").status_code for _ in range(30)} == {200}


def forwarded(app, names, *, peer, **headers):
    """The statuses of requests that say they come from elsewhere."""
    return [client_of(app, peer=peer).get(WHO, headers={"X-Forwarded-For": name, **headers}).status_code for name in names]


def test_behind_a_proxy_addresses_are_those_that_it_names(make):
    app = small_app(make(login="token", requests_per_minute=10, proxies=[ELSEWHERE[0]]))
    assert set(forwarded(app, [f"8.8.8.8, 10.0.0.{number}" for number in range(30)], peer=ELSEWHERE)) == {401}
    assert forwarded(app, [f"10.0.0.{number}, 7.7.7.7" for number in range(11)], peer=ELSEWHERE)[-1] == 429
    assert forwarded(app, [f"1.1.1.{number}" for number in range(11)], peer=("10.9.8.6", 1))[-1] == 429


def test_whoever_comes_from_this_machine_is_no_proxy_without_its_secret(make, tmp_path):
    secret = tmp_path / "proxy.secret"
    secret.write_text("s" * 30)
    secret.chmod(0o600)
    app = small_app(make(login="token", requests_per_minute=10, proxies=["127.0.0.1", "::1", "0.0.0.0/0"]))
    names = [f"10.0.0.{number}" for number in range(11)]
    assert forwarded(app, names, peer=LOOPBACK)[-1] == 429
    assert forwarded(app, names, peer=("::1", 1))[-1] == 429
    shared = small_app(make(login="token", requests_per_minute=10, proxy_secret_file=str(secret)))
    assert set(forwarded(shared, names, peer=LOOPBACK, **{"X-Stormpetrel-Proxy": "s" * 30})) == {401}
    assert forwarded(shared, names, peer=LOOPBACK)[-1] == 429


def test_rotating_addresses_do_not_void_the_limit_of_logins(make):
    client = client_of(small_app(make(login="token")))
    headers = BROWSER | {"Content-Type": "application/x-www-form-urlencoded"}
    statuses = [
        client.post("/login", content=b"token=sp_guess", headers=headers | {"X-Forwarded-For": f"10.0.0.{number}"}).status_code
        for number in range(11)
    ]
    assert statuses == [401] * 10 + [429]


# --- websockets, headers, logs ------------------------------------------------------------------------------------------------


def test_websockets_are_refused(app):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": "/_dash-ws-callback", "query_string": b"", "root_path": "", "scheme": "ws"}
    scope |= {
        "headers": [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "subprotocols": [],
    }
    asyncio.run(app(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (WHO, {}, 200),
        ("/nothing", BROWSER, 404),
        (WHO, {"Host": "evil.example"}, 421),
        ("/api/v1/wrong", {}, 500),
        (ECHO, {}, 405),
    ],
)
def test_every_answer_carries_the_protecting_headers(make, path, headers, status):
    app = small_app(make(), raises=RuntimeError("a secret"))
    answer = client_of(app).get(path, headers=headers)
    assert answer.status_code == status
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'self'" and policy["script-src"] == "'self'" and policy["object-src"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'" and policy["form-action"] == "'self'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in answer.headers["Permissions-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Server" not in answer.headers and "Strict-Transport-Security" not in answer.headers


def test_https_is_pinned_where_the_browser_used_it(make):
    app = small_app(make(login="proxy"))
    user = {"X-Forwarded-User": "kim"}
    assert "Strict-Transport-Security" in client_of(app).get(WHO, headers=user | {"X-Forwarded-Proto": "https"}).headers
    assert "Strict-Transport-Security" not in client_of(app).get(WHO, headers=user).headers
    elsewhere = client_of(app, peer=ELSEWHERE).get(WHO, headers={"X-Forwarded-Proto": "https"})
    assert "Strict-Transport-Security" not in elsewhere.headers


def test_the_log_has_neither_query_strings_nor_tokens(make, caplog):
    site = make(login="token")
    token = site.tokens.add("a", user="kim", scopes=["read"])
    client = client_of(small_app(site))
    with caplog.at_level(logging.DEBUG):
        client.get(f"{WHO}?token={token}", headers={"Authorization": f"Bearer {token}"})
        client.post("/login", content=f"token={token}", headers=BROWSER)
        client.get("/page%0aGET%20/forged 200?user=secretname", headers=BROWSER)
    ours = [record for record in caplog.records if record.name.startswith(("stormpetrel", "uvicorn"))]
    lines = [record.getMessage().rsplit(" ", 2)[0] for record in ours]
    assert lines == ["GET /api/v1/who 200", "POST /login 303", "GET /page%0AGET%20/forged%20200 404"]
    assert not any(token in line or "secretname" in line for line in lines)


# --- health, prefix -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["none", "proxy", "token"])
def test_health_is_told_to_everybody_and_tells_nothing_else(make, login):
    client = client_of(small_app(make(login=login)), peer=ELSEWHERE)
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "watch": "never"}


@pytest.mark.parametrize("path", ["/node/login1/8050/api/v1/who", "/api/v1/who"])
def test_a_prefix_works_whether_the_proxy_passes_it_on_or_not(make, path):
    app = small_app(make(prefix="/node/login1/8050/"))
    assert client_of(app).get(path).status_code == 200
    assert client_of(app).get("/node/login1/80501/api/v1/who").status_code == 404
    assert client_of(app).get("/node/login1/8050/api/v1/openapi.json").json()["servers"] == [{"url": "/node/login1/8050"}]
    assert client_of(app).get("/node/login1/8050").status_code == client_of(app).get("/").status_code == 404

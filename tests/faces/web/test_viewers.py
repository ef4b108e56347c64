import asyncio
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from stormpetrel.answers.viewer import Viewer, current_viewer, seen_by
from stormpetrel.errors import AccessError, SettingsError
from stormpetrel.faces.web.login import SESSION_S, Sessions
from stormpetrel.faces.web.viewers import AccessControl
from stormpetrel.store.tokens import TokenStore
from tests.faces.web.sample_site import BROWSER, ELSEWHERE, client_of, small_app

WHO = "/api/v1/who"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


# --- no login -----------------------------------------------------------------------------------------------------------------


def test_without_a_login_loopback_is_the_administrator(make):
    assert client_of(small_app(make())).get(WHO).json() == {
        "user": "",
        "is_admin": True,
        "scopes": ["act", "ingest", "manage", "predict", "read", "write"],
    }


def test_without_a_login_another_machine_gets_nothing(make):
    answer = client_of(small_app(make()), peer=ELSEWHERE).get(WHO)
    assert answer.status_code == 403 and "only this machine" in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-User",
        "X-Real-IP", "Forwarded", "Via", "X-Original-URI", "X-ProxyContextPath", "X-Stormpetrel-Proxy",
    ],
)  # fmt: skip
def test_without_a_login_nothing_that_came_through_a_proxy_is_answered(make, header):
    answer = client_of(small_app(make())).get(WHO, headers={header: "10.1.2.3"})
    assert answer.status_code == 403 and "came through a proxy" in answer.json()["error"]["what"]


# --- behind a proxy -----------------------------------------------------------------------------------------------------------


def test_a_trusted_proxy_names_the_user(make):
    client = client_of(small_app(make(login="proxy", admins=["root"])))
    assert client.get(WHO, headers={"X-Forwarded-User": "kim"}).json()["user"] == "kim"
    assert not client.get(WHO, headers={"X-Forwarded-User": "kim"}).json()["is_admin"]
    assert client.get(WHO, headers={"X-Forwarded-User": "root"}).json()["is_admin"]


def test_another_address_cannot_name_the_user(make):
    answer = client_of(small_app(make(login="proxy")), peer=ELSEWHERE).get(WHO, headers={"X-Forwarded-User": "root"})
    assert answer.status_code == 403 and "is not a trusted proxy" in answer.json()["error"]["what"]


def test_a_network_of_proxies_and_another_header_can_be_named(make):
    app = small_app(make(login="proxy", proxies=["10.9.0.0/16"], user_header="Remote-User"))
    assert client_of(app, peer=ELSEWHERE).get(WHO, headers={"Remote-User": "kim"}).json()["user"] == "kim"
    assert client_of(app).get(WHO, headers={"Remote-User": "kim"}).status_code == 403
    assert client_of(app, peer=("::ffff:10.9.1.1", 1)).get(WHO, headers={"Remote-User": "kim"}).status_code == 200


def test_a_proxy_that_names_nobody_is_a_401_with_a_sentence(make):
    client = client_of(small_app(make(login="proxy")))
    for headers in ({}, {"X-Forwarded-User": ""}):
        answer = client.get(WHO, headers=headers)
        assert answer.status_code == 401 and "X-Forwarded-User is missing" in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    "name", ["kim, root", "kim root", "(null)", "a" * 129, "kim;root", "../root", "kim\x7f", "\xff\xfe", "k:m", "<b>"]
)
def test_a_header_that_is_not_one_plain_name_is_refused(make, name):
    answer = client_of(small_app(make(login="proxy"))).get(WHO, headers=[("X-Forwarded-User", name.encode("latin-1"))])
    assert answer.status_code == 400 and "one user name" in answer.json()["error"]["what"]


def test_a_user_header_that_is_there_twice_is_refused(make):
    answer = client_of(small_app(make(login="proxy"))).get(
        WHO, headers=[("X-Forwarded-User", "kim"), ("X-Forwarded-User", "root")]
    )
    assert answer.status_code == 400 and "2 times" in answer.json()["error"]["what"]


def test_with_a_secret_the_address_of_the_proxy_is_not_enough(make, tmp_path):
    secret = tmp_path / "proxy.secret"
    secret.write_text("s3cret-s3cret-s3cret-s3cret\n")
    secret.chmod(0o600)
    client = client_of(small_app(make(login="proxy", proxy_secret_file=str(secret))))
    user = {"X-Forwarded-User": "root"}
    assert client.get(WHO, headers=user).status_code == 403
    assert client.get(WHO, headers=user | {"X-Stormpetrel-Proxy": "guess"}).status_code == 403
    assert client.get(WHO, headers=user | {"X-Stormpetrel-Proxy": "s3cret-s3cret-s3cret-s3cret"}).json()["user"] == "root"


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [("s" * 30, 0o644, "read by others"), ("short", 0o600, "fewer than"), (None, 0o600, "cannot be read")],
)
def test_a_secret_that_cannot_be_used_is_one_sentence(make, tmp_path, content, mode, sentence):
    secret = tmp_path / "proxy.secret"
    if content is not None:
        secret.write_text(content)
        secret.chmod(mode)
    with pytest.raises(SettingsError, match=sentence):
        small_app(make(login="proxy", proxy_secret_file=str(secret)))


def test_a_proxy_that_is_no_address_is_one_sentence(make):
    with pytest.raises(SettingsError, match="not an address or a network"):
        small_app(make(login="proxy", proxies=["proxy.example"]))


# --- tokens -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["none", "proxy", "token"])
def test_a_token_is_limited_to_its_user_and_scopes_in_every_mode(make, login):
    site = make(login=login, admins=["root"])
    app = small_app(site)
    token = site.tokens.add("a", user="kim", scopes=["read"])
    seen = client_of(app).get(WHO, headers=bearer(token)).json()
    assert seen == {"user": "kim", "is_admin": False, "scopes": ["read"]}
    root = site.tokens.add("b", user="root", scopes=["read", "manage"])
    assert client_of(app).get(WHO, headers=bearer(root)).json()["is_admin"]


@pytest.mark.parametrize("login", ["none", "token"])
@pytest.mark.parametrize("token", ["sp_guess", "", "eyJhbGciOi", "sp_" + "x" * 500, "ümläut"])
def test_a_wrong_token_is_never_answered_as_if_there_were_none(make, login, token):
    answer = client_of(small_app(make(login=login))).get(WHO, headers=[("Authorization", f"Bearer {token}".encode())])
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_of_the_proxys_own_login_is_left_to_the_proxy(make):
    headers = {"X-Forwarded-User": "kim", "Authorization": "Bearer eyJhbGciOi"}
    assert client_of(small_app(make(login="proxy"))).get(WHO, headers=headers).json()["user"] == "kim"


def test_a_program_with_a_token_need_not_come_through_the_proxy(make):
    site = make(login="proxy", hosts=["node1"])
    token = site.tokens.add("a", user="kim", scopes=["read"])
    client = client_of(small_app(site), peer=ELSEWHERE, host="node1")
    assert client.get(WHO, headers=bearer(token) | {"X-Forwarded-User": "root"}).json()["user"] == "kim"


def test_two_authorization_headers_are_refused(make):
    site = make(login="token")
    token = site.tokens.add("a", user="kim", scopes=["read"])
    answer = client_of(small_app(site)).get(WHO, headers=[("Authorization", f"Bearer {token}"), ("Authorization", "Bearer sp_x")])
    assert answer.status_code == 400


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def request_with(site, **headers):
    from stormpetrel.faces.web.incoming import TrustedProxies

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    return TrustedProxies.of(site.settings.serve, site.folder).incoming(scope)


def admit(keeper, request):
    return asyncio.run(keeper.admit(request))


def test_a_revoked_token_is_refused_within_a_second(make):
    site, clock = make(login="token"), Clock()
    keeper = AccessControl(site, Sessions(), clock=clock)
    token = site.tokens.add("a", user="kim", scopes=["read"])
    request = request_with(site, Authorization=f"Bearer {token}")
    assert admit(keeper, request).viewer.user == "kim"
    site.tokens.revoke("a")
    clock.now += 1.0
    with pytest.raises(AccessError, match="not valid"):
        admit(keeper, request)


def test_a_token_past_its_time_is_refused_even_if_it_was_just_used(make):
    from datetime import UTC, datetime, timedelta

    site, now = make(login="token"), [datetime(2026, 1, 1, tzinfo=UTC)]
    site.tokens = TokenStore(site.state, clock=lambda: now[0])
    keeper = AccessControl(site, Sessions())
    request = request_with(site, Authorization=f"Bearer {site.tokens.add('a', user='kim', scopes=['read'], days=1)}")
    assert admit(keeper, request).viewer.user == "kim"
    now[0] += timedelta(days=1)
    with pytest.raises(AccessError, match="past its time"):
        admit(keeper, request)


# --- sessions -----------------------------------------------------------------------------------------------------------------


def test_a_session_ends_with_its_time_and_with_its_token(make):
    site, clock = make(login="token"), Clock()
    sessions = Sessions(clock=clock)
    keeper = AccessControl(site, sessions, clock=clock)
    token = site.tokens.add("a", user="kim", scopes=["read"])
    session = sessions.begin(site.tokens.find(token).digest)
    request = request_with(site, Cookie=f"{keeper.cookie}={session}")
    known = admit(keeper, request)
    assert (known.viewer.user, known.by) == ("kim", "session")
    clock.now += SESSION_S
    with pytest.raises(AccessError, match="not logged in"):
        admit(keeper, request)
    request = request_with(site, Cookie=f"{keeper.cookie}={sessions.begin(site.tokens.find(token).digest)}")
    assert admit(keeper, request).viewer.user == "kim"
    site.tokens.revoke("a")
    clock.now += 1.0
    with pytest.raises(AccessError, match="not valid"):
        admit(keeper, request)


def test_a_made_up_session_is_nobody(make):
    site = make(login="token")
    keeper = AccessControl(site, Sessions())
    with pytest.raises(AccessError, match="not logged in"):
        admit(keeper, request_with(site, Cookie=f"{keeper.cookie}=made-up"))


def test_sessions_do_not_fill_the_memory():
    sessions = Sessions(most=3)
    first, *others = [sessions.begin(f"{number:064d}") for number in range(4)]
    assert sessions.token_of(first) is None
    assert all(sessions.token_of(session) for session in others)


def test_one_token_cannot_log_out_the_others():
    sessions = Sessions(most=100, most_of_token=5)
    other = sessions.begin("b" * 64)
    own = [sessions.begin("a" * 64) for _ in range(200)]
    assert sessions.token_of(other) == "b" * 64
    assert [session for session in own if sessions.token_of(session)] == own[-5:]


# --- names --------------------------------------------------------------------------------------------------------------------


def test_on_a_site_without_names_a_viewer_goes_by_the_pseudonym(make):
    site = make(store={"pseudonymise_users": True}, login="proxy", admins=["root"])
    app = small_app(site)
    hidden = site.privacy.pseudonym("kim")
    assert client_of(app).get(WHO, headers={"X-Forwarded-User": "kim"}).json() == {
        "user": hidden,
        "is_admin": False,
        "scopes": ["act", "manage", "predict", "read", "write"],
    }
    assert client_of(app).get(WHO, headers={"X-Forwarded-User": "root"}).json()["is_admin"]
    token = site.tokens.add("a", user=site.user_in_tables("root"), scopes=["read"])
    assert client_of(app).get(WHO, headers=bearer(token)).json()["is_admin"]
    jobs = pl.DataFrame({"user": [hidden, "kim", None]})
    assert jobs.filter(Viewer(hidden, is_admin=False).sees())["user"].to_list() == [hidden]


def test_a_user_sees_the_own_rows_and_an_administrator_all():
    jobs = pl.DataFrame({"user": ["kim", "lee", None, "kim2"]})
    assert jobs.filter(Viewer("kim", is_admin=False).sees())["user"].to_list() == ["kim"]
    assert jobs.filter(Viewer("", is_admin=False).sees()).height == 0
    assert jobs.filter(Viewer("root", is_admin=True).sees()).height == 4


# --- the current viewer -------------------------------------------------------------------------------------------------------


def test_outside_of_a_request_nobody_is_asking():
    with pytest.raises(AccessError, match="no user"):
        current_viewer()
    with seen_by(Viewer("kim", is_admin=False)):
        assert current_viewer().user == "kim"
    with pytest.raises(AccessError):
        current_viewer()


def test_requests_at_the_same_time_keep_their_viewers_apart(make):
    app = small_app(make(login="proxy", requests_per_minute=10_000))
    names = [f"user{number % 7}" for number in range(60)]

    def ask(name):
        path = WHO if int(name[-1]) % 2 else "/page"
        return client_of(app).get(path, headers={"X-Forwarded-User": name}).json()["user"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, names)) == names


def test_in_token_mode_a_browser_is_led_to_the_login_and_a_program_is_told(make):
    client = client_of(small_app(make(login="token")))
    led = client.get("/page?user=kim&x=1", headers=BROWSER)
    assert led.status_code == 303 and led.headers["Location"] == "/login?next=/page%3Fuser%3Dkim%26x%3D1"
    assert client.get(WHO).status_code == 401
    assert client.get(WHO, headers=BROWSER).status_code == 401

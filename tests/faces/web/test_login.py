import pytest

from tests.faces.web.sample_site import BROWSER, ELSEWHERE, OTHER_PAGE, client_of, small_app

FORM = BROWSER | {"Content-Type": "application/x-www-form-urlencoded"}
HTTPS = {"X-Forwarded-Proto": "https"}


def set_up(make, scopes=("read",), **serve):
    site = make(login="token", **serve)
    token = site.tokens.add("kim's", user="kim", scopes=scopes)
    return site, token, small_app(site)


def log_in(client, token, follow="/page", **headers):
    return client.post("/login", data={"token": token, "next": follow}, headers=FORM | headers)


def test_a_token_opens_a_session_and_logging_out_ends_it(make):
    site, token, app = set_up(make)
    client = client_of(app)
    answer = log_in(client, f" {token}\n")
    assert answer.status_code == 303 and answer.headers["Location"] == "/page"
    assert client.get("/page", headers=BROWSER).json()["user"] == "kim"
    assert [(entry.user, entry.action) for entry in site.audit.recent()] == [("kim", "logged in")]
    (session,) = client.cookies.jar
    assert client.post("/logout", headers=BROWSER).headers["Location"] == "/login"
    assert not list(client.cookies.jar)
    kept = {"Cookie": f"{session.name}={session.value}"}
    assert client.get("/api/v1/who", headers=kept).status_code == 401


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(make):
    _, token, app = set_up(make, proxies=[ELSEWHERE[0]])
    plain = log_in(client_of(app), token).headers["Set-Cookie"].lower()
    assert "httponly" in plain and "samesite=strict" in plain and "path=/;" in plain and "secure" not in plain
    assert token not in plain
    assert "secure" in log_in(client_of(app, peer=ELSEWHERE), token, **HTTPS).headers["Set-Cookie"].lower()


def test_under_a_prefix_the_cookie_and_the_links_stay_there(make):
    _, token, app = set_up(make, prefix="/node/login1/8050")
    client = client_of(app)
    led = client.get("/node/login1/8050/page", headers=BROWSER)
    assert led.headers["Location"] == "/node/login1/8050/login?next=/page"
    page = client.get(led.headers["Location"], headers=BROWSER).text
    assert 'action="/node/login1/8050/login"' in page and 'href="/node/login1/8050/login.css"' in page
    answer = log_in(client, token)
    assert answer.headers["Location"] == "/node/login1/8050/page"
    assert "path=/node/login1/8050;" in answer.headers["Set-Cookie"].lower()


def test_a_new_login_ends_the_session_before(make):
    _, token, app = set_up(make)
    client = client_of(app)
    log_in(client, token)
    (first,) = client.cookies.jar
    kept = {"Cookie": f"{first.name}={first.value}"}
    log_in(client, token)
    client.cookies.clear()
    assert client.get("/api/v1/who", headers=kept).status_code == 401


@pytest.mark.parametrize(
    "follow",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil",
        "javascript:alert(1)",
        "/\t/evil.example",
        "",
        "page",
        "/" + "x" * 3000,
    ],
)
def test_the_login_leads_to_our_own_pages_only(make, follow):
    _, token, app = set_up(make)
    assert log_in(client_of(app), token, follow).headers["Location"] == "/"
    page = client_of(app).get("/login", params={"next": follow}, headers=BROWSER).text
    assert 'name="next" type="hidden" value="/"' in page and "evil" not in page


def test_a_wrong_token_is_told_and_opens_nothing(make):
    _, _, app = set_up(make)
    answer = log_in(client_of(app), "sp_guess")
    assert answer.status_code == 401 and "not valid" in answer.text and "Set-Cookie" not in answer.headers
    assert "sp_guess" not in answer.text


def test_a_token_that_may_not_read_opens_no_session(make):
    _, token, app = set_up(make, scopes=("predict",))
    answer = log_in(client_of(app), token)
    assert answer.status_code == 403 and "Set-Cookie" not in answer.headers


def test_attempts_to_log_in_are_limited_more_tightly_than_anything_else(make):
    _, token, app = set_up(make)
    client = client_of(app)
    assert [log_in(client, "sp_guess").status_code for _ in range(11)] == [401] * 10 + [429]
    late = log_in(client, token)
    assert late.status_code == 429 and int(late.headers["Retry-After"]) >= 1
    assert client.get("/login", headers=BROWSER).status_code == 200


def test_a_loop_of_logins_is_one_row_of_the_audit_trail(make):
    site, token, app = set_up(make)
    other = site.tokens.add("lee's", user="lee", scopes=["read"])
    for _ in range(4):
        assert log_in(client_of(app), token).status_code == log_in(client_of(app), other).status_code == 303
    counted = [(entry.about["token"], entry.about["times"]) for entry in site.audit.recent()]
    assert sorted(counted) == [("kim's", 4), ("lee's", 4)]


def test_no_other_site_can_log_somebody_in_or_out(make):
    _, token, app = set_up(make)
    client = client_of(app)
    assert client.post("/login", data={"token": token}, headers=OTHER_PAGE).status_code == 403
    log_in(client, token)
    assert client.post("/logout", headers=OTHER_PAGE).status_code == 403
    assert client.get("/logout", headers=BROWSER).status_code == 405
    assert client.get("/page", headers=BROWSER).json()["user"] == "kim"


def test_the_page_shows_what_it_is_given_as_text(make, tmp_path):
    _, _, app = set_up(make)
    page = client_of(app).get("/login", params={"next": '/"><script>alert(1)</script>'}, headers=BROWSER).text
    assert "<script" not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("login", ["none", "proxy"])
def test_there_is_no_login_page_where_tokens_are_not_the_login(make, login):
    assert client_of(small_app(make(login=login))).get("/login", headers=BROWSER).status_code == 404


def test_a_form_that_is_no_form_is_a_wrong_token(make):
    _, _, app = set_up(make)
    for body in (b"\xff\xfe", b"token=" + b"x" * 20_000, b"", b"token=a&token=b"):
        assert client_of(app, peer=("10.0.0.1", 1)).post("/login", content=body, headers=FORM).status_code == 401

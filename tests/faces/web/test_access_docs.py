"""What docs/access.md says of proxies works: with a real nginx where there is one, and with a stand-in that reads its file."""

import base64
import contextlib
import re
import shlex
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from stormpetrel.config import parse_settings
from tests.faces.web.sample_site import door_site, running, small_app, wait_until
from tests.parts import find_program

PAGE = (Path(__file__).parents[3] / "docs" / "access.md").read_text("utf-8")
SECRET = "s3cret-s3cret-s3cret-s3cret"


def block(language, heading):
    return re.search(rf"^### {heading}\n.*?^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]


def locations(config):
    """path -> the headers that the nginx file sets there."""
    found = {}
    for path, body in re.findall(r"location (\S+) \{(.*?)^    \}", config, re.DOTALL | re.MULTILINE):
        found[path] = dict(shlex.split(line)[1:] for line in re.findall(r"proxy_set_header.*(?=;)", body))
    return found


@pytest.fixture
def backend(tmp_path):
    """The server with the settings of the page, and its secret."""
    serve = parse_settings(block("toml", "nginx")).serve.model_dump()
    with door_site(tmp_path / "site", serve=serve) as site:
        (site.folder / "proxy.secret").write_text(SECRET)
        (site.folder / "proxy.secret").chmod(0o600)
        with running(small_app(site)) as address:
            yield site, address


@contextlib.contextmanager
def stand_in(config, address, folder):
    """As much of nginx as the file needs: the longest location that fits, basic authentication, headers replaced or removed."""
    places = locations(config)
    logs_in = {path for path in places if "auth_basic " in config.partition(f"location {path} {{")[2].partition("    }")[0]}

    async def proxy(scope, receive, send):
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        place = max((path for path in places if scope["path"].startswith(path)), key=len)
        user = _basic_user(request.headers.get("authorization", ""), (folder / "htpasswd").read_text())
        if place in logs_in and not user:
            await Response(status_code=401)(scope, receive, send)
            return
        values = {
            "$http_host": request.headers["host"],
            "$remote_addr": scope["client"][0],
            "$scheme": "http",
            "$remote_user": user,
        }
        headers = {name: value for name, value in request.headers.items() if name != "connection"}
        for name, value in places[place].items():
            headers.pop(name.lower(), None)
            if values.get(value, value):
                headers[name] = values.get(value, value)
        async with httpx.AsyncClient() as client:
            answer = await client.request(scope["method"], address + scope["path"], headers=headers, content=await request.body())
        await Response(answer.content, answer.status_code, dict(answer.headers))(scope, receive, send)

    with running(proxy) as front:
        yield front


def _basic_user(header, passwords):
    kind, _, coded = header.partition(" ")
    user, _, password = base64.b64decode(coded).decode().partition(":") if kind == "Basic" else ("", "", "")
    return user if user and f"{user}:{{PLAIN}}{password}" in passwords.splitlines() else ""


@contextlib.contextmanager
def nginx(config, address, folder):
    """A real one, without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = re.sub(r"^\s*ssl_.*\n", "", config, flags=re.MULTILINE).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    config = config.replace("http://127.0.0.1:8050", address).replace("/etc/nginx/stormpetrel.htpasswd", str(folder / "htpasswd"))
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"pid {folder}/pid; events {{}} http {{ {places} access_log off; {config} }}")
    process = subprocess.Popen(
        ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    )

    def is_up():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.parametrize("proxy", [stand_in, *([nginx] if find_program("nginx") else [])])
def test_behind_the_proxy_of_the_page_people_are_who_they_logged_in_as(backend, tmp_path, proxy):
    site, address = backend
    token = site.tokens.add("program", user="lee", scopes=["read"])
    (tmp_path / "htpasswd").write_text("kim:{PLAIN}sesame\nroot:{PLAIN}open\n")
    claim = {"X-Forwarded-User": "root", "X-Stormpetrel-Proxy": "guess"}
    with proxy(block("nginx", "nginx").replace("what is in proxy.secret", SECRET), address, tmp_path) as front:

        def ask(path, auth=None, **headers):
            return httpx.get(front + path, auth=auth, headers={"Host": "stats.example.org"} | headers)

        assert ask("/page", ("kim", "sesame")).json()["user"] == "kim"
        assert ask("/page", ("root", "open")).json()["is_admin"]
        assert ask("/page", ("kim", "sesame"), **claim).json()["user"] == "kim"
        assert ask("/page", ("kim", "wrong"), **claim).status_code == 401
        assert ask("/page", **claim).status_code == 401
        assert ask("/api/v1/who", **claim).status_code == 401
        assert ask("/api/v1/who", Authorization=f"Bearer {token}", **claim).json()["user"] == "lee"
    direct = httpx.get(f"{address}/page", headers={"Host": "stats.example.org"} | claim)
    assert direct.status_code == 403


@pytest.mark.parametrize("heading", ["nginx", "Open OnDemand"])
def test_the_settings_on_the_page_are_valid_and_safe(heading):
    serve = parse_settings(block("toml", heading)).serve
    assert serve.login == "proxy" and serve.proxy_secret_file and serve.hosts


def test_every_snippet_replaces_the_user_header_and_adds_the_secret():
    for headers in locations(block("nginx", "nginx")).values():
        assert {"Host", "X-Forwarded-User", "X-Forwarded-Proto", "X-Stormpetrel-Proxy"} <= set(headers)
    apache = block("apache", "Apache")
    assert "RequestHeader set   X-Forwarded-User" in apache and "X-Stormpetrel-Proxy" in apache
    assert "X-Stormpetrel-Proxy" in block("yaml", "Open OnDemand")

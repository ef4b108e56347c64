"""The server as a process: how it starts, what it says, how it stops."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import httpx
import pytest

from stormpetrel.config import ServeSection
from stormpetrel.errors import MissingExtraError, SettingsError, UsageError
from stormpetrel.faces.web import serving
from stormpetrel.faces.web.listening import ListenAddress
from tests.builders import make_site
from tests.faces.web.sample_site import small_app, wait_until

SERVE = textwrap.dedent("""
    import sys
    from pathlib import Path
    from stormpetrel.faces.web.serving import serve
    from stormpetrel.store.site import open_site

    with open_site(Path(sys.argv[1])) as site:
        serve(site, address="127.0.0.1:0", tell=lambda line: print(line, flush=True))
    print("cleaned up", flush=True)
""")


@pytest.mark.parametrize("address", ["0.0.0.0:8050", "[::]:8050", "10.1.2.3:8050", "login1.example:8050"])
def test_without_a_login_only_loopback_may_be_listened_at(make, monkeypatch, address):
    monkeypatch.setattr(ListenAddress, "bind", lambda self: pytest.fail(f"listened at {self}"))
    with pytest.raises(SettingsError, match=r"Without a login .* serve\.login"):
        serving.serve(make(), address=address)
    serving.refuse_open_door(ListenAddress.parse(address), ServeSection(login="token"))
    serving.refuse_open_door(ListenAddress.parse("127.0.0.1:8050"), ServeSection())


def test_a_port_that_is_taken_is_told_before_anything_is_read(make):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UsageError, match="is taken"):
        serving.serve(make(), address=f"127.0.0.1:{other.getsockname()[1]}")


def test_without_the_extra_the_command_to_install_it_is_told(make, monkeypatch):
    monkeypatch.setattr(serving, "find_spec", lambda name: None if name == "dash" else object())
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'stormpetrel[dashboard]'")):
        serving.serve(make())


def lines(anyone_poses=False, address="127.0.0.1:8050", **serve):
    where = ListenAddress.parse(address)
    return serving.opening_lines("http://x/", where, ServeSection(**serve), anyone_poses=anyone_poses)


def test_the_first_lines_say_loudly_who_else_could_look_in():
    assert "EVERY USER OF THIS MACHINE" in lines()[1]
    assert "EVERY USER OF THIS MACHINE" in lines(login="proxy", anyone_poses=True)[1]
    assert len(lines(login="proxy")) == len(lines(login="token")) == 1
    assert "unencrypted" in lines(login="token", address="10.1.2.3:8050")[1]


def test_a_local_proxy_is_known_to_be_one_that_anybody_can_pose_as(make, tmp_path):
    from stormpetrel.faces.web.incoming import TrustedProxies

    def poses(**serve):
        site = make(login="proxy", **serve)
        return TrustedProxies.of(site.settings.serve, site.folder).any_local_user_is_one

    secret = tmp_path / "secret"
    secret.write_text("s" * 30)
    secret.chmod(0o600)
    assert poses() and poses(proxies=["127.0.0.0/8"]) and poses(proxies=["::/0"])
    assert not poses(proxies=["10.1.2.3"]) and not poses(proxy_secret_file=str(secret))


def test_a_real_server_shows_the_site_logs_no_queries_and_stops_when_told(tmp_path):
    with make_site(tmp_path / "site"):
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path / "site")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        first = process.stdout.readline()
        link = re.search(r"http://127\.0\.0\.1:\d+/", first)
        assert link, first + process.stderr.read()
        warning = process.stdout.readline()
        wait_until(lambda: answers(f"{link[0]}healthz"))
        page = httpx.get(f"{link[0]}?user=secretname", headers={"Accept": "text/html"})
        assert (
            page.status_code == 200 and "Server" not in page.headers and "script-src" in page.headers["Content-Security-Policy"]
        )
        wait_until(lambda: httpx.get(f"{link[0]}readyz").status_code == 200)
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert "EVERY USER OF THIS MACHINE" in warning
    assert out == "cleaned up\n" and process.returncode == 0
    assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO GET / 200 \d+ ms$", log, re.MULTILINE), log
    assert "secretname" not in log and "Traceback" not in log


def answers(link):
    try:
        return httpx.get(link).status_code == 200
    except httpx.TransportError:
        return False


def asked_while_running(app, path, **headers):
    """What a server that runs as `serve` runs it answers, before Ctrl-C stops it."""
    listener = ListenAddress("127.0.0.1", 0).bind()
    link = f"http://127.0.0.1:{listener.getsockname()[1]}"
    found = []

    def ask_and_stop():
        wait_until(lambda: answers(f"{link}/healthz"))
        found.append(httpx.get(link + path, headers=headers))
        os.kill(os.getpid(), signal.SIGINT)

    asker = threading.Thread(target=ask_and_stop)
    serving.run_server(app, [listener], when_up=asker.start)
    asker.join(timeout=20)
    return found[0]


def test_the_log_of_the_server_goes_to_stderr_and_ctrl_c_is_no_failure(make, capsys):
    assert asked_while_running(small_app(make()), "/page?secret=1").status_code == 200
    log = capsys.readouterr().err
    assert "GET /page 200" in log and "secret" not in log


def test_the_server_goes_by_the_real_address_of_its_peer(make):
    app = small_app(make(login="proxy", proxies=["10.1.2.3"]))
    answer = asked_while_running(app, "/page", **{"X-Forwarded-For": "10.1.2.3", "X-Forwarded-User": "root"})
    assert answer.status_code == 403

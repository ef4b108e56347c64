"""The Unix socket for users of the machine: the kernel says who connects, and everybody sees the own jobs only."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import stormpetrel_client
import uvicorn

from stormpetrel.errors import SettingsError, UsageError
from stormpetrel.faces.web.listening import UserSocket
from stormpetrel.faces.web.serving import server_config
from tests.builders import make_site
from tests.faces.web.sample_site import api_app, running, small_app, wait_until
from tests.parts import require

PYTHON = "/usr/bin/python3"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user can be posed as by root only")


@contextmanager
def served(app: object, path: Path) -> Iterator[None]:
    with UserSocket(path).listening() as listener:
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=20)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user of the machine can enter, with a short path."""
    made = Path("/tmp") / f"petrel-{os.getpid()}-{tmp_path.name[-12:]}"
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["none", "token", "proxy"])
def path(request: pytest.FixtureRequest, tmp_path: Path, folder: Path) -> Iterator[Path]:
    serve = {"login": request.param, "admins": ["games"]}
    with make_site(tmp_path / "site", serve=serve) as site, served(small_app(site), folder / "api.sock"):
        yield folder / "api.sock"


def who(path: Path, **headers: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), headers=headers) as client:
        return client.get("http://localhost/api/v1/who")


def who_as(name: str, path: Path) -> str:
    """What the service says to another user of the machine, who cannot choose what the kernel says of him."""
    code = (
        "import os,socket,sys; os.setuid(int(sys.argv[2])); s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(b'GET /api/v1/who HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nX-Forwarded-User: root\\r\\n\\r\\n'); "
        "print(s.makefile('rb').read().decode())"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(path), str(pwd.getpwnam(name).pw_uid)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_owner_of_the_site_is_its_administrator(path: Path) -> None:
    answer = who(path)
    assert answer.status_code == 200 and answer.json()["is_admin"]


@as_root
def test_another_user_is_who_the_kernel_says_and_sees_the_own_only(path: Path) -> None:
    assert '"user":"nobody","is_admin":false' in who_as("nobody", path)
    assert '"user":"games","is_admin":true' in who_as("games", path)


def test_a_token_narrows_here_too_and_a_wrong_one_is_refused(path: Path) -> None:
    assert who(path, Authorization="Bearer sp_wrong").status_code == 401


@as_root
def test_a_user_makes_lists_and_revokes_tokens_that_work_over_http_and_mint_no_others(tmp_path: Path, folder: Path) -> None:
    require(PYTHON, install="python3")  # one that everybody may run, and the client where everybody may read it
    shutil.copytree(Path(stormpetrel_client.__file__).parent, folder / "stormpetrel_client", ignore=lambda *_: ["__pycache__"])
    with (
        make_site(tmp_path / "site", serve={"login": "token"}) as site,
        served(api_app(site), folder / "api.sock"),
        running(api_app(site)) as url,
    ):

        def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
            environment = {"PYTHONPATH": str(folder), "STORMPETREL_SERVICE": f"unix://{folder}/api.sock", "HOME": "/nonexistent"}
            user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            command = [*user, PYTHON, "-m", "stormpetrel_client", *words]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment, cwd="/")

        made = as_nobody("tokens", "create", "notebook", "--scope", "read", "--scope", "write", "--days", "3")
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert made.returncode == 0 and site.tokens.find(made.stdout.strip()).user == "nobody"
        assert [token["name"] for token in httpx.get(f"{url}/api/v1/tokens", headers=headers).json()["tokens"]] == ["notebook"]
        refused = httpx.post(f"{url}/api/v1/tokens", headers=headers, json={"name": "another"})
        assert (refused.status_code, "cannot make tokens" in refused.text) == (403, True)
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{folder}/api.sock"), headers=headers) as client:
            assert client.post("http://localhost/api/v1/tokens", json={"name": "another"}).status_code == 403
        assert "notebook  read, write  20" in as_nobody("tokens", "list").stdout
        assert as_nobody("tokens", "revoke", "notebook").returncode == 0
        wait_until(lambda: httpx.get(f"{url}/api/v1/tokens", headers=headers).status_code == 401)
        assert "You have no tokens" in as_nobody("tokens", "list").stdout
        assert "There is no token 'notebook'" in as_nobody("tokens", "revoke", "notebook").stderr
        assert [(entry.user, entry.action) for entry in reversed(site.audit.recent())] == [
            ("nobody", "own token created"), ("nobody", "own token revoked"),
        ]  # fmt: skip


def test_everybody_may_connect_and_nothing_is_left_behind(tmp_path: Path, folder: Path) -> None:
    with UserSocket(folder / "a.sock").listening():
        assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o666
    assert list(folder.iterdir()) == []


def test_a_socket_that_a_killed_server_left_is_replaced_and_a_living_one_is_not(folder: Path) -> None:
    path = folder / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with UserSocket(path).listening(), pytest.raises(UsageError, match="Another"), UserSocket(path).listening():
        pass


def test_a_place_where_others_could_put_theirs_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(SettingsError, match="others can write"), UserSocket(folder / "a.sock").listening():
        pass
    folder.chmod(0o755)
    (folder / "a.sock").write_text("precious")
    with pytest.raises(SettingsError, match="no socket"), UserSocket(folder / "a.sock").listening():
        pass
    assert (folder / "a.sock").read_text() == "precious"


@pytest.mark.parametrize("text", ["api.sock", "/" + "x" * 200])
def test_a_path_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="full path"), UserSocket(Path(text)).listening():
        pass


def test_a_folder_that_is_not_there_says_what_to_do(folder: Path) -> None:
    with pytest.raises(SettingsError, match="RuntimeDirectory"), UserSocket(folder / "none/a.sock").listening():
        pass

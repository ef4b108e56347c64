"""Light client and service one version apart: an earlier client before today's service, today's client before an earlier one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest
import stormpetrel_client

from tests.faces.api.sample_site import World
from tests.faces.web.test_user_socket import served
from tests.parts.submit_service import socket_folder

RECORDINGS = Path(__file__).parents[2] / "recordings"
EARLIER = RECORDINGS / "client/stormpetrel_client-before-tokens.tar.gz"  # as it was before tokens, own page and digest
ANSWERS = json.loads((RECORDINGS / "api/answers-0.1.0.json").read_text())["answers"]
SCRIPT = "#!/bin/bash\n#SBATCH --time=0:20:00 --mem=2G\n#SBATCH hetjob\n#SBATCH -n 2\nsrun fit\n"


def run(client: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(client), "STORMPETREL_SERVICE": f"unix://{folder}/api.sock"}
    environment.pop("STORMPETREL_SITE", None)
    command = [sys.executable, "-m", "stormpetrel_client", *words]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def service(world: World) -> Iterator[Path]:
    """Today's service at a socket, with the folder of the socket."""
    with socket_folder("apart") as folder, served(world.app, folder / "api.sock"):
        (folder / "job.sh").write_text(SCRIPT)
        yield folder


@pytest.fixture(scope="module")
def earlier_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(EARLIER) as archive:
        archive.extractall(folder, filter="data")
    return folder


CASES = [
    (("check", "job.sh"), "of such jobs fail"),
    (("check", "--", "-t", "5", "-n1", ":", "-n2", "job.sh"), "of such jobs fail"),
    (("jobs", "list"), "submitted"),
    (("waste",), "core-hours lost"),
    (("alarms",), ""),
]


@pytest.mark.parametrize(("words", "said"), CASES)
def test_an_earlier_client_understands_todays_service(
    service: Path, earlier_client: Path, words: tuple[str, ...], said: str
) -> None:
    done = run(earlier_client, service, *words)
    assert done.returncode == 0 and said in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *CASES,
        (("top", "--once"), "Jobs at risk"),
        (("alarms", "list"), ""),
        (("tokens", "list"), "You have no tokens"),
        (("me", "--weeks", "52"), "Failures"),
        (("digest",), "no digests"),
    ],
)
def test_todays_client_understands_todays_service(service: Path, words: tuple[str, ...], said: str) -> None:
    done = run(Path(stormpetrel_client.__file__).parents[1], service, *words)
    assert done.returncode == 0 and said in done.stdout, done.stderr


class EarlierService(BaseHTTPRequestHandler):
    """Says what a service of an earlier version said, and of what that did not know what it said of it."""

    def answer(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/v1")
        known = {
            "/find": {"items": [{"ref": "a.1"}]},
            "/jobs": {"items": [{"job": "7"}]},
            "/alarms": {"incidents": []},
            **ANSWERS,
        }
        error = {"error": {"what": "There is nothing at this address.", "hint": "Look at /api/v1/docs."}}
        body = json.dumps(known.get(path, error)).encode()
        self.send_response(200 if path in known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names of the library

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def earlier_service() -> Iterator[Path]:
    with socket_folder("earlier") as folder:
        (folder / "job.sh").write_text(SCRIPT)
        with ThreadingUnixStreamServer(str(folder / "api.sock"), EarlierService) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield folder
            server.shutdown()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "job.sh"), "Advice 1: "),
        (("why", "7"), "Job "),
        (("waste",), "core-hours lost"),
        (("jobs", "list"), "submitted"),
    ],
)
def test_todays_client_understands_an_earlier_service(earlier_service: Path, words: tuple[str, ...], said: str) -> None:
    done = run(Path(stormpetrel_client.__file__).parents[1], earlier_service, *words)
    assert done.returncode == 0 and said in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("words", [("me",), ("top", "--once"), ("tokens", "list"), ("tokens", "create", "a"), ("digest", "on")])
def test_what_an_earlier_service_does_not_know_is_one_sentence(earlier_service: Path, words: tuple[str, ...]) -> None:
    done = run(Path(stormpetrel_client.__file__).parents[1], earlier_service, *words)
    assert done.returncode == 3 and "The service is older than this program" in done.stderr and "Traceback" not in done.stderr

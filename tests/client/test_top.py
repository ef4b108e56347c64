"""`stormpetrel top` of the light client on a real terminal, before a service that goes away and comes back."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import stormpetrel_client

from tests.client.test_page import ENDED, INCIDENT, LOOK, RISKY
from tests.parts import wait_until
from tests.parts.submit_service import socket_folder
from tests.parts.terminal import Terminal, terminal

CLIENT = Path(stormpetrel_client.__file__).parents[1]
MOST_CPU = 0.05  # of one core, asking every second


class Service:
    """Answers as a service would, from what stands in it; may go away, hang, and come back."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, list[str]()
        self.jobs: list[dict[str, Any]] = [RISKY, ENDED]
        self._listening: socket.socket | None = None

    def start(self) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self.path.chmod(stat.S_IRWXU)
        self._listening.listen()
        threading.Thread(target=self._serve, args=(self._listening,), daemon=True).start()

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self.path.unlink()
            self._listening = None

    def _serve(self, listening: socket.socket) -> None:
        with suppress(OSError):  # it was stopped
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    target = connection.recv(65536).split(b" ")[1].decode().removeprefix("/api/v1")
                    self.asked.append(target)
                    body = json.dumps(self._answer(target)).encode()
                    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def _answer(self, target: str) -> Any:
        path, _, query = target.partition("?")
        if path == "/now":
            return {**LOOK, "sources": []}
        if path == "/jobs":
            text = parse_qs(query).get("search", [""])[0]
            found = [row for row in self.jobs if text in row["job_name"]]
            return {"items": found, "total": len(found)}
        if path.startswith("/alarms/"):
            return {**INCIDENT, "blame": "node", "timeline": [{"time": "2026-11-18T04:57:00Z", "words": "raised"}]}
        return {"job": {"job_id": 12, "state": "RUNNING", "job_name": "fit_3"}, "advice": [{"sentence": "Ask for 4 hours."}]}


@pytest.fixture
def service() -> Iterator[Service]:
    with socket_folder("top") as folder:
        made = Service(folder / "s")
        made.start()
        yield made
        made.stop()


@pytest.fixture
def shown(service: Service) -> Iterator[Terminal]:
    with terminal(service.path.parent, words_for("--every", "1"), env=environment(service)) as made:
        made.wait_for("1 open incident, a page.", "My jobs (2)", "q quit")
        yield made


def words_for(*words: str) -> list[str]:
    return [sys.executable, "-m", "stormpetrel_client", "top", *words]


def environment(service: Service) -> dict[str, str]:
    return {"PYTHONPATH": str(CLIENT), "STORMPETREL_SERVICE": f"unix://{service.path}"}


def test_it_shows_incidents_jobs_at_risk_and_own_jobs_and_takes_in_what_is_new(service: Service, shown: Terminal) -> None:
    shown.wait_for("n017 fails every job", "Jobs at risk (1)", "fit_3  RUNNING  61 %  TIMEOUT")
    service.jobs = [{**RISKY, "job": "13", "ref": "13-1-0-c", "job_name": "fit_4"}, *service.jobs]
    shown.wait_for("My jobs (3)", "fit_4")


def test_a_row_is_opened_and_left_again_and_q_ends_it(shown: Terminal) -> None:
    shown.keys("Enter")
    shown.wait_for("Incident 7: page, open", "Suspected: node", "q back")
    shown.keys("q")
    shown.wait_for("My jobs (2)", without="q back")
    shown.keys("Tab", "Enter")
    shown.wait_for("Job 12 (fit_3)", "Advice 1: Ask for 4 hours.")
    shown.keys("q")
    shown.wait_for("My jobs (2)")
    shown.keys("q")
    shown.wait_for("ended with 0", without="My jobs")


def test_jobs_are_sorted_narrowed_and_found(service: Service, shown: Terminal) -> None:
    shown.keys("s")
    shown.wait_for("by risk")
    wait_until(lambda: any("sort=-risk" in target for target in service.asked), "the new order is asked for", limit_s=30)
    shown.keys("o")
    shown.wait_for("open only")
    shown.keys("/", "n", "o", "n", "e", "Enter")
    shown.wait_for("with “none”", "No jobs.", "No open incident.")
    shown.keys("/", "BSpace", "BSpace", "BSpace", "BSpace", "Enter")
    shown.wait_for("My jobs (2)", "n017", without="with “")
    shown.keys("?")
    shown.wait_for("sort the jobs: newest, risk, name, longest")


def test_a_service_that_goes_away_leaves_its_last_answer_and_is_asked_until_it_is_back(service: Service, shown: Terminal) -> None:
    service.stop()
    shown.wait_for("No answer since", "does not answer", "n017 fails every job")
    service.jobs = []
    service.start()
    shown.wait_for("No jobs.", without="No answer since")


def test_it_takes_another_size_however_small(shown: Terminal) -> None:
    shown.resize(50, 12)
    wait_until(lambda: max(map(len, shown.text.splitlines())) <= 50, "it is narrow", limit_s=30)
    shown.wait_for("n017 f", "…", "Jobs at risk (1)")
    assert max(map(len, shown.text.splitlines())) <= 50
    shown.resize(10, 3)
    shown.wait_for("too small")
    shown.resize(120, 40)
    shown.wait_for("n017 fails every job; suspected: node", "My jobs (2)", "fit_3  RUNNING")


def test_a_signal_to_end_leaves_the_terminal_as_it_was(shown: Terminal) -> None:
    (child,) = shown.children()
    os.kill(child, 15)
    assert "My jobs" not in shown.wait_for("ended with 0")


def test_it_sleeps_while_nothing_happens(shown: Terminal) -> None:
    (child,) = shown.children()
    before, began = cpu_s(child), time.monotonic()
    wait_until(lambda: time.monotonic() - began > 4.0, "some turns", limit_s=10)
    assert cpu_s(child) - before < MOST_CPU * (time.monotonic() - began)


def cpu_s(process: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_a_terminal_it_says_what_to_do_and_prints_once(service: Service) -> None:
    done = run(service)
    assert done.returncode == 2 and "stormpetrel top --once" in done.stderr and "Traceback" not in done.stderr
    done = run(service, "--once")
    assert done.returncode == 0 and "My jobs (2)" in done.stdout
    assert json.loads(run(service, "--json").stdout)["jobs"][0]["job"] == "12"
    assert run(service, "--every", "0").returncode == 2


def run(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **environment(service)}
    return subprocess.run(
        words_for(*words), env=env, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )

"""What the watcher tells of itself, and to whom."""

import http.client
import socket

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.watch import service


class Well:
    """A watch that turns, and is ready unless it says why not."""

    not_ready = ""
    notes: tuple[str, ...] = ()

    def alive(self):
        return ""


def ask(port, path, host="127.0.0.1"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def port():
    with service.serving("127.0.0.1:0", Well(), lambda: b"stormpetrel_up 1\n", hosts=["stats.example"]) as port:
        yield port


def test_metrics_and_health_are_told(port):
    assert ask(port, "/metrics") == (200, "stormpetrel_up 1\n")
    assert ask(port, "/healthz") == ask(port, "/readyz") == (200, "ok\n")
    assert ask(port, "/other")[0] == 404


def test_what_is_done_in_part_is_told_by_a_watch_that_is_ready():
    health = Well()
    health.notes = ("CPU traces are judged in part.",)
    with service.serving("127.0.0.1:0", health, lambda: b"") as port:
        assert ask(port, "/readyz") == (200, "ok\nCPU traces are judged in part.\n")
        assert ask(port, "/healthz") == (200, "ok\n")


def test_why_it_is_not_ready_is_told():
    health = Well()
    health.not_ready = "The first look is under way."
    with service.serving("127.0.0.1:0", health, lambda: b"") as port:
        assert ask(port, "/readyz") == (503, "The first look is under way.\n")
        assert ask(port, "/healthz")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9642", "127.0.0.1.evil.example", "10.9.8.7"])
def test_a_page_whose_name_was_rebound_to_the_watch_gets_no_metrics(port, host):
    status, text = ask(port, "/metrics", host)
    assert status == 421 and "stormpetrel_up" not in text


@pytest.mark.parametrize("host", ["127.0.0.1:9642", "localhost", "[::1]:9642", "stats.example:9642", socket.gethostname()])
def test_the_names_of_the_watch_are_answered(port, host):
    assert ask(port, "/metrics", host)[0] == 200


def test_half_sent_requests_do_not_keep_prometheus_out(port):
    held = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(100)]
    for one in held:
        one.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert ask(port, "/metrics")[0] == 200
    for one in held:
        one.close()


def test_an_address_in_use_is_one_sentence(port):
    with (
        pytest.raises(UsageError, match=f"Nothing can listen on 127.0.0.1:{port}: Address already in use"),
        service.serving(f"127.0.0.1:{port}", Well(), lambda: b""),
    ):
        pass

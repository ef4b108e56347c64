import contextlib
import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stormpetrel.exporter import server
from stormpetrel.exporter.proc_stat import ExporterError
from stormpetrel.exporter.server import AnswerError, parse_address, serving
from tests.parts import wait_until


def refuse(_query):
    raise AnswerError(400, "no")


def fail(_query):
    raise ExporterError("the node is gone")


def stumble(_query):
    raise KeyError("a mistake")


ROUTES = {"/a": lambda query: ("text/plain", repr(sorted(query.items())).encode()), "/no": refuse, "/gone": fail, "/oh": stumble}


@pytest.fixture(scope="module")
def port():
    """One server for all who only ask: to stop one takes half a second."""
    with serving("127.0.0.1:0", ROUTES) as (_, port):
        yield port


def ask(port, path, method="GET", **options):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, **options)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_a_path_is_answered_with_its_query(port):
    assert ask(port, "/a?x=1&y=2&y=3")[:2] == (200, "[('x', '1'), ('y', '3')]")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/no", 400, "no"),
        ("/gone", 503, "the node is gone"),
        ("/oh", 500, "KeyError: 'a mistake'"),
        ("/b", 404, "There is /a, /no"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(port, path, status, words):
    answer = ask(port, path)
    assert answer[0] == status and words in answer[1]


@pytest.mark.parametrize("path", ["/", "/a/", "/../../etc/passwd", "/%2e%2e/a", "/a%00"])
def test_there_is_nothing_else_to_be_seen(port, path):
    assert ask(port, path)[0] == 404


def test_head_is_get_without_the_body(port):
    status, body, headers = ask(port, "/a", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "2")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "<script>"])
def test_nothing_can_be_sent(port, method):
    status, body, headers = ask(port, "/a", method)
    assert status == 501 and "text/plain" in headers["Content-Type"] and "Unsupported" in body


def test_a_body_is_not_taken_for_the_next_request(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.count(b"HTTP/1.1") == 1


def test_a_connection_is_kept_for_the_next_scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/a")
        assert connection.getresponse().read() == b"[]"
        assert connection.sock is not None
    connection.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\xff\xfe\r\n\r\n",
        b"GET " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /a HTTP/9\r\n\r\n",
        b"GET /a?" + b"a=1&" * 100 + b" HTTP/1.0\r\n\r\n",
    ],
)
def test_junk_does_no_harm(port, junk):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        answer = b""
        with contextlib.suppress(OSError):  # it may hang up before the junk is all there
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
    assert b" 200 " not in answer
    assert ask(port, "/a")[0] == 200


def test_connections_that_ask_nothing_keep_nobody_out():
    with serving("127.0.0.1:0", ROUTES) as (_, port), contextlib.ExitStack() as held:
        for _ in range(3 * server.MAX_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        assert ask(port, "/a")[0] == 200
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(threads) <= 2 * server.MAX_CONNECTIONS


def test_where_all_are_being_answered_the_next_one_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(_query):
        begun.release()
        go_on.wait(20)
        return "text/plain", b"done"

    with serving("127.0.0.1:0", {"/slow": slow}) as (_, port), ThreadPoolExecutor(2) as pool:
        working = [pool.submit(ask, port, "/slow") for _ in range(2)]
        assert all(begun.acquire(timeout=20) for _ in working)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(port, "/slow")
        go_on.set()
        assert [one.result()[1] for one in working] == ["done", "done"]


@pytest.mark.parametrize("block", [b"x" * 60_000, b"X-Much: y\r\n" * 90])
def test_a_head_without_end_is_cut_off(port, block):
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /a HTTP/1.1\r\nX: ")
        while sent < 64_000_000:
            connection.sendall(block)
            sent += len(block)
    assert sent < 16_000_000
    assert ask(port, "/a")[0] == 200


def test_one_who_is_slow_to_ask_is_hung_up_on(monkeypatch):
    """However busily it sends: a byte now and then keeps no place for ever."""
    monkeypatch.setattr(server, "PATIENCE_S", 0.5)
    with serving("127.0.0.1:0", ROUTES) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        began = time.monotonic()
        connection.sendall(b"GET /a HTTP/1.1\r\n")
        connection.settimeout(0.1)

        def hung_up():
            try:
                connection.sendall(b"X-A: 1\r\n")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(hung_up, "the server hangs up", limit_s=15)
        assert time.monotonic() - began > 0.4


def test_an_address_in_use_is_one_clear_sentence(port):
    with (
        pytest.raises(ExporterError, match=rf"Nothing can listen on 127.0.0.1:{port}: address already in use. Choose"),
        serving(f"127.0.0.1:{port}", ROUTES),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9643", ("127.0.0.1", 9643)), ("[::1]:1", ("::1", 1)), (":0", ("127.0.0.1", 0)), ("node7:9", ("node7", 9))],
)
def test_addresses_are_read(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "9643", "a:b", "a:70000", "a:"])
def test_what_is_no_address_is_one_clear_sentence(text):
    with pytest.raises(ExporterError, match="not an address"):
        parse_address(text)


def test_loopback_of_ip_version_6_can_be_listened_on():
    with serving("[::1]:0", ROUTES) as (host, port), socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(b"GET /a HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(100)

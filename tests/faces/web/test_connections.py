"""A real server on loopback, and connections that send too much, too slowly, or nothing."""

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stormpetrel.faces.web.connections import ConnectionLimits
from tests.faces.web.sample_site import running, small_app, wait_until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BLOCK = 65_536
STREAM = 64 * 1024 * 1024
IN_BUFFERS = 16 * 1024 * 1024  # what the kernel takes in before anybody reads it


def connect(url, source="127.0.0.1"):
    where = urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=20, source_address=(source, 0))


@contextlib.contextmanager
def many(url, count, sent=HEAD):
    """So many connections that have sent the same."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(url)) for _ in range(count)]
        for one in opened:
            one.sendall(sent)
        yield opened


def is_closed(one):
    """Whether the other end has closed the connection; what it sent before is dropped."""
    one.setblocking(False)
    try:
        while one.recv(BLOCK):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def answer_of(one):
    """What the other end answers, to the end of its body: head and body may come one after the other."""
    answer = b""
    while not answer.endswith((b"ok", b"}")) and (block := one.recv(BLOCK)):
        answer += block
    return answer


def sent_until_cut(one, begin, block):
    """How many bytes could be sent before the server closed the connection, 64 MB at most."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        one.sendall(begin)
        while sent < STREAM:
            one.sendall(block)
            sent += len(block)
    return sent


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture
def app(make):
    return small_app(make())


# --- bytes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "block"),
    [
        (b"GET /", b"x" * BLOCK),
        (HEAD + b"X: ", b"x" * BLOCK),
        (HEAD, b"X-Much: y\r\n" * (BLOCK // 11)),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: y\r\n" * (BLOCK // 14)),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * BLOCK),
    ],
    ids=["line", "header", "headers", "trailers", "chunk"],
)
def test_a_head_without_end_is_cut_off_and_takes_no_memory(app, begin, block):
    with running(app) as url, connect(url) as one:
        before = resident_bytes()
        assert sent_until_cut(one, begin, block) <= IN_BUFFERS
        assert resident_bytes() - before < IN_BUFFERS
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_head_in_one_block_is_bounded_too(app):
    with running(app) as url:
        assert httpx.get(f"{url}/healthz", headers={"Cookie": "a=" + "x" * 30_000}).status_code == 200
        with connect(url) as one:
            one.sendall(HEAD + b"Cookie: a=" + b"x" * 60_000 + b"\r\n\r\n")
            assert b" 400 " in one.recv(BLOCK)


# --- seconds ------------------------------------------------------------------------------------------------------------------


def test_a_connection_that_sends_nothing_is_closed(app):
    with running(app, ConnectionLimits(first_byte_s=0.2)) as url, many(url, 5, b"") as opened:
        wait_until(lambda: all(map(is_closed, opened)))


def test_a_connection_may_be_opened_long_before_its_request(app):
    with running(app, ConnectionLimits(head_s=0.2)) as url, connect(url) as ahead, connect(url) as slow:
        slow.sendall(b"GET /heal")
        wait_until(lambda: is_closed(slow))  # the time for a head is over
        ahead.sendall(HEAD + b"\r\n")
        assert b"alive" in answer_of(ahead)


@pytest.mark.parametrize("sent", [b"GET /heal", HEAD])
def test_a_head_that_does_not_come_ends_the_connection(app, sent):
    with running(app, ConnectionLimits(head_s=0.2)) as url, many(url, 5, sent) as opened:
        wait_until(lambda: all(map(is_closed, opened)))


def test_a_head_that_comes_a_byte_at_a_time_ends_the_connection(app):
    with running(app, ConnectionLimits(head_s=0.5)) as url, connect(url) as one:

        def drip():
            one.setblocking(True)
            one.sendall(b"x")
            return is_closed(one)

        one.sendall(HEAD + b"X: ")
        with contextlib.suppress(ConnectionError):
            wait_until(drip)


def test_what_is_sent_after_the_answer_does_not_keep_the_connection(app):
    begin = HEAD.replace(b"\r\nHost", b"\r\nContent-Length: 1000000\r\nHost") + b"\r\n"
    with running(app, ConnectionLimits(head_s=0.3, idle_s=60)) as url, connect(url) as one:
        one.sendall(begin)
        assert b"200" in one.recv(BLOCK)
        wait_until(lambda: is_closed(one))


def test_a_connection_that_is_left_open_is_closed(app):
    with running(app, ConnectionLimits(idle_s=1)) as url, many(url, 3, HEAD + b"\r\n") as opened:
        assert all(b"alive" in answer_of(one) for one in opened)
        wait_until(lambda: all(map(is_closed, opened)))


def answering(work):
    """An app that does some work for each request, and then says ok."""

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.to_thread(work)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})

    return app


def test_an_answer_may_take_longer_than_a_head():
    longer = threading.Event()
    with running(answering(lambda: longer.wait(1.0)), ConnectionLimits(head_s=0.5)) as url, connect(url) as one:
        one.sendall(HEAD + b"\r\n")
        assert answer_of(one).endswith(b"ok")


def test_an_answer_that_nobody_reads_ends_the_connection():
    blocks, given_up = 512, threading.Event()

    async def large(scope, receive, send):
        if scope["type"] == "http":
            size = str(blocks * BLOCK).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
            for _ in range(blocks):
                await send({"type": "http.response.body", "body": b"x" * BLOCK, "more_body": True})
            given_up.set()

    with running(large, ConnectionLimits(stalled_s=0.3)) as url, connect(url) as one:
        one.sendall(HEAD + b"\r\n")
        assert given_up.wait(20)
        received = 0
        with contextlib.suppress(ConnectionError):
            while block := one.recv(BLOCK):
                received += len(block)
        assert 0 < received < blocks * BLOCK


# --- numbers ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", HEAD, b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"])
def test_connections_that_only_wait_keep_nobody_out(app, sent):
    with running(app, ConnectionLimits(head_s=60)) as url, many(url, 300, sent):
        for source in ("127.0.0.1", "127.0.0.2"):
            with connect(url, source) as one:
                one.sendall(HEAD + b"\r\n")
                assert b"alive" in answer_of(one)
        assert httpx.get(f"{url}/page").status_code == 200


def test_one_address_has_a_share_of_the_connections_and_the_largest_share_gives_way(app):
    with running(app, ConnectionLimits(head_s=60, most=30, most_of_address=20)) as url, many(url, 40) as opened:
        assert httpx.get(f"{url}/healthz").status_code == 200
        wait_until(lambda: sum(map(is_closed, opened)) >= 20)
        assert not is_closed(opened[-1])


def test_what_is_being_worked_on_is_not_ended_by_others():
    begun, go_on = threading.Semaphore(0), threading.Event()

    def work():
        begun.release()
        go_on.wait(20)

    with running(answering(work), ConnectionLimits(most_of_address=2)) as url, many(url, 2, HEAD + b"\r\n") as working:
        assert all(begun.acquire(timeout=20) for _ in working)
        with connect(url) as third:
            assert b" 503 " in third.recv(BLOCK)
        go_on.set()
        assert all(answer_of(one).endswith(b"ok") for one in working)

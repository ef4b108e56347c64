"""The small web server of the exporter and of the watcher: GET and HEAD of a few paths, a few connections at a time.

Whoever connects is a stranger: requests are small, time is limited, and one that is slow to ask is hung up on, or gives its place
to the next.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final
from urllib.parse import parse_qs

from stormpetrel.exporter.proc_stat import ExporterError

MAX_CONNECTIONS: Final = 32
PATIENCE_S: Final = 20.0  # from one answer to the next request's end, on one connection
MAX_HEAD_BYTES: Final = 32_768
_AT_WORK: Final = float("inf")  # in place of a time: an answer is being made
_PLAIN: Final = "text/plain; charset=utf-8"


class AnswerError(Exception):
    """What to say other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# A path of the server -> what makes its answer out of the query: content type, body.
Routes = dict[str, Callable[[dict[str, str]], tuple[str, bytes]]]


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9643`, `[::1]:9643` or `:9643`, which is loopback.

    >>> parse_address("[::1]:9643")
    ('::1', 9643)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ExporterError(f"'{text}' is not an address. Write it as 127.0.0.1:9643.")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serving(address: str, routes: Routes, *, is_ours: Callable[[str], bool] = lambda _host: True) -> Iterator[tuple[str, int]]:
    """Answer on an address while the block runs; the host and the port. `is_ours` says which Host headers mean us."""
    host, port = parse_address(address)
    try:
        server = _Server((host, port), routes, is_ours)
    except OSError as error:
        raise ExporterError(
            f"Nothing can listen on {address}: {(error.strerror or str(error)).lower()}. Choose another with --address HOST:PORT."
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.5}, name="answers", daemon=True)
    thread.start()
    try:
        yield host, int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], routes: Routes, is_ours: Callable[[str], bool]) -> None:
        self.routes, self.is_ours = routes, is_ours
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[Any, float] = {}  # connection -> when it was last done with something
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection; if there are too many, in place of the one that has been idle longest."""
        with self._lock:
            full = len(self._open) >= MAX_CONNECTIONS and not self._make_room()
            if not full:
                self._open[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def _make_room(self) -> bool:
        oldest = min(self._open, key=lambda request: self._open[request])
        if self._open[oldest] == _AT_WORK:
            return False
        del self._open[oldest]
        _hang_up(oldest)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Let go of a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def note_request(self, request: Any) -> None:
        """A connection has asked properly: it is our turn."""
        self._note(request, _AT_WORK)

    def note_answer(self, request: Any) -> None:
        """A connection has its answer, and may ask again."""
        self._note(request, time.monotonic())

    def _note(self, request: Any, since: float) -> None:
        with self._lock:
            if request in self._open:
                self._open[request] = since

    def service_actions(self) -> None:
        """Hang up on connections that have not asked anything for too long, however busily they send."""
        before = time.monotonic() - PATIENCE_S
        with self._lock:
            late = [request for request, since in self._open.items() if since < before]
        for request in late:
            _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is no news."""


def _hang_up(request: Any) -> None:
    """Wake the thread that reads from a connection: it finds the end, and lets go of it."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Head:
    """The lines of a request's head, as many as fit: http.server itself takes a hundred of 64 KB each."""

    def __init__(self, lines: Any) -> None:
        self._lines = lines
        self.left = MAX_HEAD_BYTES

    def readline(self, limit: int) -> bytes:
        """The next line; ConnectionError where the head is too large."""
        line: bytes = self._lines.readline(min(limit, self.left + 1))
        self.left -= len(line)
        if self.left < 0:
            raise ConnectionError("The head of the request is too large.")
        return line

    def close(self) -> None:
        """Let go of the connection."""
        self._lines.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    server_version = "stormpetrel-exporter"
    sys_version = ""
    error_content_type = _PLAIN
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        """Read heads, and no more of them than fits."""
        super().setup()
        self.rfile: Any = _Head(self.rfile)

    def handle_one_request(self) -> None:
        """As http.server's, with a head of its own."""
        self.rfile.left = MAX_HEAD_BYTES
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer with what the path stands for."""
        self.server.note_request(self.connection)
        self._send(*self._answer())

    def _answer(self) -> tuple[int, str, bytes]:
        path, _, query = self.path.partition("?")
        try:
            host = self.headers.get("Host")  # a browser always sends one
            if host and not self.server.is_ours(host):
                raise AnswerError(421, "This is not the host that was asked for.")
            route = self.server.routes.get(path)
            if route is None:
                raise AnswerError(404, f"There is {', '.join(self.server.routes)}.")
            return (200, *route(_query(query)))
        except AnswerError as answer:
            status, message = answer.status, str(answer)
        except ExporterError as error:
            status, message = 503, str(error)
        except Exception as error:  # a mistake of ours must not look like a network problem
            status, message = 500, f"Something unexpected happened: {type(error).__name__}: {error}"
        return status, _PLAIN, f"{message}\n".encode("utf-8", "backslashreplace")

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.headers.get("Content-Length") or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # a body that nobody reads would be taken for the next request
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.server.note_answer(self.connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """A scrape every second is no news."""


def _query(text: str) -> dict[str, str]:
    try:
        return {name: values[-1] for name, values in parse_qs(text, max_num_fields=8).items()}
    except ValueError:
        raise AnswerError(400, "The query is too long.") from None

"""The small web server of the watcher: /metrics, /healthz, /readyz, on loopback by default.

It answers from a thread of its own, so that it tells when the loop hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stormpetrel.errors import SettingsError, UsageError
from stormpetrel.store.source_health import SourceBook, leading, troubles
from stormpetrel.store.watch_status import stuck_after_s


class Health:
    """What the loop last said, and how its sources are at this moment; read by other threads."""

    def __init__(self, poll_s: float, book: SourceBook) -> None:
        self._allowed_s = stuck_after_s(poll_s)
        self._book = book
        self._beat = time.monotonic()
        self._hindrance = "The first look is under way."

    def beat(self, hindrance: str = "") -> None:
        """The loop has made a turn; `hindrance` says what, besides its sources, keeps it from judging."""
        self._beat = time.monotonic()
        self._hindrance = hindrance

    @property
    def not_ready(self) -> str:
        """Why the watch does not do its work; empty while it does. Asks the sources now: a look may hang."""
        found = troubles(leading(self._book.sources()), datetime.now(UTC))
        return found[0].what if found else self._hindrance

    def alive(self) -> str:
        """Empty while the loop turns; otherwise what is wrong."""
        silent = time.monotonic() - self._beat
        return "" if silent < self._allowed_s else f"The loop has not made a turn for {silent:.0f} s."


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9642`, `[::1]:9642` or `:9642`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"'{text}' is not an address.", hint="Write it as 127.0.0.1:9642.")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serving(address: str, health: Health, metrics: Callable[[], bytes]) -> Iterator[int | None]:
    """Answer on an address while the block runs; the port. An empty address: nobody answers."""
    if not address:
        yield None
        return
    host, port = parse_address(address)
    try:
        server = ThreadingHTTPServer((host, port), _handler(health, metrics))
    except OSError as error:
        raise UsageError(
            f"Nothing can listen on {address}: {error.strerror}.", hint="Choose another address: --address 127.0.0.1:0, or ''."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _handler(health: Health, metrics: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version = "stormpetrel"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer one of the three paths."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._send(200, metrics(), "text/plain; version=0.0.4; charset=utf-8")
            elif path == "/healthz":
                self._tell(health.alive())
            elif path == "/readyz":
                self._tell(health.alive() or health.not_ready)
            else:
                self._send(404, b"There is /metrics, /healthz and /readyz.\n")

        def _tell(self, problem: str) -> None:
            self._send(503 if problem else 200, f"{problem or 'ok'}\n".encode())

        def _send(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """A scrape every few seconds is no news."""

    return Handler

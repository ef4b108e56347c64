"""The inbox of `stormpetrel demo`: where the messages of its site arrive, shown in the terminal as they come.

POST of a webhook route -> one line per message -> `show`. It listens on loopback, at an address that is a secret like that of a
chat's hook: it lies in a file that only its owner can read, and is another one each time.
"""

from __future__ import annotations

import html
import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from stormpetrel.faces.cli.output import plain
from stormpetrel.private_files import write_private

ROUTE: Final = "inbox"
URL_FILE: Final = "inbox-url"
_NOBODY: Final = "http://127.0.0.1:9/"  # the port of `discard`: while no demo runs messages wait
_LONGEST: Final = 65_536  # bytes of a message
_REMEMBERED: Final = 200  # ids of messages: what comes again is shown once
_PATIENCE_S: Final = 5.0


def inbox_settings(folder: Path, address: str) -> dict[str, object]:
    """Return the section `notify` of a demo's settings: pages go to the inbox, and link to the dashboard at `address`."""
    route = {"name": ROUTE, "kind": "webhook", "url_file": str(folder.resolve() / URL_FILE)}
    return {"public_url": f"http://{address}", "routes": [route]}


def close_inbox(folder: Path) -> None:
    """Let the route of a demo's site lead to nobody, so that its settings hold while no demo runs."""
    write_private(folder / URL_FILE, f"{_NOBODY}\n")


@contextmanager
def open_inbox(folder: Path, show: Callable[[str], None]) -> Iterator[None]:
    """Take messages, and show each as one line, until the end of the block."""
    path = f"/{secrets.token_urlsafe(16)}"
    with HTTPServer(("127.0.0.1", 0), _handler(path, show)) as server:
        write_private(folder / URL_FILE, f"http://127.0.0.1:{server.server_port}{path}\n")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="inbox", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(_PATIENCE_S)
            close_inbox(folder)


def _handler(path: str, show: Callable[[str], None]) -> type[BaseHTTPRequestHandler]:
    seen: deque[str] = deque(maxlen=_REMEMBERED)

    class Inbox(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not secrets.compare_digest(self.path.encode(), path.encode()):
                return self._answer(404)
            if not (length.isascii() and length.isdigit() and len(length) < 7 and int(length) <= _LONGEST):
                return self._answer(413)
            line = _line(self.rfile.read(int(length)))
            if line is None:
                return self._answer(400)
            number = self.headers.get("Idempotency-Key", "")
            if not number or number not in seen:
                seen.append(number)
                show(line)
            return self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: what arrives is shown."""

    return Inbox


def _line(body: bytes) -> str | None:
    """Return a message as one line, text and link; None where it is none."""
    try:
        text = json.loads(body)["text"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(text, str):
        return None
    return f"Message: {plain('  '.join(html.unescape(text).splitlines()))}"

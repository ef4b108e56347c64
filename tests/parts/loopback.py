"""A server on loopback whose answers a test makes: `with served(reply) as url`, where `reply(path, parameters, headers)` answers.

An answer is (status, body, headers); a body that is no bytes is sent as JSON. `cut` in the headers sends only so many bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Parameters = dict[str, list[str]]
Answer = tuple[int, Any, dict[str, str]]
Reply = Callable[[str, Parameters, dict[str, str]], Answer]


@contextmanager
def served(reply: Reply) -> Iterator[str]:
    """Answer GET requests until the block ends; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, body, headers = reply(parts.path, parse_qs(parts.query), dict(self.headers))
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            cut = int(headers.get("cut", len(content)))
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # who asked has given up
                self.end_headers()
                self.wfile.write(content[:cut])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

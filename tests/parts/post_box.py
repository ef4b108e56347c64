"""A web server on loopback that keeps what is posted to it: `with PostBox() as box: box.url, box.posts`.

It can be stopped and started again on the same port, and told how to answer: `box.reply = lambda *_: (503, {}, b"")`. A reply
of status 0 reads the request and closes the connection without a word.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes
    status: int  # what it was answered with

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = Callable[[str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]


class PostBox:
    """The server, as a context manager."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.reply: Reply = lambda _path, _headers, _body: (200, {}, b"ok")
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def taken(self) -> list[Post]:
        """What was answered with success."""
        return [post for post in self.posts if 200 <= post.status < 300]

    def __enter__(self) -> PostBox:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Answer, on the port it had before."""
        box = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                headers = dict(self.headers)
                status, more, answer = box.reply(self.path, headers, body)
                box.posts.append(Post(self.path, headers, body, status))
                self.close_connection = True
                if not status:
                    return
                with suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(answer)), "Connection": "close", **more}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

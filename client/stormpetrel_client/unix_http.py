"""One HTTP request over a Unix socket, within a limit of time: http.client alone takes as long to import as a whole answer takes.

request -> exchange -> status, body. HTTP/1.0: the answer ends with the connection, and is never cut into chunks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_LARGEST = 64 * 1024 * 1024
_PIECE = 65536


class ExchangeError(Exception):
    """What kept an answer from coming, in words."""


class NoAnswerInTimeError(ExchangeError):
    """The time was over before an answer was there."""


def exchange(
    path: str, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"", limit_s: float = 10.0
) -> tuple[int, bytes]:
    """Send one request to the socket at `path`; status and body of the answer, ExchangeError where none comes in time."""
    give_up = time.monotonic() + limit_s
    lines = [f"{method} {target} HTTP/1.0", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(_left(give_up))
            connection.connect(path)
            connection.settimeout(_left(give_up))
            with suppress(BrokenPipeError):  # an answer may come, and the connection end, before all of it was read
                connection.sendall(request)
            return _answer(connection, give_up)
        except socket.timeout as error:  # another name of TimeoutError from Python 3.10 on
            raise NoAnswerInTimeError(f"no answer within {limit_s:g} s") from error
        except OSError as error:
            raise ExchangeError(error.strerror or str(error)) from error


def _answer(connection: socket.socket, give_up: float) -> tuple[int, bytes]:
    parts, size = [], 0
    while True:
        connection.settimeout(_left(give_up))
        part = connection.recv(_PIECE)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            raise ExchangeError("the answer is too large")
    head, is_whole, body = b"".join(parts).partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if not is_whole or len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ExchangeError("what answers does not speak HTTP")
    return int(words[1]), _whole(head, body)


def _whole(head: bytes, body: bytes) -> bytes:
    """The body, where it is as long as its head says; an answer that broke off is none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit() and int(value) > len(body):
            raise ExchangeError("the answer broke off")
    return body


def _left(give_up: float) -> float:
    left = give_up - time.monotonic()
    if left <= 0:
        raise socket.timeout
    return left

"""A stand-in of the service for those who submit: says the same to everybody over a Unix socket, or hangs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def socket_folder(name: str) -> Iterator[Path]:
    """A folder that every user of the machine can enter, with a short path."""
    folder = Path("/tmp") / f"petrel-{name}-{os.getpid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def answering(path: Path, answer: str | None, *, seen: list[bytes] | None = None, status: str = "200 OK") -> Iterator[None]:
    """A service that says the same to everybody, or nothing at all (None: it accepts and hangs)."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    listener.listen()
    held = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            if answer is None:
                continue
            data = _request(connection)
            if seen is not None:
                seen.append(data)
            body = answer.encode()
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)
        for connection in held:
            connection.close()
        path.unlink()


def _request(connection: socket.socket) -> bytes:
    """Head and body of one request, as far as they come."""
    data = b""
    while True:
        head, is_whole, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if is_whole and len(body) >= int(length[1] if length else 0):
            return data
        part = connection.recv(65536)
        if not part:
            return data
        data += part

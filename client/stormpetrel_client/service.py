"""The site's service, over a Unix socket or HTTPS: path + parameters -> Service.ask -> JSON; ClientError with its sentence.

A field that this version does not know is ignored, and one that it misses is left out: one version apart both understand each
other.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from stormpetrel_client import __version__
from stormpetrel_client.where import ClientError, Where

_PREFIX = "/api/v1"
_LARGEST = 64 * 1024 * 1024
_REFUSED = 3  # exit code: we may not, or it does not exist


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Service:
    """Asks one service; each request has a connection of its own."""

    def __init__(self, where: Where, *, timeout_s: float = 10.0) -> None:
        self._where, self._timeout_s = where, timeout_s

    def ask(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """The JSON of the answer; ClientError where it says no, or does not answer in time."""
        parameters = urlencode({name: value for name, value in (query or {}).items() if value is not None}, doseq=True)
        target = f"{self._prefix()}{_PREFIX}{quote(path, safe='/')}{'?' + parameters if parameters else ''}"
        headers = {"Accept": "application/json", "User-Agent": f"stormpetrel-client/{__version__}", "Connection": "close"}
        token = self._where.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read(_LARGEST)
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(
                f"The service at {self._where.service} does not answer: {error or type(error).__name__}.",
                "Ask your administrators whether stormpetrel serve runs.",
            ) from error
        finally:
            connection.close()
        return self._read(answer.status, text)

    def _prefix(self) -> str:
        return "" if self._where.socket_path else urlsplit(self._where.service).path.rstrip("/")

    def _connection(self) -> http.client.HTTPConnection:
        if self._where.socket_path:
            return _UnixConnection(self._where.socket_path, self._timeout_s)
        address = urlsplit(self._where.service)
        if address.scheme == "http":
            return http.client.HTTPConnection(address.hostname or "", address.port, timeout=self._timeout_s)
        import ssl  # 20 ms that a Unix socket does not need

        context = ssl.create_default_context(cafile=str(Path(self._where.ca_file).expanduser()) if self._where.ca_file else None)
        return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=self._timeout_s, context=context)

    def _read(self, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = None
        if 200 <= status < 300 and answer is not None:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict) and isinstance(error.get("what"), str):
            raise ClientError(error["what"], str(error.get("hint") or ""), code=_REFUSED)
        raise ClientError(
            f"What answers at {self._where.service} is not Stormpetrel (status {status}).", "Check the address of the service."
        )

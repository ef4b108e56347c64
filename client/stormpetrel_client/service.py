"""The site's service, over a Unix socket or HTTPS: path + parameters -> Service.ask -> JSON; ClientError with its sentence.

A field that this version does not know is ignored, and one that it misses is left out: one version apart both understand each
other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from stormpetrel_client import __version__
from stormpetrel_client.unix_http import ExchangeError, NoAnswerInTimeError, exchange
from stormpetrel_client.where import ClientError, Where

_PREFIX = "/api/v1"
_LATER = ("/me", "/me/digest", "/now", "/tokens")  # what services of before did not have
_NOT_LOGGED_IN = 401
_REFUSED = 3  # exit code: we may not, or it does not exist


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
        try:
            status, text = self._exchange(method, target, headers, data)
        except ExchangeError as error:
            ask = "Ask your administrators whether stormpetrel serve runs."
            hint = f"If it is only busy, wait longer: --timeout 60. {ask}" if isinstance(error, NoAnswerInTimeError) else ask
            raise ClientError(f"The service at {self._where.service} does not answer: {error}.", hint) from error
        return self._read(path, status, text)

    def _exchange(self, method: str, target: str, headers: Mapping[str, str], data: bytes | None) -> tuple[int, bytes]:
        if self._where.socket_path:
            return exchange(self._where.socket_path, method, target, headers=headers, body=data or b"", limit_s=self._timeout_s)
        from stormpetrel_client.network import exchange as over_network  # 40 ms that a Unix socket does not need

        return over_network(
            self._where.service, method, target, headers=headers, body=data, limit_s=self._timeout_s, ca_file=self._where.ca_file
        )

    def _prefix(self) -> str:
        return "" if self._where.socket_path else urlsplit(self._where.service).path.rstrip("/")

    def _read(self, path: str, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = None
        if 200 <= status < 300 and answer is not None:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if status in (404, 405) and path in _LATER:
            raise ClientError(
                "The service is older than this program: it does not know that.", "Ask your administrators for it.", code=_REFUSED
            )
        if isinstance(error, dict) and isinstance(error.get("what"), str):
            if status == _NOT_LOGGED_IN:
                raise ClientError(error["what"], self._way_in(), code=_REFUSED)
            raise ClientError(error["what"], str(error.get("hint") or ""), code=_REFUSED)
        raise ClientError(
            f"What answers at {self._where.service} is not Stormpetrel (status {status}).", "Check the address of the service."
        )

    def _way_in(self) -> str:
        if self._where.socket_path:
            return "The socket needs no token: leave out STORMPETREL_TOKEN_FILE and token_file."
        make = "on the machine of the service: stormpetrel tokens create NAME -o FILE"
        if self._where.token_file:
            return f"Make a new one, {make}"
        return f"Make a token, {make}; then name the file here: STORMPETREL_TOKEN_FILE=FILE, or token_file in client.toml."

    def require_socket(self, what: str) -> None:
        """ClientError where the service is not reached over its socket, which alone proves who asks."""
        if not self._where.socket_path:
            raise ClientError(what, "Do it on the machine of the service, where its socket says who you are.", code=_REFUSED)

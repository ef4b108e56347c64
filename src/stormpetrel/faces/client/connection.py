"""The way to a Stormpetrel server: requests out, JSON or an error of ours back; what is worth trying again is tried again.

path + parameters -> Connection.request -> JSON; Connection.download -> a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from stormpetrel import __version__
from stormpetrel.errors import (
    AccessError,
    ModelError,
    NotThereError,
    SourceFormatError,
    SourceUnavailableError,
    StormpetrelError,
    UsageError,
)
from stormpetrel.private_files import writing_private

_PREFIX: Final = "/api/v1"
_ERRORS: Final[Mapping[int, type[StormpetrelError]]] = {
    401: AccessError,
    403: AccessError,
    404: NotThereError,
    409: ModelError,
    429: SourceUnavailableError,
    503: SourceUnavailableError,
}
_TRY_AGAIN: Final = (429, 503)
_LONGEST_PAUSE_S: Final = 60.0
_PAUSE_S: Final = 1.0  # where the server does not say how long


class Connection:
    """Asks one server.

    Parameters
    ----------
    retries
        How often a request is sent again after "too many requests", "busy" or a refused connection.
    transport, sleep
        For tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float,
        retries: int,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = _checked(url)
        self._retries = retries
        self._sleep = sleep
        headers = {"User-Agent": f"stormpetrel-client/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(headers=headers, timeout=timeout_s, transport=transport, follow_redirects=False)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """The JSON that the server answers with; None where it has nothing to say. Errors carry its sentence and its hint."""
        known = {name: value for name, value in (query or {}).items() if value is not None}
        request = self._client.build_request(method, f"{self.url}{_PREFIX}{path}", params=_as_parameters(known), json=body)
        return self._read(self._sent(request))

    def download(self, method: str, path: str, to: Path, *, body: Any = None) -> Mapping[str, str]:
        """Write what the server answers with to a file, whole or not at all; the headers of the answer."""
        request = self._client.build_request(method, f"{self.url}{_PREFIX}{path}", json=body)
        answer = self._sent(request, stream=True)
        if not answer.is_success:
            answer.read()
            self._read(answer)  # raises
            raise self._no_stormpetrel(answer)
        try:
            with writing_private(to) as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
        except httpx.HTTPError as error:
            raise self._unavailable(error) from error
        finally:
            answer.close()
        return answer.headers

    def _sent(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """The answer to a request, sent again where that may help."""
        for tries_left in range(self._retries, -1, -1):
            try:
                answer = self._client.send(request, stream=stream)
            except httpx.ConnectError as error:  # nothing was sent
                if not tries_left:
                    raise self._unavailable(error) from error
                self._sleep(_PAUSE_S)
                continue
            except httpx.HTTPError as error:
                raise self._unavailable(error) from error
            if answer.status_code not in _TRY_AGAIN or not tries_left:
                break
            answer.close()
            self._sleep(_pause(answer))
        return answer

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code == 204:
            return None
        try:
            data = answer.json()
        except ValueError:
            raise self._no_stormpetrel(answer) from None
        if answer.is_success:
            return data
        error = data.get("error") if isinstance(data, dict) else None
        if not isinstance(error, dict):
            raise self._no_stormpetrel(answer)
        kind = _ERRORS.get(answer.status_code, UsageError if answer.is_client_error else StormpetrelError)
        raise kind(str(error.get("what", "")), hint=str(error.get("hint", "")))

    def _unavailable(self, error: Exception) -> SourceUnavailableError:
        why = str(error) or type(error).__name__
        return SourceUnavailableError(
            f"Stormpetrel at {self.url} did not answer: {why}.", hint="Is it running? stormpetrel serve prints its address."
        )

    def _no_stormpetrel(self, answer: httpx.Response) -> StormpetrelError:
        if answer.is_redirect:
            return AccessError(f"{self.url} asks for a login.", hint="Pass a token: Client(url, token=…).")
        return SourceFormatError(
            f"What answers at {self.url} is not Stormpetrel (status {answer.status_code}).",
            hint="Check the address, with the path under which a proxy shows the pages.",
        )


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not the address of a server.", hint="Write it as http://127.0.0.1:8050.")
    return url.rstrip("/")


def _as_parameters(query: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as they stand in a link."""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}


def _pause(answer: httpx.Response) -> float:
    retry_after = answer.headers.get("retry-after", "")
    return min(float(retry_after), _LONGEST_PAUSE_S) if retry_after.isdecimal() else _PAUSE_S

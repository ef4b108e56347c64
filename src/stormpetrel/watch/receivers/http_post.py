"""Posting JSON to an address of a route: bounded in time and size, no redirect followed, certificates verified.

Route -> HttpPost -> post(body). An address may itself be a secret: what is told of it is its host.
"""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import SettingsError
from stormpetrel.records.routes import Route, check_address, shown_address
from stormpetrel.sources.json_server import words_of
from stormpetrel.sources.server_connection import read_secret, read_token
from stormpetrel.watch.receivers.receiver import DeliveryError

if TYPE_CHECKING:
    import httpx

_MOST_READ: Final = 16_384  # bytes of an answer
_AGAIN: Final = frozenset({401, 407, 408, 425, 429})  # a wrong secret is no fault of the message: it is sent when that is mended
_LONGEST_PAUSE_S: Final = 3600.0


class HttpPost:
    """Posts to one route's address; SettingsError at once where its settings cannot work."""

    def __init__(self, route: Route, path: str = "") -> None:
        import httpx

        address = address_of(route)
        self._url = address.rstrip("/") + path if path else address
        self.name = shown_address(address)
        self._timeout_s = route.timeout_s
        headers, basic = _credentials(route)
        try:
            verify = ssl.create_default_context(cafile=route.ca_file) if route.ca_file else True
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"The ca_file {route.ca_file} of route '{route.name}' cannot be read: {error}.",
                hint="It must be a PEM file of certificates.",
            ) from None
        self._client = httpx.Client(headers=headers, auth=basic, timeout=route.timeout_s, verify=verify, follow_redirects=False)

    def post(self, body: Any, headers: dict[str, str]) -> None:
        """Post a body; DeliveryError unless the answer is one of success."""
        import httpx

        content = json.dumps(body, ensure_ascii=False).encode()
        try:
            status, answered, text = self._exchange(content, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise DeliveryError(f"{self.name} cannot be reached ({_reason(error)})") from None
        except httpx.TimeoutException:
            raise DeliveryError(f"{self.name} did not answer within {self._timeout_s:g} s", may_have_arrived=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise DeliveryError(f"{self.name} broke off ({type(error).__name__})", may_have_arrived=True) from None
        if not 200 <= status < 300:
            raise self._refusal(status, answered, text)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _exchange(self, content: bytes, headers: dict[str, str]) -> tuple[int, httpx.Headers, bytes]:
        import httpx

        give_up, answer = time.monotonic() + self._timeout_s, bytearray()
        sent = {"Content-Type": "application/json", **headers}
        with self._client.stream("POST", self._url, content=content, headers=sent) as response:
            for piece in response.iter_bytes(chunk_size=4096):
                answer += piece
                if len(answer) > _MOST_READ:
                    break
                if time.monotonic() > give_up:  # a drop at a time would never be late by httpx's own clock
                    raise httpx.ReadTimeout("the whole answer took too long")
            return response.status_code, response.headers, bytes(answer)

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> DeliveryError:
        words = words_of(body)
        problem = f"{self.name} answered {status}" + (f": {words}" if words else "")
        if 300 <= status < 400:
            return DeliveryError(f"{self.name} points to another address ({status}), which is not followed")
        asked = headers.get("retry-after", "")
        pause_s = min(float(asked), _LONGEST_PAUSE_S) if asked.isascii() and asked.isdigit() and len(asked) < 7 else 0.0
        return DeliveryError(problem, is_final=400 <= status < 500 and status not in _AGAIN, pause_s=pause_s)


def address_of(route: Route) -> str:
    """Return where a route posts to, out of its file where it is a secret; SettingsError where that is no address."""
    if not route.url_file:
        return route.url
    url = read_secret(Path(route.url_file), hint=f"Set url_file of route '{route.name}'.")
    try:
        check_address(url)
    except ValueError as error:
        raise SettingsError(f"The file {route.url_file} of route '{route.name}' holds no address: {error}.") from None
    return url


def _credentials(route: Route) -> tuple[dict[str, str], tuple[str, str] | None]:
    if not route.secret_file:
        return {}, None
    hint = f"Set secret_file of route '{route.name}'."
    if route.user:
        return {}, (route.user, read_secret(Path(route.secret_file), hint=hint))
    return {"Authorization": f"Bearer {read_token(Path(route.secret_file), hint=hint)}"}, None


def _reason(error: Exception) -> str:
    return "its certificate is not trusted" if "CERTIFICATE" in str(error) else type(error).__name__

"""A server that answers GET requests with JSON (Grafana, Graphite) -> the answer, or one sentence that says why there is none.

address, token file -> JsonServer -> get -> JSON. Three tries where it is slow, away or busy; no redirect is followed, so that the
token goes nowhere else; an answer has a most size, and half a body is none.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import SettingsError, SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.server_connection import Address, connect, shown

if TYPE_CHECKING:
    import httpx

_TRIES: Final = 3
_PAUSE_S: Final = 0.5  # before the second try; doubled before the third
_LONGEST_PAUSE_S: Final = 10.0  # that a server may ask for
_MOST_BYTES: Final = 64 * 1024**2  # of one answer
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_USER_INFO: Final = re.compile(r"//[^/@]*@")

Parameters = Sequence[tuple[str, str]]


class _BusyError(Exception):
    """A retry may help; the text says what happened."""

    def __init__(self, what: str, pause_s: float = 0.0) -> None:
        super().__init__(what)
        self.pause_s = pause_s


class JsonServer:
    """A server, as a context manager; `resume` is where a reader would go on, for the words of an error."""

    def __init__(self, address: Address, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.resume: datetime | None = None
        self._address, self._pause = address, pause
        self.name = f"{address.product} at {_USER_INFO.sub('//', address.url)}"
        self._client = connect(address)

    def __enter__(self) -> JsonServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, parameters: Parameters, *, not_found: str) -> Any:
        """The answer to a request as JSON; `not_found` says what a 404 means here."""
        reason = ""
        for attempt in range(_TRIES):
            try:
                return self._once(path, parameters, not_found)
            except _BusyError as busy:
                reason = str(busy)
                if attempt < _TRIES - 1:
                    self._pause(min(max(busy.pause_s, _PAUSE_S * 2**attempt), _LONGEST_PAUSE_S))
        raise self.failure(
            SourceUnavailableError, f"{reason} ({_TRIES} tries)", f"Check that it runs, and {self._address.section}.url."
        )

    def failure(self, kind: type[SourceError | SettingsError], what: str, hint: str) -> SourceError | SettingsError:
        """An error about this server, in one sentence."""
        stays = f" The cursor stays at {self.resume:%Y-%m-%dT%H:%M:%SZ}; the next run resumes there." if self.resume else ""
        return kind(f"{self.name} {what}.{stays}", hint=hint)

    def _once(self, path: str, parameters: Parameters, not_found: str) -> Any:
        import httpx

        try:
            status, headers, body = self._exchange(path, parameters)
        except httpx.TimeoutException as error:
            raise _BusyError(f"did not answer within {self._address.timeout_s:g} s") from error
        except httpx.TransportError as error:
            if "CERTIFICATE" in str(error):
                hint = f"Set {self._address.section}.ca_file to its authority."
                raise self.failure(SettingsError, "has a certificate that is not trusted", hint) from None
            raise _BusyError(f"cannot be reached or broke off ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise _BusyError(f"answered in a way that is no HTTP ({type(error).__name__})") from error
        if status == 200:
            return self._whole(body, headers.get("content-type", ""))
        raise self._refusal(status, body, headers, not_found)

    def _exchange(self, path: str, parameters: Parameters) -> tuple[int, httpx.Headers, bytes]:
        import httpx

        give_up, body = time.monotonic() + self._address.timeout_s, bytearray()
        with self._client.stream("GET", path, params=list(parameters)) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MOST_BYTES:
                    what = f"answered with more than {_MOST_BYTES // 1024**2} MiB"
                    raise self.failure(SourceFormatError, what, f"Ask for less, or check {self._address.section}.url.")
                if time.monotonic() > give_up:  # a drop at a time would never be late by httpx's own clock
                    raise httpx.ReadTimeout("the whole answer took too long")
            return response.status_code, response.headers, bytes(body)

    def _whole(self, body: bytes, kind: str) -> Any:
        """An answer that is all there: no page of a proxy or of a login, no half of a body."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
        if body.lstrip()[:1] == b"<" or "html" in kind:
            hint = f"Check {self._address.section}.url, the token, and any proxy before it."
            raise self.failure(SourceFormatError, "answered with a web page, not with data", hint)
        raise _BusyError("answered with something that is no JSON, or half of it")

    def _refusal(self, status: int, body: bytes, headers: httpx.Headers, not_found: str) -> Exception:
        section, said = self._address.section, words_of(body)
        colon = f": {said}" if said else ""
        if status in _BUSY:
            asked = headers.get("retry-after", "")
            return _BusyError(f"answered {status}{colon}", float(asked[:6]) if asked.isascii() and asked.isdigit() else 0.0)
        if status in (401, 403):
            hint = f"Check {section}.token_file: the token may have expired, or may not read this."
            return self.failure(SourceUnavailableError, f"refused the token, or wants one ({status}){colon}", hint)
        if 300 <= status < 400:
            what = f"points to another address, {shown(headers.get('location', ''))!r}, which is not followed"
            return self.failure(SettingsError, what, f"Set {section}.url to it; a login page means that a token is missing.")
        if status == 404:
            return self.failure(SettingsError, f"{not_found} (404)", f"Check {section}.url: it may need a path.")
        return self.failure(SourceFormatError, f"answered {status}{colon}", f"Check the settings of {section}, and its log.")


def words_of(body: bytes) -> str:
    """The reason in an error of a server: the message of its JSON, or the first line of its text; nothing of a web page."""
    text = body[: 64 * 1024].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return shown(text.partition("\n")[0])
    return shown(answer.get("message") or answer.get("error") or "") if isinstance(answer, dict) else ""

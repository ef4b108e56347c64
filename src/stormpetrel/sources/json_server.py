"""A server that answers GET requests with JSON (Grafana, Graphite) -> the answer, or one sentence that says why there is none.

address, token file -> JsonServer -> get -> JSON. Three tries where it is slow, away or busy; no redirect is followed, so that the
token goes nowhere else; an answer has a most size, and half a body is none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.server_connection import BusyError, HttpServer, shown

if TYPE_CHECKING:
    import httpx

_MOST_BYTES: Final = 64 * 1024**2  # of one answer
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

Parameters = Sequence[tuple[str, str]]


class JsonServer(HttpServer):
    """A server that is asked by GET requests."""

    def get(self, path: str, parameters: Parameters, *, not_found: str) -> Any:
        """The answer to a request as JSON; `not_found` says what a 404 means here."""
        hint = f"Check that it runs, and {self._address.section}.url."
        return self._tried(lambda: self._once(path, parameters, not_found), hint=hint)

    def _once(self, path: str, parameters: Parameters, not_found: str) -> Any:
        hint = f"Ask for less, or check {self._address.section}.url."
        status, headers, body = self._exchanged(
            lambda: self._client.stream("GET", path, params=list(parameters)),
            most_bytes=_MOST_BYTES,
            too_long=lambda what: self.failure(SourceFormatError, what, hint),
        )
        if status == 200:
            return self._whole(body, headers.get("content-type", ""))
        raise self._refusal(status, body, headers, not_found)

    def _whole(self, body: bytes, kind: str) -> Any:
        """An answer that is all there: no page of a proxy or of a login, no half of a body."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
        if body.lstrip()[:1] == b"<" or "html" in kind:
            hint = f"Check {self._address.section}.url, the token, and any proxy before it."
            raise self.failure(SourceFormatError, "answered with a web page, not with data", hint)
        raise BusyError("answered with something that is no JSON, or half of it")

    def _refusal(self, status: int, body: bytes, headers: httpx.Headers, not_found: str) -> Exception:
        section, said = self._address.section, words_of(body)
        colon = f": {said}" if said else ""
        if status in _BUSY:
            asked = headers.get("retry-after", "")
            return BusyError(f"answered {status}{colon}", float(asked[:6]) if asked.isascii() and asked.isdigit() else 0.0)
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

"""What every answer carries: the headers that tell a browser how little a page of ours may do."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Final

from starlette.datastructures import MutableHeaders

_STATIC: Final = ("/assets/", "/_dash-component-suites/", "/login.css")
_FIXED: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_YEAR_S: Final = 31_536_000


def content_security_policy(script_hashes: Iterable[str] = ()) -> str:
    """Everything from here, nothing from elsewhere, no script but ours.

    Inline styles are allowed: Plotly and AG Grid set them on the elements they draw, and neither can do without. Inline scripts
    are not, but for those of which the hash is given: Dash starts itself with one.
    """
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",  # a figure that is exported is one
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "form-action": "'self'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def script_hash(script: str) -> str:
    """An inline script as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def inline_script_hashes(page: str) -> list[str]:
    """The hashes of the scripts that stand in a page."""
    reader = _InlineScripts()
    reader.feed(page)
    return [script_hash(script) for script in reader.found]


class _InlineScripts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self._inside = tag == "script" and "src" not in names and "json" not in (names.get("type") or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found.append(data)


def protect(headers: MutableHeaders, *, policy: str, path: str, query: bytes, is_https: bool) -> None:
    """Put the protecting headers on an answer, and decide how long it may be kept."""
    for name, value in _FIXED.items():
        headers[name] = value
    headers["Content-Security-Policy"] = policy
    if is_https:
        headers["Strict-Transport-Security"] = f"max-age={_YEAR_S}"
    if not path.startswith(_STATIC):
        headers["Cache-Control"] = "no-store"  # pages and answers are one viewer's
    elif path.startswith("/assets/") and query.startswith(b"m="):
        headers["Cache-Control"] = (
            f"public, max-age={_YEAR_S}, immutable"  # Dash writes the time of the last change into the link
        )
    else:
        headers.setdefault("Cache-Control", "no-cache")  # those with a fingerprint in their name say themselves for how long
    for name in ("Server", "X-Powered-By"):
        if name in headers:
            del headers[name]

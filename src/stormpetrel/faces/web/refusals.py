"""Errors as answers of the web server: a StormpetrelError -> status, JSON for programs, a small page for people.

What we did not foresee is a 500 that tells nothing to the outside and everything to the log.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from stormpetrel.errors import (
    AccessError,
    DiskFullError,
    ModelBusyError,
    ModelError,
    ModelFormatError,
    NotThereError,
    SourceUnavailableError,
    StateAwayError,
    StoreBusyError,
    StoreNotWritableError,
    StormpetrelError,
    UsageError,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger("stormpetrel.serve")
_PAGE: Final = Path(__file__).parent / "refusal.html"
_RETRY_AFTER_S: Final = 5
_LONGEST_WHAT: Final = 300
_STATUS: Final[tuple[tuple[type[StormpetrelError], int], ...]] = (  # the first that fits
    (AccessError, 403),
    (NotThereError, 404),
    (UsageError, 422),
    (ModelFormatError, 503),
    (ModelBusyError, 503),
    (ModelError, 409),  # no model yet, or too few jobs
    (StoreBusyError, 503),
    (StateAwayError, 503),
    (DiskFullError, 507),
    (StoreNotWritableError, 409),
    (SourceUnavailableError, 503),
)


class UnexpectedError(StormpetrelError):
    """What the outside is reported an error that nobody foresaw: nothing of it."""

    def __init__(self) -> None:
        super().__init__(
            "Something unexpected happened; it is in the server's log.",
            hint="Try again; if it persists, tell your administrator when it happened.",
        )


class NotSavedError(StormpetrelError):
    """The error shown outside where the site cannot be written; it names neither folder nor disk."""

    def __init__(self, error: StormpetrelError) -> None:
        full = isinstance(error, DiskFullError)
        what = "The server's disk is full; nothing was saved." if full else "This site is read-only here; nothing was saved."
        super().__init__(what, hint="Tell your administrator." if full else "It can be read.")


class RefusedError(AccessError):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int, what: str, *, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = dict(headers or {})
        super().__init__(what, hint=hint)


def status_of(error: StormpetrelError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def wants_page(scope: Scope) -> bool:
    """Whether a person looks at the answer, not a program."""
    path: str = scope["path"]
    if path.startswith(("/api/", "/_dash-", "/healthz", "/readyz")):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def answer_to(error: StormpetrelError, scope: Scope) -> Response:
    """What is answered in place of what was requested."""
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, RefusedError) else {}
    if status == 503 and error.retry_helps:
        headers.setdefault("Retry-After", str(_RETRY_AFTER_S))
    if status == 500 and not isinstance(error, UnexpectedError):  # a broken site: its own sentence may name paths of the server
        _log.error("%s", error)
        error = UnexpectedError()
    if isinstance(error, StoreNotWritableError):
        _log.error("%s", error)
        error = NotSavedError(error)
    if wants_page(scope):
        return HTMLResponse(_page(status, error), status, headers)
    return JSONResponse({"error": {"what": error.what, "hint": error.hint}}, status, headers)


def _page(status: int, error: StormpetrelError) -> str:
    values = {"status": str(status), "what": error.what, "hint": error.hint}
    return Template(_PAGE.read_text(encoding="utf-8")).substitute({name: html.escape(value) for name, value in values.items()})


def install_errors(app: FastAPI) -> None:
    """Let an app answer every error in the same form: `{"error": {"what": …, "hint": …}}`, or a small page."""
    from fastapi.exceptions import RequestValidationError

    async def ours(request: Request, error: Any) -> Response:
        return answer_to(error, request.scope)

    async def invalid(request: Request, error: Any) -> Response:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        what = f"{where}: {problem['msg']}."[:_LONGEST_WHAT]
        return answer_to(RefusedError(422, what, hint="The API's own pages say what it expects."), request.scope)

    async def of_the_framework(request: Request, error: Any) -> Response:
        what = "There is nothing at this address." if error.status_code == 404 else f"{error.detail}."
        hint = "Start again at the first page." if error.status_code == 404 else ""
        return answer_to(RefusedError(error.status_code, what, hint=hint, headers=error.headers), request.scope)

    app.add_exception_handler(StormpetrelError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, of_the_framework)


class LogUnexpected:
    """ASGI middleware next to the endpoints: logs what nobody foresaw, and answers with a 500 that tells nothing of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and watch."""
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http" or has_begun or type(error).__name__ == "PreventUpdate":  # Dash's way to say: no change
                raise
            _log.exception("unexpected, while answering %s %s", scope["method"], quote(scope["path"]))
            await answer_to(UnexpectedError(), scope)(scope, receive, send)

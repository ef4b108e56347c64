"""The web application: a request below the app's address -> the service, over its socket, as this user -> a page.

Passenger runs one process per user, as that user: the kernel tells the service who asks, and nothing in a request is believed.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from stormpetrel_client.service import Service
from stormpetrel_client.where import ClientError, find_service

from stormpetrel_ondemand import pages

Environment = Mapping[str, Any]
StartResponse = Callable[[str, "list[tuple[str, str]]"], Any]

MOST_SCRIPT = 300_000  # characters, as in the light client
_MOST_BODY = 3 * MOST_SCRIPT + 10_000  # bytes; in a form a sign of ASCII takes up to three, a letter beyond it more
_TIMEOUT_S = 10.0
_WIDGET_TIMEOUT_S = 3.0
_NOT_THERE = 3  # code of an error: it does not exist, or may not be seen
_COOKIE = "stormpetrel_form"
_MOST_PARAMETERS = 20
_MOST_ADVISED = 5
_WIDGET_ADVISED = 2
_WEEKS = 4
_JOB = re.compile(r"[0-9]{1,18}([_+][0-9]{1,9})?")
_NOT_UNDERSTOOD = "The service and this application do not understand each other."
_FOLDER = Path(__file__).parent
_STATUS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large",
    503: "Service Unavailable",
}  # fmt: skip
_POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
_HEADERS = [
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


class _PageError(Exception):
    """A request that cannot be answered: a status, what is wrong and what to do."""

    def __init__(self, status: int, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.hint = status, what, hint


class _Request:
    """One request, and the cookie that its forms carry."""

    def __init__(self, environment: Environment) -> None:
        self.base = str(environment.get("SCRIPT_NAME") or "").rstrip("/")
        self.path = str(environment.get("PATH_INFO") or "/")
        self.method = str(environment.get("REQUEST_METHOD", "GET"))
        self._environment = environment
        known = self._cookie()
        self.is_new = not known
        self.token = known or secrets.token_urlsafe(24)

    def parameter(self, name: str) -> str:
        """A parameter of the address; empty where there is none."""
        try:
            query = parse_qs(str(self._environment.get("QUERY_STRING") or ""), max_num_fields=_MOST_PARAMETERS)
        except ValueError:
            raise _PageError(400, "The address cannot be read.", "Choose a page from the menu.") from None
        return (query.get(name) or [""])[0]

    def form(self) -> dict[str, str]:
        """The fields of a form that one of our own pages has sent."""
        try:
            length = int(self._environment.get("CONTENT_LENGTH") or 0)
        except ValueError:
            raise _PageError(400, "The request does not say how long it is.") from None
        if length > _MOST_BODY:
            raise _PageError(413, "The script is too long.", f"Paste at most {MOST_SCRIPT:,} characters; directives come first.")
        body = self._environment["wsgi.input"].read(max(0, length))
        try:
            fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=10)
        except ValueError:
            raise _PageError(400, "The form cannot be read.", "Open the page again.") from None
        sent = {name: values[0] for name, values in fields.items()}
        self._check_sender(sent.get("token", ""))
        return sent

    def _check_sender(self, token: str) -> None:
        site = self._environment.get("HTTP_SEC_FETCH_SITE", "same-origin")
        if self.is_new or site != "same-origin" or not hmac.compare_digest(token.encode(), self.token.encode()):
            raise _PageError(
                403, "This form was not sent by a page of this application.", "Open the page again, and send it then."
            )

    def _cookie(self) -> str:
        try:
            jar = SimpleCookie(str(self._environment.get("HTTP_COOKIE") or ""))
        except CookieError:
            return ""
        value = jar[_COOKIE].value if _COOKIE in jar else ""
        return value if re.fullmatch(r"[A-Za-z0-9_-]{32}", value) else ""

    def cookie_header(self) -> tuple[str, str]:
        """What sets the cookie."""
        secure = (
            "; Secure" if self._environment.get("wsgi.url_scheme") == "https" or self._environment.get("HTTPS") == "on" else ""
        )
        return ("Set-Cookie", f"{_COOKIE}={self.token}; Path={self.base or '/'}; HttpOnly; SameSite=Strict{secure}")


def application(environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request."""
    request = _Request(environment)
    kind = "text/html; charset=utf-8"
    try:
        status, text = 200, _answer(request)
        if isinstance(text, tuple):
            kind, text = text
    except _PageError as error:
        status, text = error.status, pages.error_page(request.base, error.what, error.hint)
    except ClientError as error:
        status, text = (404 if error.code == _NOT_THERE else 503), pages.error_page(request.base, error.what, error.hint)
        if request.path == "/widget":
            text = pages.widget_error(error.what)
    except (LookupError, TypeError, ValueError, AttributeError):  # an answer of another form than this application expects
        status, text = 503, pages.widget_error(_NOT_UNDERSTOOD)
        if request.path != "/widget":
            text = pages.error_page(request.base, _NOT_UNDERSTOOD, "Ask your administrators to install both in one version.")
    data = text.encode("utf-8", errors="replace")  # a name may hold half a character
    headers = [*_HEADERS, ("Content-Type", kind), ("Content-Length", str(len(data)))]
    if request.is_new and request.path != "/widget":
        headers.append(request.cookie_header())
    start_response(f"{status} {_STATUS[status]}", headers)
    return [] if request.method == "HEAD" else [data]


def _answer(request: _Request) -> Any:
    routes: dict[str, Callable[[_Request], Any]] = {
        "/": _overview, "/jobs": _jobs, "/waste": _waste, "/advice": _advice, "/check": _check, "/why": _why, "/widget": _widget,
        "/style.css": _style, "/icon.svg": _icon,
    }  # fmt: skip
    page = routes.get(request.path or "/")
    if page is None:
        raise _PageError(404, "There is no such page.", "Choose one from the menu.")
    if request.method not in (("GET", "HEAD", "POST") if page is _check else ("GET", "HEAD")):
        raise _PageError(405, "This page cannot be sent anything.")
    return page(request)


def _service(timeout_s: float = _TIMEOUT_S) -> Service:
    return Service(find_service(os.environ), timeout_s=timeout_s)


def _overview(request: _Request) -> str:
    service = _service()
    at_risk, waste = _jobs_at_risk(service, 10), _waste_of(service, "application")
    return pages.overview_page(request.base, at_risk, waste, _advised(service, at_risk["items"], _MOST_ADVISED))


def _jobs(request: _Request) -> str:
    return pages.jobs_page(request.base, _jobs_at_risk(_service(), 100))


def _waste(request: _Request) -> str:
    by = request.parameter("by") or "application"
    if by not in pages.WASTE_GROUPS:
        raise _PageError(400, "Waste is not grouped by that.", f"Choose one of: {', '.join(pages.WASTE_GROUPS)}.")
    return pages.waste_page(request.base, _waste_of(_service(), by))


def _advice(request: _Request) -> str:
    service = _service()
    return pages.advice_page(request.base, _advised(service, _jobs_at_risk(service, 20)["items"], 2 * _MOST_ADVISED))


def _check(request: _Request) -> str:
    if request.method != "POST":
        return pages.check_page(request.base, request.token)
    form = request.form()
    script = form.get("script", "").replace("\r\n", "\n")
    if not script.strip():
        raise _PageError(400, "There is no script to check.", "Paste the script that you would submit.")
    if len(script) > MOST_SCRIPT:
        raise _PageError(413, "The script is too long.", f"Paste at most {MOST_SCRIPT:,} characters; directives come first.")
    body = {"text": script, "name": "pasted script", "folder": os.environ.get("HOME", "/"), "arguments": []}
    return pages.check_page(request.base, request.token, script, _service().ask("POST", "/predict/script", body=body))


def _why(request: _Request) -> str:
    job = request.parameter("job").strip()
    if not job:
        return pages.why_page(request.base, "")
    if not _JOB.fullmatch(job):
        raise _PageError(400, "That is not the id of a job.", "Expected such as 12345 or 12345_7.")
    service = _service()
    found = service.ask("GET", "/find", query={"id": job}).get("items") or []
    if not found:
        raise _PageError(404, f"There is no job {job} that you may see.", "Check its id.")
    return pages.why_page(request.base, job, service.ask("GET", f"/jobs/{found[0]['ref']}"))


def _widget(request: _Request) -> str:
    service = _service(_WIDGET_TIMEOUT_S)
    at_risk = _jobs_at_risk(service, 5)
    return pages.widget(
        request.base, at_risk, _waste_of(service, "application"), _advised(service, at_risk["items"], _WIDGET_ADVISED)
    )


def _jobs_at_risk(service: Service, limit: int) -> dict[str, Any]:
    """Jobs that wait or run and are flagged, the riskiest first."""
    query = {"flagged": "true", "state": ["PENDING", "RUNNING"], "sort": "-risk", "limit": limit}
    answer = service.ask("GET", "/jobs", query=query)
    return {"items": answer.get("items") or [], "total": answer.get("total", 0)}


def _waste_of(service: Service, by: str) -> dict[str, Any]:
    return dict(service.ask("GET", "/waste", query={"by": by, "weeks": _WEEKS}))


def _advised(service: Service, at_risk: Iterable[Mapping[str, Any]], most: int) -> list[dict[str, Any]] | None:
    """Advice on the open jobs at risk, then on the latest failed ones; one job of each name is asked about.

    It takes longest: where the service is too busy for it, what there is so far is shown with the rest of the page, or None.
    """
    failed = service.ask("GET", "/jobs", query={"failed": "true", "limit": 50}).get("items") or []
    chosen: dict[str, Mapping[str, Any]] = {}
    for row in (*at_risk, *failed):
        chosen.setdefault(str(row.get("job_name")), row)
    advised: list[dict[str, Any]] = []
    for row in list(chosen.values())[: 2 * most]:
        try:
            answer = service.ask("GET", f"/jobs/{row['ref']}/advice")
        except ClientError as error:
            if error.code == _NOT_THERE:  # the job is gone
                continue
            return advised or None
        pieces = [piece for piece in (answer.get("next"), *(answer.get("advice") or [])) if piece]
        if pieces:
            advised.append({"job": row, "advice": pieces[0]})
        if len(advised) >= most:
            break
    return advised


def _style(_: _Request) -> tuple[str, str]:
    return "text/css; charset=utf-8", (_FOLDER / "style.css").read_text(encoding="utf-8")


def _icon(_: _Request) -> tuple[str, str]:
    return "image/svg+xml", (_FOLDER.parent / "icon.svg").read_text(encoding="utf-8")

"""Logging in with a token, for browsers: POST it -> a session in a cookie that no script can read; POST /logout ends it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from stormpetrel.answers.viewer import READ
from stormpetrel.errors import UsageError
from stormpetrel.faces.web.incoming import TrustedProxies
from stormpetrel.faces.web.sessions import SESSION_S, Sessions
from stormpetrel.store.site import Site
from stormpetrel.store.tokens import Token
from stormpetrel.store.views import checked_link

_HERE: Final = Path(__file__).parent
_LARGEST_FORM: Final = 8000


@dataclass(frozen=True, slots=True)
class LoginService:
    """What the login pages need: the site, its sessions, trusted proxies, the cookie."""

    site: Site
    sessions: Sessions
    proxies: TrustedProxies
    cookie: str  # its name
    prefix: str


def login_router(service: LoginService) -> APIRouter:
    """The pages /login and /logout."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login.css")
    async def style() -> FileResponse:
        return FileResponse(_HERE / "login.css", media_type="text/css")

    @router.get("/login")
    async def page(request: Request) -> Response:
        return _page(service, _ours(request.query_params.get("next", "/")))

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        body = await request.body()
        form = parse_qs(body.decode("utf-8", "replace")) if len(body) <= _LARGEST_FORM else {}
        follow = _ours(form.get("next", ["/"])[0])
        token = await run_in_threadpool(service.site.tokens.find, form.get("token", [""])[0].strip())
        if token is None:
            return _page(service, follow, "This token is not valid: unknown, revoked or past its time.", status=401)
        if READ not in token.scopes:
            return _page(service, follow, f"This token is for programs: it does not have the scope '{READ}'.", status=403)
        await run_in_threadpool(service.site.audit.count, token.user, "logged in", {"token": token.name})
        return _with_session(service, request, token, RedirectResponse(service.prefix + follow, 303))

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        session = request.cookies.get(service.cookie)
        if session:
            service.sessions.end(session)
        answer = RedirectResponse(f"{service.prefix}/login", 303)
        answer.delete_cookie(service.cookie, path=service.prefix or "/", httponly=True, samesite="strict")
        return answer

    return router


def _with_session(service: LoginService, request: Request, token: Token, answer: Response) -> Response:
    before = request.cookies.get(service.cookie)
    if before:
        service.sessions.end(before)
    answer.set_cookie(
        service.cookie,
        service.sessions.begin(token.digest),
        max_age=int(SESSION_S),
        path=service.prefix or "/",
        secure=service.proxies.incoming(request.scope).is_https,
        httponly=True,
        samesite="strict",
    )
    return answer


def _ours(link: str) -> str:
    """Where to go after the login; never to another host."""
    try:
        return checked_link(link)
    except UsageError:
        return "/"


def _page(service: LoginService, follow: str, problem: str = "", *, status: int = 200) -> HTMLResponse:
    values = {"site": service.site.settings.site.name, "problem": problem, "next": follow, "prefix": service.prefix}
    template = Template((_HERE / "login.html").read_text(encoding="utf-8"))
    return HTMLResponse(template.substitute({name: html.escape(value) for name, value in values.items()}), status)

"""The web application: security around everything, then login, health, the API and the dashboard.

LiveSite -> create_app -> FastAPI, for one uvicorn worker.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from stormpetrel import __version__
from stormpetrel.answers.schemas.base import build_models
from stormpetrel.errors import SettingsError, StormpetrelError
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.web.incoming import TrustedProxies
from stormpetrel.faces.web.listening import ListenAddress
from stormpetrel.faces.web.login import LoginService, Sessions, login_router
from stormpetrel.faces.web.refusals import LogUnexpected, install_errors
from stormpetrel.faces.web.response_headers import content_security_policy, inline_script_hashes
from stormpetrel.faces.web.security import Rules, Security
from stormpetrel.faces.web.viewers import AccessControl
from stormpetrel.store.watch_status import read_watch
from stormpetrel.watch.host_names import HostNames

if TYPE_CHECKING:
    from dash import Dash

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.store.site import Site

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def create_app(live: LiveSite, *, address: str | None = None) -> FastAPI:
    """The whole web server of a site; `address` is where it listens, if not at serve.address."""
    from stormpetrel.faces.dashboard.app import add_dashboard

    app = bare_app(live)
    app.include_router(router(live))
    dash = add_dashboard(app, live)
    return protected(app, live.site, address=address, script_hashes=_script_hashes(dash))


def bare_app(live: LiveSite) -> FastAPI:
    """An app that answers errors in our way and says how it is; nothing protects it yet."""
    build_models()
    app = FastAPI(
        title="Stormpetrel",
        version=__version__,
        docs_url=None,  # those of FastAPI load from another host
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,  # a redirect would name the host that the proxy sees
        servers=[{"url": prefix_of(live.site) or "/"}],
    )
    install_errors(app)
    app.add_middleware(LogUnexpected)  # before Dash's, which answers errors without a word to the log

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> JSONResponse:
        what = _missing(live)
        if what:
            return JSONResponse({"status": what}, 503, {"Retry-After": "5"})
        return JSONResponse({"status": "ready", **_watch_seen(live)})

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> Response:
        return Response(status_code=204)  # pages name their own icon; some browsers ask for this one all the same

    return app


def _missing(live: LiveSite) -> str:
    """What a server that has just started, or lost something, still lacks; empty: nothing."""
    if live.refreshed_at is None:
        return "reading the site"
    try:
        live.site.models.versions()
    except StormpetrelError:
        return "the state store does not answer"
    return ""


def _watch_seen(live: LiveSite) -> dict[str, object]:
    """State of the watch, without names: pages can be read while it is away, and say how old they are."""
    watch, now = read_watch(live.site.state), datetime.now(UTC)
    state = watch.state(now)
    return {"watch": state} if state == "never" else {"watch": state, "watch_heard_s_ago": round(watch.silent_s(now), 1)}


def protected(app: FastAPI, site: Site, *, address: str | None = None, script_hashes: list[str] | None = None) -> FastAPI:
    """Put the door around an app that is otherwise complete; also used by tests, around apps of their own."""
    serve = site.settings.serve
    sessions = Sessions()
    access = AccessControl(site, sessions)
    rules = Rules(
        proxies=TrustedProxies.of(serve, site.folder),
        hosts=HostNames(serve.hosts, bound_to=ListenAddress.parse(address or serve.address).host),
        prefix=prefix_of(site),
        requests_per_minute=serve.requests_per_minute,
        policy=content_security_policy(script_hashes or []),
        login_page=serve.login == "token",
    )
    if rules.login_page:
        app.include_router(login_router(LoginService(site, sessions, rules.proxies, access.cookie, rules.prefix)))
    app.add_middleware(Security, access=access, rules=rules)  # the last one added is the outermost
    return app


def prefix_of(site: Site) -> str:
    """The path under which a proxy shows the pages, without a slash at its end; empty for none."""
    prefix = site.settings.serve.prefix.rstrip("/")
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"serve.prefix: {prefix!r} is not a path.", hint="Expected such as /node/login1/8050.")
    return prefix


def _script_hashes(dash: Dash) -> list[str]:
    """The inline scripts of the dashboard: Dash's own, those of callbacks in the browser, and those of the page around it."""
    own: Any = dash.csp_hashes()
    return [*own, *inline_script_hashes(dash.index_string)]

"""The Dash application inside the web server: FastAPI + LiveSite -> add_dashboard -> Dash, with every page registered."""

from __future__ import annotations

import asyncio
import functools
import gzip
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go
from dash import Dash, set_props
from dash.backends._fastapi import FastAPIDashServer, reset_current_request, set_current_request

from stormpetrel.answers.viewer import READ, current_viewer
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.faces.dashboard.shell import register_shell, shell_layout

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

    from stormpetrel.answers.live_site import LiveSite

_HERE: Final = Path(__file__).parent
_log = logging.getLogger("stormpetrel.serve")
_IN_HEAD: Final = "theme.js"  # decides on light or dark before anything is painted


def add_dashboard(app: FastAPI, live: LiveSite) -> Dash:
    """Put the dashboard's pages and callbacks on the web server; whatever protects them is added by the caller, afterwards."""
    prefix = live.settings.serve.prefix.rstrip("/")
    dash = _Dashboard(
        "stormpetrel",
        server=False,
        backend=_Server,
        assets_folder=str(_HERE / "assets"),
        assets_ignore=_IN_HEAD.replace(".", r"\."),
        requests_pathname_prefix=f"{prefix}/",
        routes_pathname_prefix="/",
        serve_locally=True,
        suppress_callback_exceptions=True,  # most components are on the page that is open, not in the first layout
        title="Stormpetrel",
        update_title="",
        index_string=_index(f"{prefix}/assets/{_IN_HEAD}", f"{prefix}/assets/mark.svg"),
        add_log_handler=False,
        on_error=_report_error,
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "color-scheme", "content": "light dark"},
        ],
    )
    dash.init_app(app)
    dash.layout = functools.partial(shell_layout, dash, live)
    register_shell(dash, live)
    for page in PAGES:
        page.register(dash, live)
        _serve_page(app, dash, page.path)
        for path in page.earlier_paths:
            _redirect(app, path, prefix + page.path)
    _warm_up()
    dash._setup_server()  # type: ignore[no-untyped-call]  # Dash does it at the first visit of "/"; the first visitor may come to another page
    return dash


def _report_error(error: Exception) -> None:
    """What a callback could not answer: a sentence to the page, which stays as it is; what nobody foresaw also to the log."""
    if isinstance(error, StormpetrelError):
        set_props("shell-problem", {"children": str(error)})
        return
    _log.error("unexpected, in a callback of the dashboard", exc_info=error)
    set_props("shell-problem", {"children": "Something went wrong in the server; its log has the details. Reload to try again."})


def _warm_up() -> None:
    """Load Plotly and its templates now: it takes a second, and two threads that do it at once trip over each other."""
    go.Figure(go.Waterfall(), layout={"template": "plotly_white"}).to_plotly_json()


class _Server(FastAPIDashServer):
    """Dash on FastAPI, without what we do not use: a WebSocket, and a page for every path that there is not."""

    websocket_capability = False

    def serve_component_suites(self, dash_app: Dash, package_name: str, fingerprinted_path: str, request: Request) -> Response:
        """As Dash's, but compressed, once: Plotly and AG Grid have megabytes, and some sit at the far end of a tunnel."""
        answer: Response = super().serve_component_suites(dash_app, package_name, fingerprinted_path, request)
        if answer.status_code == HTTPStatus.OK and "gzip" in request.headers.get("accept-encoding", ""):
            answer.body = _compressed(bytes(answer.body))
            answer.headers.update(
                {"Content-Encoding": "gzip", "Content-Length": str(len(answer.body)), "Vary": "Accept-Encoding"}
            )
        return answer

    def _setup_catchall(self) -> None:
        """Each page has its route (`_serve_page`); an unknown path is a 404."""


class _Dashboard(Dash):
    """A Dash whose callbacks answer readers only, and run in threads: on the event loop one slow page would hold up everybody."""

    def callback(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As Dash's; the viewer (a context variable) must have the scope to read, and goes along into the thread."""
        register: Callable[..., Any] = super().callback(*args, **options)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            registered: Callable[..., Any] = register(_for_readers(function))
            return registered

        return decorate

    def _initialize_context(self, body: Any) -> Any:
        """As Dash's; what none of our pages sends is reported to the sender, not to the log."""
        with _only_from_our_pages():
            return super()._initialize_context(body)

    def _prepare_callback(self, g: Any, body: Any) -> Any:
        """As Dash's, and as above."""
        with _only_from_our_pages():
            return super()._prepare_callback(g, body)


@contextmanager
def _only_from_our_pages() -> Iterator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError("No page of the dashboard sends such a request.", hint="Reload the page.") from error


@functools.lru_cache(64)
def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, 6, mtime=0)


def _for_readers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callback that answers readers only, whatever its page forgets; in a thread, unless it is a coroutine."""
    is_coroutine = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    async def run(*args: Any, **named: Any) -> Any:
        current_viewer().require(READ)
        return await (function(*args, **named) if is_coroutine else asyncio.to_thread(function, *args, **named))

    return run


def _serve_page(app: FastAPI, dash: Any, path: str) -> None:
    from fastapi import Request, Response

    async def page(request: Request) -> Response:
        token = set_current_request(request)  # type: ignore[no-untyped-call]
        try:
            return Response(dash.index(), media_type="text/html")
        finally:
            reset_current_request(token)  # type: ignore[no-untyped-call]

    page.__annotations__["request"] = Request
    if path != "/":  # Dash serves that one itself
        app.add_api_route(path, page, methods=["GET"], include_in_schema=False, response_class=Response)


def _redirect(app: FastAPI, path: str, target: str) -> None:
    """Send a path of an older version to the page's path of today, with its parameters."""
    from fastapi import Request
    from fastapi.responses import RedirectResponse

    async def moved(request: Request) -> RedirectResponse:
        query = request.url.query
        return RedirectResponse(f"{target}?{query}" if query else target, HTTPStatus.PERMANENT_REDIRECT)

    moved.__annotations__["request"] = Request
    app.add_api_route(path, moved, methods=["GET"], include_in_schema=False, response_class=RedirectResponse)


def _index(theme_script: str, icon: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
  <head>
    {{%metas%}}
    <title>{{%title%}}</title>
    <link rel="icon" type="image/svg+xml" href="{icon}">
    <script src="{theme_script}"></script>
    {{%css%}}
  </head>
  <body>
    <noscript>This page needs JavaScript. Without it: stormpetrel jobs predict, or the API.</noscript>
    {{%app_entry%}}
    <footer>
      {{%config%}}
      {{%scripts%}}
      {{%renderer%}}
    </footer>
  </body>
</html>"""

"""Web servers for tests: the door of the real one around a small app, and the real one itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request, WebSocket

from stormpetrel.answers.viewer import current_viewer
from stormpetrel.config import Settings
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.web.app import bare_app, protected
from stormpetrel.faces.web.connections import ConnectionLimits
from stormpetrel.faces.web.serving import server_config
from stormpetrel.store.site import Site
from stormpetrel.store.state import open_state

LOOPBACK = ("127.0.0.1", 50_000)
ELSEWHERE = ("10.9.8.7", 50_000)
BROWSER = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
OTHER_PAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://evil.example"}


def door_site(folder: Path, **sections: dict[str, Any]) -> Site:
    """A site with settings and state but no tables, which take most of the time to make and which no door looks at."""
    folder.mkdir(mode=0o700)
    return Site(folder, Settings.model_validate(sections), open_state(folder, lock_folder=folder), b"k" * 32)


def live_of(site: Site) -> Any:
    """As much of a LiveSite as the door needs."""
    return SimpleNamespace(site=site, settings=site.settings, refreshed_at=datetime.now(UTC))


def small_app(site: Site, raises: StormpetrelError | Exception | None = None) -> FastAPI:
    """Who am I, an echo, and something that goes wrong, behind the real door."""
    app = bare_app(live_of(site))

    def who() -> dict[str, Any]:
        viewer = current_viewer()
        return {"user": viewer.user, "is_admin": viewer.is_admin, "scopes": sorted(viewer.scopes)}

    @app.get("/api/v1/who")
    def who_in_a_thread() -> dict[str, Any]:
        return who()

    @app.get("/page")
    async def who_on_the_loop() -> dict[str, Any]:
        return who()

    @app.post("/api/v1/echo")
    async def echo(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.websocket("/_dash-ws-callback")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()

    @app.get("/api/v1/wrong")
    @app.get("/wrong")
    async def wrong() -> None:
        assert raises is not None
        raise raises

    return protected(app, site)


def api_app(site: Site) -> Any:
    """The whole API behind the real door, without the dashboard."""
    app = bare_app(live_of(site))
    app.include_router(router(live_of(site)))
    return protected(app, site)


class WebClient:
    """Sends requests to an app inside this process and keeps cookies, as a browser would."""

    def __init__(self, app: Any, *, peer: tuple[str, int], base_url: str) -> None:
        transport = httpx.ASGITransport(app, client=peer, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, headers={"User-Agent": "a-program"})
        self.cookies = self._client.cookies

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


def client_of(app: Any, *, peer: tuple[str, int] = LOOPBACK, host: str = "127.0.0.1:8050", scheme: str = "http") -> WebClient:
    """A client that comes from loopback and says what it is talking to."""
    return WebClient(app, peer=peer, base_url=f"{scheme}://{host}")


@contextlib.contextmanager
def running(app: Any, limits: ConnectionLimits | None = None) -> Iterator[str]:
    """A real uvicorn on a free port of loopback, set up as `serve` does; its address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = uvicorn.Server(server_config(app, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()


def wait_until(holds: Any, limit_s: float = 20.0, every_s: float = 0.01) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "waited too long"
        threading.Event().wait(every_s)

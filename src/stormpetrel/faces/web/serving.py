"""`stormpetrel serve`, the work of it: a site -> a web server on one address, until it is stopped."""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.errors import MissingExtraError, SettingsError
from stormpetrel.faces.web.listening import ListenAddress, UserSocket
from stormpetrel.faces.web.logs import MergedLog

if TYPE_CHECKING:
    import socket

    import uvicorn
    from fastapi import FastAPI

    from stormpetrel.config import ServeSection
    from stormpetrel.faces.web.connections import ConnectionLimits
    from stormpetrel.store.site import Site

_NEEDED: Final = ("fastapi", "uvicorn", "dash", "dash_ag_grid")
_GRACE_S: Final = 5


def serve(
    site: Site, *, address: str | None = None, open_browser: bool = False, tell: Callable[[str], None] = lambda _line: None
) -> None:
    """Serve the dashboard and the API of a site until SIGTERM or SIGINT; `tell` gets the lines that people should read first."""
    refuse_missing_extra()
    where = ListenAddress.parse(address or site.settings.serve.address)
    refuse_open_door(where, site.settings.serve)
    from stormpetrel.faces.web.app import create_app, prefix_of
    from stormpetrel.faces.web.incoming import TrustedProxies

    prefix = prefix_of(site)
    anyone_poses = TrustedProxies.of(site.settings.serve, site.folder).any_local_user_is_one
    listener = where.bind()
    where = ListenAddress(where.host, listener.getsockname()[1])  # port 0 means: any that is free
    link = f"http://{where}{prefix}/"
    live = LiveSite(site)
    try:
        # Before the thread that follows the site: two threads that import pandas at the same time meet it half done, and plotly
        # takes it for whole while scikit-learn imports it in another.
        import sklearn.utils  # noqa: F401

        app = create_app(live, address=str(where))
        live.start()
        for line in opening_lines(link, where, site.settings.serve, anyone_poses=anyone_poses):
            tell(line)
        if site.read_only:
            tell(f"The site is read-only: {site.read_only}. Pages and API answer; what is saved there is refused.")
        with _user_socket(site.settings.serve.socket, tell) as more:
            run_server(app, [listener, *more], when_up=(lambda: _open(link)) if open_browser else None)
    finally:
        live.stop()
        listener.close()


def refuse_missing_extra() -> None:
    """Say which extra to install where the server's libraries are not there."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtraError("The dashboard", "dashboard")


def refuse_open_door(where: ListenAddress, settings: ServeSection) -> None:
    """Without a login nobody but this machine may reach the server: whoever does is the administrator."""
    if settings.login == "none" and not where.is_loopback:
        raise SettingsError(
            f"Without a login {where} would show everybody's jobs to everybody who reaches it.",
            hint="Set serve.login to 'proxy' or 'token' in site.toml, or listen at 127.0.0.1.",
        )


def opening_lines(link: str, where: ListenAddress, settings: ServeSection, *, anyone_poses: bool) -> list[str]:
    """The lines printed at the start: the address, and who can connect."""
    lines = [f"Stormpetrel is at {link} (Ctrl-C stops it)."]
    if settings.login == "none":
        lines.append(
            "There is no login: EVERY USER OF THIS MACHINE can open it and is the administrator. "
            "On a shared login node set serve.login to 'token' in site.toml."
        )
    if settings.login == "proxy" and anyone_poses:
        lines.append(
            "The proxy is on this machine, and EVERY USER OF THIS MACHINE can pose as it and be anybody. "
            "If others have accounts here, set serve.proxy_secret_file in site.toml."
        )
    if settings.login == "token" and not where.is_loopback:
        lines.append(
            "Tokens travel unencrypted to this address: put a proxy with TLS in front of it, and let nobody else reach it."
        )
    return lines


@contextmanager
def _user_socket(path: str, tell: Callable[[str], None]) -> Iterator[list[socket.socket]]:
    """The socket for users of this machine, where the site wants one."""
    if not path:
        yield []
        return
    with UserSocket(Path(path)).listening() as listener:
        tell(f"Users of this machine reach it at {path}, without a token.")
        yield [listener]


def run_server(app: FastAPI, listeners: list[socket.socket], *, when_up: Callable[[], None] | None = None) -> None:
    """Answer requests on sockets until SIGTERM or SIGINT, then finish those that are under way."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if when_up is not None and self.started:
                when_up()

    with _log_to_stderr(), _stop_is_no_failure():
        Server(server_config(app)).run(sockets=listeners)


def server_config(app: Any, limits: ConnectionLimits | None = None) -> uvicorn.Config:
    """How uvicorn is to serve an app."""
    import uvicorn

    from stormpetrel.faces.web.connections import ConnectionLimits, bounded_protocol

    limits = limits or ConnectionLimits()
    return uvicorn.Config(
        app,
        workers=1,
        http=bounded_protocol(limits),
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=math.ceil(limits.idle_s),
        log_config=None,
        access_log=False,  # ours has no query strings in it
        proxy_headers=False,  # whom to believe is decided in incoming.py, by the peer's real address
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )


@contextmanager
def _stop_is_no_failure() -> Iterator[None]:
    """Uvicorn raises the signal that stopped it once more when it is done: that must not kill us before we have cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Let the server's loggers speak, one line each, with the time in UTC."""
    handler = MergedLog(sys.stderr)
    levels = {"stormpetrel": logging.INFO, "uvicorn.error": logging.WARNING}
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
            logging.getLogger(name).removeHandler(handler)
        handler.close()


def _open(link: str) -> None:
    threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()  # some browsers hold the caller

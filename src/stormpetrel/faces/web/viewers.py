"""Access control: a request -> a Viewer, by `serve.login`. `current_viewer()` says it to whatever answers the request.

A token, where one is shown, decides alone: it can only narrow what its bearer could see without it.
"""

from __future__ import annotations

import base64
import hashlib
import pwd
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final, Literal

from starlette.concurrency import run_in_threadpool

from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.faces.web.incoming import Incoming
from stormpetrel.faces.web.login import Sessions
from stormpetrel.faces.web.refusals import RefusedError
from stormpetrel.store.tokens import PREFIX, Token, digest_of

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

_NAME: Final = re.compile(r"[^\s,;:=|/\"'<>()\[\]{}]{1,128}")  # `(null)`, which Apache sends for nobody, is none
_TOKEN_KEPT_S: Final = 1.0  # how long a token is believed before it is looked up again: that is how fast a revocation works
_MOST_KEPT: Final = 10_000
_BASIC_PATH: Final = "/api/v1/jobcomp"  # Slurm can send a token only as the password of JobCompLoc: http://slurm:sp_…@host/…


@dataclass(frozen=True, slots=True)
class Known:
    """A viewer, and how it was authenticated."""

    viewer: Viewer
    by: Literal["loopback", "proxy", "token", "session", "socket"]

    @property
    def counted_as(self) -> str:
        """By which name the requests are counted; those of loopback are counted by address."""
        return f"{self.by}:{self.viewer.user}" if self.by != "loopback" else ""


class AccessControl:
    """Identify the viewer of a request, or refuse it."""

    def __init__(self, site: Site, sessions: Sessions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._serve = site.settings.serve
        self._tokens = site.tokens
        self._sessions = sessions
        self._clock = clock
        privacy, hides_names = site.privacy, site.settings.store.pseudonymise_users
        self._in_tables = lru_cache(4096)(lambda name: privacy.pseudonym(name) if hides_names else name)
        self._admins = {self._in_tables(name) for name in self._serve.admins}
        self._owner = site.folder.stat().st_uid
        self._kept: dict[str, tuple[Token, float]] = {}
        self.cookie = f"stormpetrel_{hashlib.sha256(str(site.folder.resolve()).encode()).hexdigest()[:8]}"  # ports share cookies

    async def admit(self, request: Incoming) -> Known:
        """The viewer behind a request."""
        bearer = self._bearer(request)
        if bearer is not None:
            return Known(self._viewer_of(await self._valid(digest_of(bearer))), "token")
        if request.uid is not None:
            return Known(self._by_uid(request.uid), "socket")
        if self._serve.login == "token":
            return Known(self._viewer_of(await self._valid(self._of_session(request))), "session")
        if self._serve.login == "proxy":
            return Known(self._by_proxy(request), "proxy")
        return Known(_by_loopback(request, self._serve.user_header), "loopback")

    def session_in(self, request: Incoming) -> str | None:
        """The session that a browser's cookie names."""
        try:
            jar = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return None
        return jar[self.cookie].value if self.cookie in jar else None

    def _bearer(self, request: Incoming) -> str | None:
        """The token that a program shows; another one than ours is the proxy's business where there is a proxy."""
        kind, _, token = (request.single("authorization") or "").partition(" ")
        if kind.lower() == "basic" and request.path == _BASIC_PATH:
            return _password(token)
        if kind.lower() != "bearer" or (self._serve.login == "proxy" and not token.startswith(PREFIX)):
            return None
        return token.strip()

    async def _valid(self, digest: str) -> Token:
        token, until = self._kept.get(digest, (None, 0.0))
        if token is None or self._clock() >= until:
            token = await run_in_threadpool(self._tokens.with_digest, digest)
            self._keep(digest, token)
        if token is None or self._tokens.is_over(token):
            raise _unauthorised(
                "The token is not valid: unknown, revoked or past its time.", "Ask an administrator for a new one."
            )
        return token

    def _keep(self, digest: str, token: Token | None) -> None:
        """Remember a valid token for a moment, so that a busy program does not cost a query each time."""
        if token is None:
            self._kept.pop(digest, None)
            return
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[digest] = (token, self._clock() + _TOKEN_KEPT_S)

    def _viewer_of(self, token: Token) -> Viewer:
        return Viewer(token.user, token.user in self._admins, token.scopes)

    def _of_session(self, request: Incoming) -> str:
        session = self.session_in(request)
        digest = self._sessions.token_of(session) if session else None
        if digest is None:
            raise _unauthorised("You are not logged in.", "Log in with a token, or send it as: Authorization: Bearer sp_…")
        return digest

    def _by_uid(self, uid: int) -> Viewer:
        """A user of this machine; root and the owner of the site's folder could read it without us."""
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            raise RefusedError(403, f"No user of this machine has the uid {uid}.", hint="Log in with an account of it.") from None
        user = self._in_tables(name)
        return Viewer(user, user in self._admins or uid in (0, self._owner), is_proved=True)

    def _by_proxy(self, request: Incoming) -> Viewer:
        if not request.from_proxy:
            raise RefusedError(
                403,
                "This address is not a trusted proxy.",
                hint="Come through the proxy; administrators: see serve.proxies and serve.proxy_secret_file.",
            )
        name = request.single(self._serve.user_header)
        if not name:
            raise _unauthorised(
                f"The proxy sent no user name: the header {self._serve.user_header} is missing.",
                "Administrators: let the proxy set it after the login, or name another one in serve.user_header.",
            )
        return self._named(name)

    def _named(self, header: str) -> Viewer:
        try:
            name = header.encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            name = ""
        if not _NAME.fullmatch(name) or not name.isprintable():
            raise RefusedError(
                400, f"The header {self._serve.user_header} does not hold one user name.", hint="Administrators: check the proxy."
            )
        user = self._in_tables(name)
        return Viewer(user, user in self._admins)


def _by_loopback(request: Incoming, user_header: str) -> Viewer:
    """Whoever reaches loopback is the administrator, but not those who come through a proxy."""
    if request.peer is None or not request.peer.is_loopback:
        raise RefusedError(
            403, "Without a login only this machine is answered.", hint="Administrators: set serve.login in site.toml."
        )
    if request.came_through_proxy(user_header):
        raise RefusedError(
            403,
            "This came through a proxy, and without a login everybody behind it would be the administrator.",
            hint="Administrators: set serve.login to 'proxy' or 'token' in site.toml.",
        )
    return LOCAL


def _password(credentials: str) -> str:
    """The password of `Authorization: Basic`; empty where it cannot be read, which is no valid token."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _unauthorised(what: str, hint: str) -> RefusedError:
    return RefusedError(401, what, hint=hint, headers={"WWW-Authenticate": 'Bearer realm="stormpetrel"'})

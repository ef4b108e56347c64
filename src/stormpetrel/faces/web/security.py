"""Access control of the web server, an ASGI middleware around everything: host, size, viewer, rate, origin, headers.

request -> refused with a sentence, or passed on with its viewer set; every answer gets its protecting headers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders

from stormpetrel.answers.viewer import READ, seen_by
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.web.incoming import Incoming, TrustedProxies
from stormpetrel.faces.web.refusals import RefusedError, UnexpectedError, answer_to, wants_page
from stormpetrel.faces.web.response_headers import protect
from stormpetrel.faces.web.viewers import AccessControl, Known
from stormpetrel.watch.host_names import HostNames

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MOST_KEYS: Final = 20_000  # about 4 MB
LOGINS_PER_MINUTE: Final = 10


class RateLimit:
    """So many requests a minute for each key, a minute's worth of them at once.

    Memory is bounded: the key that was quiet for longest is dropped first, and its bucket was the fullest anyway.
    """

    def __init__(self, per_minute: int, *, most_keys: int = _MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = float(per_minute)
        self._per_second = per_minute / 60
        self._most_keys = most_keys
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> what was left, when

    def take(self, key: str) -> float:
        """Count one request; 0 if it may go ahead, else after how many seconds the next one may."""
        now = self._clock()
        with self._lock:
            left, since = self._left.pop(key, (self._burst, now))
            left = min(self._burst, left + (now - since) * self._per_second)
            wait = 0.0 if left >= 1 else (1 - left) / self._per_second
            self._left[key] = (left - 1 if left >= 1 else left, now)
            if len(self._left) > self._most_keys:
                self._left.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._left)


_log = logging.getLogger("stormpetrel.serve")
_access = logging.getLogger("stormpetrel.access")
LARGEST_BODY: Final = 2_000_000
_BODY_WAIT_S: Final = 30.0
_SAFE: Final = frozenset(["GET", "HEAD", "OPTIONS"])
_ALIVE: Final = "/healthz"
_OPEN: Final = frozenset(["/login", "/login.css", "/logout", _ALIVE, "/readyz"])  # answered without a viewer
_API: Final = "/api/v1/"
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")  # what a page may send anywhere
_NAME_THE_HOST: Final = "Administrators: name every host under which the pages are reached in serve.hosts in site.toml."


@dataclass(frozen=True, slots=True)
class Rules:
    """What the door goes by."""

    proxies: TrustedProxies
    hosts: HostNames
    prefix: str  # "/node/login1/8050", or empty
    requests_per_minute: int
    policy: str  # the Content-Security-Policy
    login_page: bool  # where browsers go that are not logged in


class Security:
    """The middleware; the outermost one."""

    def __init__(self, app: ASGIApp, *, access: AccessControl, rules: Rules) -> None:
        self._app = app
        self._access = access
        self._rules = rules
        self._requests = RateLimit(rules.requests_per_minute)
        self._logins = RateLimit(LOGINS_PER_MINUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the start and end of the server."""
        if scope["type"] == "websocket":  # nothing of ours needs one
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "no websockets here"})
        elif scope["type"] == "http":
            await self._answer(self._without_prefix(scope), receive, send)
        else:
            await self._app(scope, receive, send)

    def _without_prefix(self, scope: Scope) -> Scope:
        """Proxies differ in whether they pass the prefix on: both ways work. Inside, no path has it."""
        prefix, path = self._rules.prefix, scope["path"]
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            return {**scope, "path": path.removeprefix(prefix) or "/"}
        return scope

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = self._rules.proxies.incoming(scope)
        answer = _Answer(send, self._rules.policy, scope, request.is_https)
        try:
            await self._pass_on(request, scope, receive, answer)
        except StormpetrelError as error:
            await answer.instead(error)
        except Exception:
            _log.exception("unexpected, while answering %s %s", request.method, _path_for_log(scope))
            await answer.instead(UnexpectedError())
        finally:
            took_ms = (time.perf_counter() - began) * 1000
            _access.info("%s %s %d %.0f ms", request.method, _path_for_log(scope), answer.status, took_ms)

    async def _pass_on(self, request: Incoming, scope: Scope, receive: Receive, answer: _Answer) -> None:
        self._check_host(request)
        known = None if request.path in _OPEN else await self._admitted(request, scope)
        self._count(request, known)
        _check_origin(request, known)
        _check_scope(request, known)
        receive = await _whole_body(request, receive)
        if known is None:
            await self._app(scope, receive, answer.send)
        else:
            with seen_by(known.viewer):
                await self._app(scope, receive, answer.send)

    def _check_host(self, request: Incoming) -> None:
        host = request.single("host")
        if not host:
            raise RefusedError(400, "The request does not say which host it is for.", hint="Send a Host header.")
        if request.uid is None and not self._rules.hosts.include(host):
            raise RefusedError(421, f"This is not {host[:100]}.", hint=_NAME_THE_HOST)

    async def _admitted(self, request: Incoming, scope: Scope) -> Known:
        try:
            return await self._access.admit(request)
        except RefusedError as refusal:
            self._count(request, None)
            if self._rules.login_page and refusal.status == 401 and request.method == "GET" and wants_page(scope):
                to_login = f"{self._rules.prefix}/login?next={quote(_link(scope), safe='/')}"
                raise RefusedError(303, refusal.what, hint=refusal.hint, headers={"Location": to_login}) from None
            raise

    def _count(self, request: Incoming, known: Known | None) -> None:
        if request.path == _ALIVE:  # costs no more than a refusal, and must not fail because of what others send
            return
        wait = self._requests.take((known.counted_as if known else "") or f"address:{request.client}")
        if request.path == "/login" and request.method == "POST":
            wait = max(wait, self._logins.take(request.client))
        if wait:
            raise RefusedError(
                429,
                "Too many requests.",
                hint=f"Try again in {math.ceil(wait)} s.",
                headers={"Retry-After": str(math.ceil(wait))},
            )


def _check_origin(request: Incoming, known: Known | None) -> None:
    """Let no page of another site act, or look, in the name of whoever has it open.

    A browser says by itself where a request comes from, and no page can change what it says; a token is never sent by itself.
    """
    if known is not None and known.by in ("token", "socket"):  # no browser opens a Unix socket
        return
    site = request.headers.get("sec-fetch-site")
    if request.method in _SAFE:
        followed_link = request.headers.get("sec-fetch-mode") == "navigate"
        is_fine = site in (None, "same-origin", "none") or followed_link
    elif site is not None:
        is_fine = site in ("same-origin", "none")
    elif "origin" in request.headers:
        is_fine = _same_host(request)
    else:
        is_fine = not _could_be_browser(request)
    if not is_fine:
        raise RefusedError(403, "This came from a page of another site.", hint="Open Stormpetrel itself and do it there.")


def _check_scope(request: Incoming, known: Known | None) -> None:
    """Show the dashboard to readers only; each endpoint of the API asks for a scope of its own."""
    if known is not None and not request.path.startswith(_API):
        known.viewer.require(READ)


def _same_host(request: Incoming) -> bool:
    origin = urlsplit(request.single("origin") or "").netloc.lower()
    hosts = [request.headers.get("host", "")]
    if request.from_proxy:
        hosts.append(request.headers.get("x-forwarded-host", ""))  # the proxy may have put its own idea into Host
    return bool(origin) and origin in [host.lower() for host in hosts]


def _could_be_browser(request: Incoming) -> bool:
    """Without both headers it is a program, or a browser of before 2020: those say who they are, have cookies or send forms."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return request.headers.get("user-agent", "").startswith("Mozilla/") or "cookie" in request.headers or kind in _FORMS


async def _whole_body(request: Incoming, receive: Receive) -> Receive:
    """The body, read up to the limit before anything is done with it."""
    if request.method in _SAFE:
        return receive
    too_large = RefusedError(413, f"The request is larger than {LARGEST_BODY / 1e6:g} MB.", hint="Send it in parts.")
    declared = request.single("content-length") or "0"
    if not declared.isdecimal() or int(declared) > LARGEST_BODY:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_WAIT_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise RefusedError(400, "The request broke off.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > LARGEST_BODY:
                    raise too_large
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise RefusedError(408, f"The request did not arrive within {_BODY_WAIT_S:g} s.", hint="Send it again.") from None
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


class _Answer:
    """One answer on its way out: gets its headers, and can be replaced as long as nothing of it was sent."""

    def __init__(self, send: Send, policy: str, scope: Scope, is_https: bool) -> None:
        self._send = send
        self._policy = policy
        self._scope = scope
        self._is_https = is_https
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            protect(
                MutableHeaders(scope=message),
                policy=self._policy,
                path=self._scope["path"],
                query=self._scope["query_string"],
                is_https=self._is_https,
            )
        await self._send(message)

    async def instead(self, error: StormpetrelError) -> None:
        """Answer with an error; too late if the answer has begun, then the connection is cut."""
        if self.status:
            raise error
        await answer_to(error, self._scope)(self._scope, _nothing, self.send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _link(scope: Scope) -> str:
    query = scope["query_string"].decode("ascii", "replace")
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _path_for_log(scope: Scope) -> str:
    """The path as it came, percent-encoded, without its query: that may hold names, and a token that somebody put there."""
    return quote(scope["path"])[:200]

"""Checks of the ways to people, for the doctor: can each route work, does its receiver listen, does anything wait in vain.

Site -> check_messages -> Finding. Nothing is sent: a connection is opened and closed. `notify test` sends.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from stormpetrel.errors import SettingsError
from stormpetrel.records.checks import Finding
from stormpetrel.records.incidents import Message
from stormpetrel.records.routes import EMAIL, Route
from stormpetrel.store.site import Site
from stormpetrel.watch.notify.outbox import make_receiver
from stormpetrel.watch.notify.receivers.receiver import address_of

_CHECK: Final = "messages"
_PATIENCE_S: Final = 3.0
_LONG: Final = timedelta(hours=1)
_PORTS: Final = {"http": 80, "https": 443}


def check_messages(site: Site) -> Iterator[Finding]:
    """Routes with their secrets and receivers, links, the sign of life, and what is not delivered."""
    routes = site.settings.notify.routes
    if not routes:
        yield Finding("ok", _CHECK, "there are no [[notify.routes]]: incidents are listed, and nobody is told")
    for route in routes:
        yield _route(route)
    if routes:
        yield from _links(site)
        yield from _sign_of_life(site)
    yield from _waiting(site)


def _route(route: Route) -> Finding:
    try:
        make_receiver(route).close()
        host, port = _place(route)
    except SettingsError as error:
        return Finding("problem", _CHECK, f"Route '{route.name}' cannot work: {error.what}", error.hint)
    trial = f"stormpetrel notify test --route {route.name}"
    try:
        socket.create_connection((host, port), timeout=min(_PATIENCE_S, route.timeout_s)).close()
    except (OSError, UnicodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it does not answer"
        what = f"Route '{route.name}': {host}:{port} cannot be reached ({reason}). Messages wait until it can."
        return Finding("warning", _CHECK, what, f"Check that it runs and that a firewall lets us through; then run: {trial}")
    return Finding("ok", _CHECK, f"route '{route.name}' ({route.kind}): {host}:{port} can be reached; nothing was sent ({trial})")


def _place(route: Route) -> tuple[str, int]:
    """The machine and port that a route leads to; no more of an address is told, since it may be a secret."""
    if route.kind == EMAIL:
        return route.host, route.port
    parts = urlsplit(address_of(route))
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _links(site: Site) -> Iterator[Finding]:
    url = site.settings.notify.public_url
    if url:
        yield Finding("ok", _CHECK, f"messages link to {url}")
    else:
        hint = "Set notify.public_url in site.toml to where people reach the dashboard."
        yield Finding("warning", _CHECK, "notify.public_url is not set: messages have no link to their incident.", hint)


def _sign_of_life(site: Site) -> Iterator[Finding]:
    if site.settings.notify.heartbeat_url:
        yield Finding("ok", _CHECK, "notify.heartbeat_url is asked every minute while the watch runs")
        return
    what = "notify.heartbeat_url is not set: a dead watch is noticed only if a Prometheus scrapes it and has our rules."
    hint = "Set it, or run: stormpetrel notify rules"
    yield Finding("ok" if site.settings.prometheus.url else "warning", _CHECK, what, hint)


def _waiting(site: Site) -> Iterator[Finding]:
    now = site.now()
    local = now.astimezone(ZoneInfo(site.settings.site.time_zone))
    is_quiet = {route.name: route.is_quiet(local) for route in site.settings.notify.routes}
    old = [
        message
        for message in site.messages.waiting()
        if now - message.created > _LONG and not (is_quiet.get(message.route) and not message.tries)
    ]
    if old:
        yield _undelivered(old)
    given_up = site.messages.counts().given_up
    if given_up:
        what = f"{_count(given_up)} refused by their receivers, and are not sent any more."
        yield Finding("warning", _CHECK, what, "See why: stormpetrel notify list")
    if not old and not given_up and site.settings.notify.routes:
        yield Finding("ok", _CHECK, "nothing has waited for over an hour")


def _undelivered(old: list[Message]) -> Finding:
    problem = next((message.problem for message in old if message.problem), "")
    what = f"{_count(len(old))} not delivered for over an hour, the oldest since {old[0].created:%Y-%m-%d %H:%M} UTC"
    if problem:
        return Finding("problem", _CHECK, f"{what}: {problem}.", "They are sent as soon as that is mended; nothing is lost.")
    return Finding("problem", _CHECK, f"{what}, and nobody has tried.", "Start the watch: it delivers them. stormpetrel watch")


def _count(messages: int) -> str:
    return f"{messages:,} message{' was' if messages == 1 else 's were'}"

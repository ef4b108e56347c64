"""Incidents in a site, as the watch would have committed them, for tests of who is told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.records.routes import Route
from stormpetrel.store.site import Site


class Told:
    """The incidents of one site: findings in, incidents committed."""

    def __init__(self, site: Site) -> None:
        self._site, self._book = site, IncidentBook()

    def take(self, *findings: Finding, now: datetime | None = None) -> list[Incident]:
        """Commit what findings led to, each at its own time, and what is over by `now`."""
        for one in findings:
            self._commit(self._book.take([one], one.known_at), one.known_at)
        if now is not None:
            self._commit(self._book.take([], now), now)
        return list(self._book)

    def _commit(self, changed: list[Incident], now: datetime) -> None:
        self._site.incidents.commit(changed, watcher="jobs", watcher_state="", now=now)


def route(name: str = "ops", kind: str = "webhook", **more: Any) -> Route:
    """A route; a webhook to nowhere unless told otherwise."""
    return Route(name=name, kind=kind, **({"url": "http://127.0.0.1:9"} if kind != "email" and "url" not in more else {}) | more)

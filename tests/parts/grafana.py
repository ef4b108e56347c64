"""A small server that speaks the documented annotations API of Grafana over annotations in memory; no real one is behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from stormpetrel.config import GrafanaSection
from tests.parts.loopback import Answer, Parameters, served


class GrafanaServer:
    """Annotations, and what goes wrong with them; `url` while it is served."""

    def __init__(self) -> None:
        self.url, self.token = "", ""
        self.annotations: dict[int, dict[str, Any]] = {}
        self.requests: list[Parameters] = []
        self.faults: list[Answer] = []  # the next answers

    def put(self, uid: int, start: datetime, end: datetime | None, *tags: str, text: Any = "") -> None:
        """Keep an annotation, in place of the one with this id."""
        first = round(start.timestamp() * 1000)
        last = round(end.timestamp() * 1000) if end else first
        told = {"id": uid, "alertId": 0, "dashboardUID": "", "panelId": 0, "login": "admin", "newState": "", "prevState": ""}
        self.annotations[uid] = {**told, "time": first, "timeEnd": last, "text": text, "tags": list(tags), "data": {}}

    def settings(self, **more: Any) -> GrafanaSection:
        """Settings that lead here."""
        return GrafanaSection(**{"url": self.url, "timeout_s": 5.0, **more})

    def reply(self, path: str, asked: Parameters, headers: dict[str, str]) -> Answer:
        self.requests.append(asked)
        if self.faults:
            return self.faults.pop(0)
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"message": "Invalid API key"}, {}
        if path != "/api/annotations":
            return 404, {"message": "Not found"}, {}
        first, last, limit = (int(asked[name][0]) for name in ("from", "to", "limit"))
        inside = [one for one in self.annotations.values() if one["time"] <= last and one["timeEnd"] >= first]
        assert asked["matchAny"] == ["true"] and asked["type"] == ["annotation"]
        chosen = [one for one in inside if set(one["tags"]) & set(asked["tags"])]
        return 200, sorted(chosen, key=lambda one: (-one["timeEnd"], -one["time"]))[:limit], {}


@contextmanager
def grafana() -> Iterator[GrafanaServer]:
    """A Grafana without annotations."""
    server = GrafanaServer()
    with served(server.reply) as server.url:
        yield server

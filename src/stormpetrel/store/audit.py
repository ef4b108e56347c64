"""The audit trail: who did what, and when. Rows are only added, and a forgotten user's name is taken out of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from stormpetrel.errors import StoreNotWritableError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state import audit as table

_log = logging.getLogger("stormpetrel.serve")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that somebody did."""

    time: datetime
    user: str  # as in the site's tables; empty: whoever reached loopback without a login
    action: str  # such as `token added`
    about: Mapping[str, Any]


class AuditTrail:
    """What was done to a site by people."""

    def __init__(self, state: StateStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._state = state
        self._clock = clock

    def record(self, user: str, action: str, about: Mapping[str, Any] | None = None) -> None:
        """Add an entry; where nothing can be written the log says so, and whoever logs in to look gets in."""
        time = self._clock().isoformat(timespec="seconds")
        row = {"time": time, "user": user, "action": action, "about": json.dumps(about or {}, ensure_ascii=False, default=str)}
        try:
            with self._state.transaction() as connection:
                connection.execute(sa.insert(table).values(row))
        except StoreNotWritableError as error:
            _log.warning("not in the audit trail: %r; %s", action, error.what)

    def recent(self, limit: int = 50) -> list[AuditEntry]:
        """The latest entries, newest first."""
        with self._state.transaction() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.id.desc()).limit(limit)).all()
        return [AuditEntry(datetime.fromisoformat(row.time), row.user, row.action, json.loads(row.about)) for row in rows]

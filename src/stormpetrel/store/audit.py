"""The audit trail: who did what, and when. What is done again and again within an hour is counted in one row.

Nothing else is changed or taken away, but for a forgotten user's name.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import StoreNotWritableError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import audit as table

_MERGED_WITHIN: Final = timedelta(hours=1)
_TIMES, _LAST = "times", "last"  # of a row that stands for several
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
        self._counting = threading.Lock()

    def record(self, user: str, action: str, about: Mapping[str, Any] | None = None) -> None:
        """Add an entry; where nothing can be written the log says so, and whoever logs in to look gets in."""
        time = self._clock().isoformat(timespec="seconds")
        row = {"time": time, "user": user, "action": action, "about": json.dumps(about or {}, ensure_ascii=False, default=str)}
        with _logged_if_not_saved(action), self._state.transaction() as connection:
            connection.execute(sa.insert(table).values(row))

    def count(self, user: str, action: str, about: Mapping[str, Any]) -> None:
        """Add an entry, or count it in the one of the last hour that says the same: a loop of logins is one row an hour."""
        now = self._clock()
        same = (
            table.c.user == user,
            table.c.action == action,
            table.c.time > (now - _MERGED_WITHIN).isoformat(timespec="seconds"),
        )
        with self._counting, _logged_if_not_saved(action), self._state.transaction() as connection:
            for row in connection.execute(sa.select(table).where(*same)).all():
                kept = json.loads(row.about)
                times = kept.pop(_TIMES, 1)
                kept.pop(_LAST, None)
                if kept == about:
                    merged = {**about, _TIMES: times + 1, _LAST: now.isoformat(timespec="seconds")}
                    text = json.dumps(merged, ensure_ascii=False)
                    connection.execute(sa.update(table).where(table.c.id == row.id).values(about=text))
                    return
            first = {"time": now.isoformat(timespec="seconds"), "user": user, "action": action}
            connection.execute(sa.insert(table).values({**first, "about": json.dumps(about, ensure_ascii=False)}))

    def times_since(self, user: str, action: str, since: datetime) -> int:
        """How many entries there are of one user and action after a moment."""
        is_it = (table.c.user == user, table.c.action == action, table.c.time > since.isoformat(timespec="seconds"))
        with self._state.transaction() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(*is_it)).scalar_one())

    def recent(self, limit: int = 50) -> list[AuditEntry]:
        """The latest entries, newest first."""
        with self._state.transaction() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.id.desc()).limit(limit)).all()
        return [AuditEntry(datetime.fromisoformat(row.time), row.user, row.action, json.loads(row.about)) for row in rows]


@contextmanager
def _logged_if_not_saved(action: str) -> Iterator[None]:
    """On a site that cannot be written nobody is kept out for the sake of an entry; the log has the action, and no name."""
    try:
        yield
    except StoreNotWritableError as error:
        _log.warning("not in the audit trail: %r; %s", action, error.what)

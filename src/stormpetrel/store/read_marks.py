"""How far live sources have been read beyond their cursors, while there was nothing to commit.

A cursor moves with the rows that it stands for. On a cluster where nothing happens there are none, and a commit every few seconds
would be all that the table's log is made of: what was read in vain is noted here instead. A mark names the cursor that it goes
beyond, and counts only as long as the table still has that one: a table that was restored or has moved on knows better.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

import sqlalchemy as sa

from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import meta

_KEY_LENGTH: Final = 60


class ReadMarks:
    """Small records in the state store, one for each live source."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def note(self, name: str, *, beyond: int | None, position: int) -> None:
        """Note that a source has been read up to a position, with nothing new since the cursor `beyond`."""
        value = json.dumps([beyond, position])
        with self._state.transaction() as connection:
            updated = connection.execute(sa.update(meta).where(meta.c.key == _key(name)).values(value=value))
            if not updated.rowcount:
                connection.execute(sa.insert(meta).values(key=_key(name), value=value))

    def position(self, name: str, *, beyond: int | None) -> int | None:
        """How far a source has been read beyond a cursor; None where nothing is known of that."""
        with self._state.transaction() as connection:
            value = connection.execute(sa.select(meta.c.value).where(meta.c.key == _key(name))).scalar()
        if value is None:
            return None
        noted, position = json.loads(value)
        return int(position) if noted == beyond else None


def _key(name: str) -> str:
    key = f"read:{name}"
    return key if len(key) <= _KEY_LENGTH else f"read:{hashlib.sha256(name.encode()).hexdigest()[:32]}"

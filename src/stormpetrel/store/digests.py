"""Who wants the weekly digest, and up to which appointed time it was queued, in SQL.

choose, withdraw -> Subscription; queue: the mail and the note that it was queued, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from stormpetrel.records.incidents import MessageState
from stormpetrel.store.mails import MailKind, QueuedMail, row_of
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import digests as table
from stormpetrel.store.state_tables import mails


@dataclass(frozen=True, slots=True)
class Subscription:
    """One user's wish to get the digest; `last` is the appointed time up to which nothing is to be queued any more."""

    user: str
    address: str
    since: datetime
    last: datetime


class DigestStore:
    """The subscriptions of a site."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def choose(self, user: str, address: str, *, now: datetime, last: datetime) -> None:
        """Keep that a user wants the digest at this address, from the appointed time after `last` on."""
        with self._state.transaction() as connection:
            known = connection.execute(sa.select(table).where(table.c.user == user)).first()
            if known is None:
                row = {"user": user, "address": address, "since": _text(now), "last": _text(last)}
                connection.execute(sa.insert(table).values(row))
            else:  # who changes the address does not get the same digest twice
                connection.execute(sa.update(table).where(table.c.user == user).values(address=address))

    def withdraw(self, user: str) -> bool:
        """Forget that a user wants it, and what of it has not been sent; whether it was wanted."""
        is_waiting = (mails.c.user == user, mails.c.kind == MailKind.DIGEST.value, mails.c.state == MessageState.WAITING.value)
        with self._state.transaction() as connection:
            gone = connection.execute(sa.delete(table).where(table.c.user == user)).rowcount
            connection.execute(sa.delete(mails).where(*is_waiting))
        return bool(gone)

    def of_user(self, user: str) -> Subscription | None:
        """Return a user's subscription."""
        with self._state.transaction() as connection:
            row = connection.execute(sa.select(table).where(table.c.user == user)).first()
        return None if row is None else _subscription(row)

    def due(self, appointed: datetime) -> Sequence[Subscription]:
        """Return those whose last digest is older than this appointed time, by user."""
        query = sa.select(table).where(table.c.last < _text(appointed)).order_by(table.c.user)
        with self._state.transaction() as connection:
            return [_subscription(row) for row in connection.execute(query)]

    def queue(self, user: str, appointed: datetime, mail: QueuedMail | None) -> bool:
        """Queue a digest (None: there is nothing to tell) unless another process has; whether it was queued."""
        is_due = (table.c.user == user, table.c.last < _text(appointed))
        with self._state.transaction() as connection:
            if not connection.execute(sa.update(table).where(*is_due).values(last=_text(appointed))).rowcount:
                return False
            if mail is None or connection.execute(sa.select(mails.c.key).where(mails.c.key == mail.key)).first():
                return False
            connection.execute(sa.insert(mails).values(row_of(mail)))
        return True


def _subscription(row: Any) -> Subscription:
    return Subscription(row.user, row.address, datetime.fromisoformat(row.since), datetime.fromisoformat(row.last))


def _text(moment: datetime) -> str:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds")

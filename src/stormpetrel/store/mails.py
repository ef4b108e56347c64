"""Mail to users on its way, in SQL: kept until it is delivered.

QueuedMail -> insert -> waiting -> begin -> delivered, failed or give_up. `begin` is committed before an attempt, with the id of
the mail: after a kill the same mail is sent again, under the same id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.records.incidents import MessageState
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import mails as table

_LONGEST_PROBLEM: Final = 500
_PIECE: Final = 500  # keys in one query: SQLite bears some thousand


class MailKind(StrEnum):
    """What a mail is about: the end of a job, anything else that Slurm says (as it says it), or somebody's week."""

    END = "end"
    PLAIN = "plain"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """Something to be told to one recipient; what has the same `topic` is told together. `facts` is what Slurm said."""

    key: str
    kind: MailKind
    recipient: str
    user: str
    topic: str
    created: datetime
    facts: Mapping[str, str] = field(default_factory=dict)
    state: MessageState = MessageState.WAITING
    tries: int = 0
    not_before: datetime | None = None
    sending_since: datetime | None = None
    delivered: datetime | None = None
    message: str = ""
    problem: str = ""


class MailStore:
    """Reads and writes the mail of a site to its users."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def insert(self, mails: Sequence[QueuedMail]) -> int:
        """Keep those whose key is not there yet, all or none; how many."""
        if not mails:
            return 0
        with self._state.transaction() as connection:
            known: set[str] = set()
            for piece in _pieces([mail.key for mail in mails]):
                known.update(connection.execute(sa.select(table.c.key).where(table.c.key.in_(piece))).scalars())
            new = list({mail.key: mail for mail in mails if mail.key not in known}.values())
            if new:
                connection.execute(sa.insert(table), [row_of(mail) for mail in new])
        return len(new)

    def waiting(self) -> Sequence[QueuedMail]:
        """Return what is not delivered yet, the oldest first."""
        query = sa.select(table).where(table.c.state == MessageState.WAITING.value).order_by(table.c.created, table.c.key)
        return self._read(query)

    def list(self, *, limit: int | None = None) -> Sequence[QueuedMail]:
        """Return all that is kept, the newest first."""
        return self._read(sa.select(table).order_by(table.c.created.desc(), table.c.key).limit(limit))

    def begin(self, keys: Collection[str], message: str, now: datetime) -> None:
        """Note that an attempt begins to send these as one mail of this id."""
        self._update(keys, message=message, sending_since=_text(now), tries=table.c.tries + 1)

    def delivered(self, keys: Collection[str], now: datetime) -> None:
        """Note that these were taken by the mail server, in one mail."""
        self._update(keys, state=MessageState.DELIVERED.value, delivered=_text(now), sending_since=None, not_before=None)

    def failed(self, keys: Collection[str], problem: str, not_before: datetime, *, may_have_arrived: bool) -> None:
        """Note why an attempt failed, and when the next one is due; what may have arrived stays the same mail."""
        ended = {} if may_have_arrived else {"sending_since": None, "message": None}
        self._update(keys, problem=problem[:_LONGEST_PROBLEM], not_before=_text(not_before), **ended)

    def give_up(self, keys: Collection[str], problem: str) -> None:
        """Note that these are not sent any more, and why."""
        done = {"state": MessageState.GIVEN_UP.value, "sending_since": None, "not_before": None}
        self._update(keys, problem=problem[:_LONGEST_PROBLEM], **done)

    def sent_since(self, recipient: str, since: datetime) -> int:
        """Return how many mails a recipient got after a moment; what was sent together counts once."""
        count = sa.select(sa.func.count(sa.distinct(table.c.message)))
        query = count.where(table.c.recipient == recipient, table.c.delivered > _text(since))
        with self._state.transaction() as connection:
            return int(connection.execute(query).scalar_one())

    def prune(self, before: datetime) -> int:
        """Delete what was made before a moment and is on its way no more; how many."""
        is_old = (table.c.created < _text(before), table.c.state != MessageState.WAITING.value)
        with self._state.transaction() as connection:
            return connection.execute(sa.delete(table).where(*is_old)).rowcount

    def _read(self, query: sa.Select[Any]) -> Sequence[QueuedMail]:
        with self._state.transaction() as connection:
            return [_mail(row) for row in connection.execute(query)]

    def _update(self, keys: Collection[str], **values: Any) -> None:
        with self._state.transaction() as connection:
            for piece in _pieces(sorted(keys)):
                connection.execute(sa.update(table).where(table.c.key.in_(piece)).values(**values))


def _pieces(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _PIECE] for start in range(0, len(values), _PIECE))


def row_of(mail: QueuedMail) -> dict[str, Any]:
    """Return a mail as a row of its table."""
    return {
        "key": mail.key, "kind": mail.kind.value, "recipient": mail.recipient, "user": mail.user, "topic": mail.topic,
        "created": _text(mail.created), "state": mail.state.value, "tries": mail.tries, "not_before": _text(mail.not_before),
        "sending_since": _text(mail.sending_since), "delivered": _text(mail.delivered), "message": mail.message or None,
        "problem": mail.problem[:_LONGEST_PROBLEM], "body": json.dumps(dict(mail.facts)),
    }  # fmt: skip


def _mail(row: Any) -> QueuedMail:
    return QueuedMail(
        key=row.key, kind=MailKind(row.kind), recipient=row.recipient, user=row.user, topic=row.topic,
        created=datetime.fromisoformat(row.created), facts=json.loads(row.body), state=MessageState(row.state), tries=row.tries,
        not_before=_moment(row.not_before), sending_since=_moment(row.sending_since), delivered=_moment(row.delivered),
        message=row.message or "", problem=row.problem,
    )  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(moment: datetime | None) -> str | None:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None

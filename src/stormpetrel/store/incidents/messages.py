"""Messages on their way to receivers, in SQL: kept until they are delivered, and then what became of them.

Message -> insert -> waiting -> begin -> delivered, failed or give_up. `begin` is committed before an attempt, so that after a
kill the repeat is known to be one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.records.incidents import Message, MessageKind, MessageState
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import incidents
from stormpetrel.store.state_tables import messages as table

_ROUTES_FACT: Final = "notify_routes"  # when each route was first seen
_LONGEST_PROBLEM: Final = 500
_IN_ORDER: Final = (table.c.created, table.c.incident, table.c.opening, table.c.kind)  # firing comes before resolved
_PIECE: Final = 500  # keys in one query: SQLite bears some thousand


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """How many messages stand where; `oldest_waiting` is since when the oldest waits."""

    waiting: int
    given_up: int
    oldest_waiting: datetime | None


class MessageStore:
    """Reads and writes the messages of a site."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def insert(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Keep those that are not there yet, all or none; return them."""
        if not messages:
            return []
        with self._state.transaction() as connection:
            known = _known(connection, [message.key for message in messages])
            new = list({message.key: message for message in messages if message.key not in known}.values())
            if new:
                connection.execute(sa.insert(table), [_row(message) for message in new])
        return new

    def known(self, numbers: Collection[int]) -> set[str]:
        """Return the keys of all messages about these incidents."""
        keys: set[str] = set()
        with self._state.transaction() as connection:
            for piece in _pieces(sorted(numbers)):
                keys.update(connection.execute(sa.select(table.c.key).where(table.c.incident.in_(piece))).scalars())
        return keys

    def waiting(self, route: str | None = None) -> Sequence[Message]:
        """Return what is not delivered yet, the oldest first; of one route, or of all."""
        query = sa.select(table).where(table.c.state == MessageState.WAITING.value).order_by(*_IN_ORDER)
        return self._read(query if route is None else query.where(table.c.route == route))

    def list(self, *, incident: int | None = None, limit: int | None = None) -> Sequence[Message]:
        """Return messages with their fate, the newest first; about one incident, or all."""
        query = sa.select(table).order_by(*(column.desc() for column in _IN_ORDER)).limit(limit)
        return self._read(query if incident is None else query.where(table.c.incident == incident))

    def begin(self, keys: Collection[str], now: datetime) -> None:
        """Note that an attempt to deliver these together begins."""
        self._update(keys, sending_since=_text(now), tries=table.c.tries + 1)

    def delivered(self, keys: Collection[str], now: datetime, note: str = "") -> None:
        """Note that these were taken by their receiver, in one delivery."""
        done = {"state": MessageState.DELIVERED.value, "delivered": _text(now), "sending_since": None, "not_before": None}
        self._update(keys, problem=note[:_LONGEST_PROBLEM], **done)

    def failed(self, keys: Collection[str], problem: str, not_before: datetime, *, may_have_arrived: bool) -> None:
        """Note why an attempt failed, and when the next one is due; what may have arrived goes on being sent as the same."""
        ended = {} if may_have_arrived else {"sending_since": None}
        self._update(keys, problem=problem[:_LONGEST_PROBLEM], not_before=_text(not_before), **ended)

    def give_up(self, keys: Collection[str], problem: str) -> None:
        """Note that these are not sent any more, and why."""
        done = {"state": MessageState.GIVEN_UP.value, "sending_since": None, "not_before": None}
        self._update(keys, problem=problem[:_LONGEST_PROBLEM], **done)

    def keep_trial(self, message: Message) -> None:
        """Keep a message that somebody tried the way with, with its fate."""
        with self._state.transaction() as connection:
            connection.execute(sa.insert(table).values(_row(message)))

    def delivered_among(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys whose messages were delivered."""
        delivered: set[str] = set()
        with self._state.transaction() as connection:
            for piece in _pieces(keys):
                query = sa.select(table.c.key).where(table.c.key.in_(piece), table.c.state == MessageState.DELIVERED.value)
                delivered.update(connection.execute(query).scalars())
        return delivered

    def deliveries(self, route: str, since: datetime) -> int:
        """Return how often something was delivered on a route after a moment; a digest counts once."""
        times = sa.select(sa.func.count(sa.distinct(table.c.delivered)))
        query = times.where(table.c.route == route, table.c.delivered > _text(since), table.c.kind != MessageKind.TEST.value)
        with self._state.transaction() as connection:
            return int(connection.execute(query).scalar_one())

    def counts(self) -> MessageCounts:
        """Return how many messages wait, since when, and how many were given up; tests are not counted."""
        query = sa.select(table.c.state, sa.func.count(), sa.func.min(table.c.created)).group_by(table.c.state)
        query = query.where(table.c.kind != MessageKind.TEST.value)
        with self._state.transaction() as connection:
            rows = {state: (count, first) for state, count, first in connection.execute(query)}
        waiting, first = rows.get(MessageState.WAITING.value, (0, None))
        given_up, _ = rows.get(MessageState.GIVEN_UP.value, (0, None))
        return MessageCounts(waiting, given_up, datetime.fromisoformat(first) if first else None)

    def routes_since(self, names: Collection[str], now: datetime) -> dict[str, datetime]:
        """Return when each of these routes was first seen; one that is new is seen now."""
        kept = json.loads(self._state.fact(_ROUTES_FACT) or "{}")
        if set(kept) != set(names):
            kept = {name: kept.get(name, _text(now)) for name in names}
            self._state.set_fact(_ROUTES_FACT, json.dumps(kept))
        return {name: datetime.fromisoformat(moment) for name, moment in kept.items()}

    def prune(self, before: datetime) -> int:
        """Delete messages made before a moment that are on their way no more; how many.

        Not those about an incident that lasts, or ended after that moment: by their keys it is known that it was told.
        """
        lasts = sa.select(incidents.c.number).where(sa.or_(incidents.c.resolved.is_(None), incidents.c.resolved >= _text(before)))
        is_old = (table.c.created < _text(before), table.c.state != MessageState.WAITING.value)
        with self._state.transaction() as connection:
            return connection.execute(sa.delete(table).where(*is_old, table.c.incident.not_in(lasts))).rowcount

    def _read(self, query: sa.Select[Any]) -> Sequence[Message]:
        with self._state.transaction() as connection:
            return [_message(row) for row in connection.execute(query)]

    def _update(self, keys: Collection[str], **values: Any) -> None:
        with self._state.transaction() as connection:
            for piece in _pieces(sorted(keys)):
                connection.execute(sa.update(table).where(table.c.key.in_(piece)).values(**values))


def _known(connection: sa.Connection, keys: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for piece in _pieces(keys):
        known.update(connection.execute(sa.select(table.c.key).where(table.c.key.in_(piece))).scalars())
    return known


def _pieces(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _PIECE] for start in range(0, len(values), _PIECE))


def _row(message: Message) -> dict[str, Any]:
    return {
        "key": message.key, "route": message.route, "kind": message.kind.value, "incident": message.incident,
        "opening": message.opening, "created": _text(message.created), "state": message.state.value, "tries": message.tries,
        "not_before": _text(message.not_before), "sending_since": _text(message.sending_since),
        "delivered": _text(message.delivered), "problem": message.problem[:_LONGEST_PROBLEM],
    }  # fmt: skip


def _message(row: Any) -> Message:
    return Message(
        key=row.key, route=row.route, kind=MessageKind(row.kind), incident=row.incident, opening=row.opening,
        created=datetime.fromisoformat(row.created), state=MessageState(row.state), tries=row.tries,
        not_before=_moment(row.not_before), sending_since=_moment(row.sending_since), delivered=_moment(row.delivered),
        problem=row.problem,
    )  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(moment: datetime | None) -> str | None:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None

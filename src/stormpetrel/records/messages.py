"""Messages: an incident on its way to one receiver, kept until it is delivered.

incident + route -> alarms/routing.py -> Message -> outbox -> receiver. Times are UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class MessageKind(StrEnum):
    """What a message says of its incident."""

    FIRING = "firing"  # it was raised, or came back
    RESOLVED = "resolved"
    TEST = "test"  # of nothing: somebody tries the way


class MessageState(StrEnum):
    """Where a message stands."""

    WAITING = "waiting"  # to be sent, or to be sent again
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"  # the receiver refuses it, or the route is gone


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one receiver.

    `key` is the same whenever the same message is made: receivers that honour it see it once. `opening` counts how often the
    incident had come back. `tries` counts attempts; `problem` is why the last one failed; `sending_since` is set from before an
    attempt until its outcome is known, so that a repeat after a kill is known to be one.
    """

    key: str
    route: str
    kind: MessageKind
    incident: int
    opening: int
    created: datetime
    state: MessageState = MessageState.WAITING
    tries: int = 0
    not_before: datetime | None = None
    sending_since: datetime | None = None
    delivered: datetime | None = None
    problem: str = ""


def message_key(incident: int, opening: int, kind: MessageKind, route: str) -> str:
    """Return the stable name of a message: one per incident, opening, kind and route."""
    return f"incident-{incident}-{opening}-{kind}-{route}"

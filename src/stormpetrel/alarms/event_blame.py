"""Whom unusual counts of events point at: which kinds are more or fewer than expected, and at which sort of place.

reasons of a bucket (events/finding.py) -> pointers -> Evidence, one figure per suspect, in nats; they add up over the buckets of
an incident.

Lost lines and lost jobs lie with the host that has them: a submit host (the scheduler), a site or a node. A submit service that
does not answer takes no jobs. Storage that is slow holds the ends of jobs back while they go on running and being handed in.
What is held, removed or fails at once for one group only is that group's mistake.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.events import EventKind
from stormpetrel.records.findings import Evidence, Unit
from stormpetrel.records.incidents import Blame

POINTS_AT: Final = "points_at_"
SUSPECTS: Final = (Blame.USER, Blame.NODE, Blame.STORAGE, Blame.SCHEDULER)
_MOST: Final = 8.0  # nats that one kind adds in one bucket: a hundred times as many are not a hundred times as telling
_LOST: Final = frozenset(
    {
        EventKind.DISCONNECTED, EventKind.RECONNECTED, EventKind.RECONNECT_FAILED, EventKind.SHADOW_EXCEPTION,
        EventKind.EVICTED, EventKind.NODE_FAILED,
    }
)  # fmt: skip
_FAILING: Final = frozenset({EventKind.HELD, EventKind.FAILED, EventKind.FAILED_FAST, EventKind.ABORTED})
_BUSY: Final = frozenset({EventKind.EXECUTE, EventKind.TERMINATED, EventKind.SUBMIT, EventKind.RELEASED})
_AT: Final = {"node": Blame.NODE, "site": Blame.NODE, "submit_host": Blame.SCHEDULER, "group": Blame.USER}


def pointers(reasons: Iterable[Reason]) -> tuple[Evidence, ...]:
    """Return how much the counts of a bucket speak for each suspect; those for whom nothing speaks are left out."""
    more = {reason.event_kind: reason for reason in reasons if reason.kind == ReasonKind.MORE}
    fewer = {reason.event_kind: reason for reason in reasons if reason.kind == ReasonKind.FEWER}
    points = dict.fromkeys(SUSPECTS, 0.0)
    for kind, reason in more.items():
        suspect = _of_more(kind, reason.place)
        if suspect is not None:
            points[suspect] += _weight(reason)
    for kind, reason in fewer.items():
        suspect = _of_fewer(kind, reason.place, more, fewer)
        if suspect is not None:
            points[suspect] += _weight(reason)
    return tuple(Evidence(f"{POINTS_AT}{suspect}", value, Unit.NATS) for suspect, value in points.items() if value)


def _of_more(kind: str, place: str) -> Blame | None:
    if kind in _LOST:  # who loses the line is no user
        return None if place == "group" else _AT.get(place)
    if kind in _FAILING or kind in _BUSY:
        return _AT.get(place)
    return None


def _of_fewer(kind: str, place: str, more: dict[str, Reason], fewer: dict[str, Reason]) -> Blame | None:
    if kind == EventKind.SUBMIT:
        return Blame.SCHEDULER
    if kind not in (EventKind.TERMINATED, EventKind.EXECUTE, EventKind.IMAGE_SIZE):
        return None
    if EventKind.SUBMIT in fewer:  # nothing comes in: what does not start and end follows from that
        return Blame.SCHEDULER
    if place in ("site", "submit_host"):
        return _AT[place]
    if EventKind.IMAGE_SIZE in fewer or _LOST & set(more):  # jobs are gone, not slow
        return Blame.NODE
    return Blame.STORAGE if kind == EventKind.TERMINATED else None


def _weight(reason: Reason) -> float:
    return min(abs(reason.surprise), _MOST)

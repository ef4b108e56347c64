"""Which messages must exist: for each incident and each route that it concerns, one when it opens and one when it is over.

incidents (what people did applied) + routes + silences -> due_messages -> Message. Nothing is remembered here: asked again, the
same messages come out, with the same keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from stormpetrel.alarms.silences import Silences
from stormpetrel.records.incidents import (
    SEVERITIES,
    Incident,
    IncidentState,
    Message,
    MessageKind,
    Severity,
    Verdict,
    message_key,
)
from stormpetrel.records.routes import Route


def due_messages(
    incidents: Iterable[Incident],
    routes: Sequence[Route],
    silences: Silences,
    now: datetime,
    *,
    known: Collection[str] = (),
    routes_since: Mapping[str, datetime] | None = None,
) -> list[Message]:
    """Return the messages that must exist at a moment, the oldest incident first; those that exist already are among them.

    Parameters
    ----------
    known
        Keys of messages that exist: what was told as firing is told to be over, also if it would not be told any more.
    routes_since
        When each route was first seen; of what was over before, a new route is told nothing.
    """
    begun = routes_since or {}
    messages = []
    for incident in sorted(incidents, key=lambda one: one.id):
        for route in routes:
            if concerns(incident, route):
                messages += _messages(incident, route, silences, now, known, begun.get(route.name))
    return messages


def concerns(incident: Incident, route: Route) -> bool:
    """Whether a route is for incidents of this severity and of these watchers."""
    is_loud = SEVERITIES.index(incident.severity) >= SEVERITIES.index(Severity(route.severity))
    return is_loud and (not route.families or any(family in route.families for family in incident.families))


def is_over(incident: Incident) -> bool:
    """Whether an incident is resolved, or dismissed by a person."""
    return incident.state == IncidentState.RESOLVED


def _messages(
    incident: Incident, route: Route, silences: Silences, now: datetime, known: Collection[str], since: datetime | None
) -> list[Message]:
    firing = _message(incident, route, MessageKind.FIRING, now)
    is_told = firing.key in known
    is_past = is_over(incident) and since is not None and incident.opened_at < since
    if not is_told and (is_past or not _is_sent(incident, route, silences, now)):
        return []
    return [firing, _message(incident, route, MessageKind.RESOLVED, now)] if is_over(incident) else [firing]


def _is_sent(incident: Incident, route: Route, silences: Silences, now: datetime) -> bool:
    """Whether an incident is told on a route that it concerns.

    Whether somebody is woken was decided when the incident was raised: late or muted, under maintenance or above the budget it
    was not sent, and a route of pages is not told. A route that hears of lesser things is told of it like of those.
    """
    if incident.verdict == Verdict.DISMISSED or incident.like is not None:
        return False
    if incident.severity == Severity.PAGE and (incident.is_sent or Severity(route.severity) == Severity.PAGE):
        return incident.is_sent
    return not incident.late and not silences.reason(incident, now)


def _message(incident: Incident, route: Route, kind: MessageKind, now: datetime) -> Message:
    opening = len(incident.reopened_at)
    return Message(message_key(incident.id, opening, kind, route.name), route.name, kind, incident.id, opening, now)

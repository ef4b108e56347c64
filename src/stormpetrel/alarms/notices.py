"""What a receiver is told of an incident: one line that says it all, figures, a link, and no names where none may leave.

Message + Incident -> make_notice -> Notice; notices of one route -> Delivery. Names from logs are hostile: every text here is one
line of printable characters and bounded; receivers escape it for what they write.

Which messages must exist: for each incident and each route that it concerns, one when it opens and one when it is over.

incidents (what people did applied) + routes + silences -> due_messages -> Message. Nothing is remembered here: asked again, the
same messages come out, with the same keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.alarms.acts import Silences
from stormpetrel.alarms.titles import title
from stormpetrel.records.findings import Finding, Subject, SubjectKind, Unit
from stormpetrel.records.incidents import (
    LEADING,
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

_LONGEST_LINE: Final = 400
_MOST_SHOWN: Final = 20  # figures of one incident, incidents of one digest
_PRIVATE: Final = {
    SubjectKind.USER: "user",
    SubjectKind.GROUP: "group",
    SubjectKind.APPLICATION: "application",
    SubjectKind.JOB: "job",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One incident, as it is told on one route. Times are UTC."""

    key: str  # of its message
    kind: MessageKind
    incident: int
    severity: str
    title: str
    cluster: str
    finding: str  # the kind that tells most, such as node_eats_jobs
    blame: str
    node: str  # empty unless it is about one node
    starts_at: datetime
    ends_at: datetime | None
    evidence: tuple[str, ...]
    link: str

    @property
    def line(self) -> str:
        """What it is, before the title where it is not what one expects."""
        return f"resolved: {self.title}" if self.kind == MessageKind.RESOLVED else self.title


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is sent at once on one route: one message, or a digest of several.

    `id` is the same whenever the same is sent again; `is_repeat` says that it may have arrived before.
    """

    id: str
    notices: tuple[Notice, ...]
    is_repeat: bool
    site: str
    made_at: datetime

    @property
    def title(self) -> str:
        """One line for all of it."""
        if len(self.notices) == 1:
            return self.notices[0].line
        firing = sum(notice.kind == MessageKind.FIRING for notice in self.latest)
        incidents = "1 incident" if len(self.latest) == 1 else f"{len(self.latest):,} incidents"
        return f"{incidents} at {self.site}: {firing:,} firing, {len(self.latest) - firing:,} resolved"

    @property
    def latest(self) -> tuple[Notice, ...]:
        """The last word on each incident, in the order of the messages."""
        last = {notice.incident: notice for notice in self.notices}
        return tuple(notice for notice in self.notices if last[notice.incident] is notice)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line per incident, bounded."""
        shown = [notice.line for notice in self.latest[:_MOST_SHOWN]]
        more = len(self.latest) - _MOST_SHOWN
        return (*shown, f"and {more:,} more") if more > 0 else tuple(shown)


def make_delivery(notices: Sequence[Notice], *, is_repeat: bool, site_id: str, site: str, now: datetime) -> Delivery:
    """Put notices of one route into one delivery; `site_id` keeps the ids of two sites apart."""
    keys = [notice.key for notice in notices]
    name = keys[0] if len(keys) == 1 else f"digest-{hashlib.sha256('|'.join(keys).encode()).hexdigest()[:24]}"
    return Delivery(f"{name}-{site_id}", tuple(notices), is_repeat, clean_line(site), now)


def make_notice(
    message: Message, incident: Incident, *, zone: str, public_url: str, with_names: bool, change: str = ""
) -> Notice:
    """Say an incident for one route; without names users, jobs and applications are not told apart, nor is what has changed."""
    shown = incident if with_names else without_names(incident)
    leading = min(shown.kinds, key=LEADING.index)
    about = list(dict.fromkeys(part.subject for part in shown.findings if part.kind == leading))
    is_node = len(about) == 1 and about[0].kind == SubjectKind.NODE
    return Notice(
        key=message.key,
        kind=message.kind,
        incident=incident.id,
        severity=incident.severity.value,
        title=clean_line(title(shown, zone, message.created)),
        cluster=clean_line(incident.cluster),
        finding=leading.value,
        blame=incident.blame.value,
        node=clean_line(about[0].name) if is_node else "",
        starts_at=incident.opened_at,
        ends_at=incident.resolved_at if message.kind == MessageKind.RESOLVED else None,
        evidence=(*_change(change if with_names else ""), *_evidence(shown, zone)),
        link=f"{public_url.rstrip('/')}/alarms?incident={incident.id}" if public_url else "",
    )


def trial_notice(key: str, now: datetime, *, public_url: str) -> Notice:
    """Say that somebody tries the way."""
    text = "this is a test of Stormpetrel: nothing is wrong"
    link = f"{public_url.rstrip('/')}/alarms" if public_url else ""
    return Notice(key, MessageKind.TEST, 0, "info", text, "", "test", "unclear", "", now, None, (), link)


def without_names(incident: Incident) -> Incident:
    """Return an incident in which no user, job or application is named: a user, several users."""
    return replace(incident, findings=tuple(_without_names(finding, incident) for finding in incident.findings))


def _without_names(finding: Finding, incident: Incident) -> Finding:
    about = finding.subject
    named = {part.subject for part in incident.findings if part.subject.kind == about.kind}
    rest = tuple(subject for subject in finding.subjects[1:] if subject.kind not in _PRIVATE)
    return replace(finding, subjects=(_anonymous(about, len(named)), *rest), users=(), jobs=())


def _anonymous(subject: Subject, count: int) -> Subject:
    word = _PRIVATE.get(subject.kind)
    if word is None:
        return subject
    article = "an" if word == "application" else "a"
    return Subject(subject.kind, f"{article} {word}" if count == 1 else f"several {word}s")


def _change(change: str) -> tuple[str, ...]:
    return (clean_line(f"A change, not an anomaly. {change}"),) if change else ()


def _evidence(incident: Incident, zone: str) -> tuple[str, ...]:
    """The figures, a line per finding."""
    lines = []
    for finding in incident.findings[:_MOST_SHOWN]:
        names = ", ".join(f"{subject.kind} {subject.name}" for subject in finding.subjects[:_MOST_SHOWN])
        figures = ", ".join(f"{part.name} {_value(part.value, part.unit)}" for part in finding.evidence[:_MOST_SHOWN])
        since = finding.since.astimezone(ZoneInfo(zone))
        lines.append(clean_line(f"{finding.kind}: {names}; since {since:%Y-%m-%d %H:%M %Z}; {figures}"))
    return tuple(lines)


def _value(value: float, unit: Unit) -> str:
    return f"{100 * value:.0f} %" if unit == Unit.SHARE else f"{value:,.4g}"


def clean_line(text: str) -> str:
    """Return a text from anywhere as one line of printable characters, cut where it is too long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


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
    for incident in sorted(incidents, key=lambda incident: incident.id):
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

"""Incidents: findings that share a subject or a cause, with a number, a severity and a state; messages about them.

findings -> alarms/grouping.py -> Incident. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject


class Severity(StrEnum):
    """How loud: listed, listed and marked, or sent at once."""

    INFO = "info"
    WARNING = "warning"
    PAGE = "page"


SEVERITIES: Final = tuple(Severity)  # in rising order
LEADING: Final = tuple(FindingKind)  # what tells most first


def order_of(finding: Finding) -> tuple[datetime, int, tuple[Subject, ...]]:
    """Sort findings by when they were decided; of those of one moment the one that tells most comes first."""
    return finding.decided_at, LEADING.index(finding.kind), finding.subjects


class IncidentState(StrEnum):
    """Where an incident stands."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Blame(StrEnum):
    """Whose fault it probably is."""

    USER = "user"
    NODE = "node"
    STORAGE = "storage"
    SCHEDULER = "scheduler"
    UNCLEAR = "unclear"


class Verdict(StrEnum):
    """Whether a person found an incident to be one."""

    CONFIRMED = "confirmed"
    DISMISSED = "dismissed"


class ActKind(StrEnum):
    """What a person can do to an incident."""

    ACKNOWLEDGE = "acknowledge"
    CONFIRM = "confirm"
    DISMISS = "dismiss"
    WITHDRAW = "withdraw"  # the verdict that stood: nobody has judged it any more
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class IncidentAct:
    """What one person did to one incident, and when (UTC)."""

    incident: int
    at: datetime
    user: str
    kind: ActKind
    note: str = ""


VERDICTS: Final = {ActKind.CONFIRM: Verdict.CONFIRMED, ActKind.DISMISS: Verdict.DISMISSED}


def standing_verdict(acts: Sequence[IncidentAct]) -> IncidentAct | None:
    """Return the act whose verdict holds, of acts in the order of time; None where there is none, or it was withdrawn."""
    verdicts = [act for act in acts if act.kind in VERDICTS or act.kind == ActKind.WITHDRAW]
    return verdicts[-1] if verdicts and verdicts[-1].kind in VERDICTS else None


@dataclass(frozen=True, slots=True)
class Mute:
    """Nothing is sent about a subject of a cluster in [since, until): it is listed only."""

    id: int
    cluster: str
    subject: Subject
    since: datetime
    until: datetime
    user: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One trouble, as far as it is known.

    `findings` has one entry per kind and subject: their spans joined, their counts of jobs added up. `until` is the time of the
    newest record in it. `raised_at` is when it was first known, `reopened_at` when it came back after it was resolved.
    `verdict` and the state `acknowledged` come from what people did (`alarms/acts.py`); the rest from findings alone.
    """

    id: int
    cluster: str
    severity: Severity
    state: IncidentState
    findings: tuple[Finding, ...]
    since: datetime
    until: datetime
    raised_at: datetime
    blame: Blame
    reasons: tuple[Evidence, ...]  # figures that the blame rests on
    late: bool  # it was known so long after the fact that nobody should be woken for it
    paged_at: tuple[datetime, ...] = ()  # when it was, or would have been, sent: at the raise and at returns
    reopened_at: tuple[datetime, ...] = ()
    resolved_at: datetime | None = None
    held_back: str = ""  # why it was not sent when it could have been last: late, muted, maintenance, dismissed
    like: int | None = None  # the dismissed incident that all of it is like: it is not on the list of alarms
    verdict: Verdict | None = None

    @property
    def page(self) -> bool:
        """Whether it was sent."""
        return bool(self.paged_at)

    @property
    def is_quiet(self) -> bool:
        """Whether it is not on the list of alarms, as like a dismissed one; what a rule calls a page stays there, unsent."""
        return self.like is not None and self.severity != Severity.PAGE

    @property
    def opened_at(self) -> datetime:
        """When it was last opened: raised, or the last time it came back."""
        return self.reopened_at[-1] if self.reopened_at else self.raised_at

    @property
    def is_sent(self) -> bool:
        """Whether it was sent since it was last opened."""
        return bool(self.paged_at) and self.paged_at[-1] >= self.opened_at

    @property
    def known_at(self) -> datetime:
        """When it was known to be what it is: a failing batch that turns out to be a sick node was raised before that."""
        leading = min(self.kinds, key=LEADING.index)
        return min(part.known_at for part in self.findings if part.kind == leading)

    @property
    def kinds(self) -> tuple[FindingKind, ...]:
        """What was seen, the first first."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))

    @property
    def families(self) -> tuple[str, ...]:
        """Which watchers saw it, the first first."""
        return tuple(dict.fromkeys(finding.family for finding in self.findings))

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """What it is about, what tells most first, and then what is involved."""
        findings = sorted(self.findings, key=lambda finding: LEADING.index(finding.kind))
        about = [finding.subject for finding in findings]
        involved = [subject for finding in findings for subject in finding.subjects[1:]]
        return tuple(dict.fromkeys([*about, *involved]))

    @property
    def users(self) -> frozenset[str]:
        """Whose jobs are in it."""
        return frozenset(user for finding in self.findings for user in finding.users)


@dataclass(frozen=True, slots=True)
class JudgedIncident:
    """An incident with the act whose verdict stands."""

    incident: Incident
    act: IncidentAct

    @property
    def verdict(self) -> Verdict:
        """What it was found to be."""
        return VERDICTS[self.act.kind]


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

"""One fault that is put into a copy of a site's history, and what counts as having seen it.

Injection: kind, severity, from when to when, and by which findings it is known. Findings of a walk with the fault and of the same
walk without it -> `seen_at` -> when somebody could have known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident

SEVERITIES: Final = ("mild", "moderate", "severe")
_MOST_OF: Final = 0.5
AFTERWARDS: Final = timedelta(hours=3)  # after the end of a fault; a bucket of events is over an hour after it began, and settles

FindingKey = tuple[str, str, tuple[str, ...], datetime]


@dataclass(frozen=True, slots=True)
class Injection:
    """What is done to the copy: times UTC; `until` is the first moment after it."""

    kind: str
    severity: str
    since: datetime
    until: datetime
    families: frozenset[str]  # whose findings can be about it
    subjects: frozenset[str] = frozenset()  # a finding about it names one of these; any where empty
    share: float = 1.0  # of the jobs that it could hit
    seed: int = 0
    nodes: frozenset[str] = frozenset()
    user: str = ""
    application: str = ""
    place: str = ""  # of events: where it sits, such as "submit_host"
    hit: int = 0  # jobs, buckets or windows that it has changed
    jobs: frozenset[str] = field(default=frozenset(), repr=False)  # references of those that it has hit

    @property
    def last_chance(self) -> datetime:
        """Whatever is known later does not count."""
        return self.until + AFTERWARDS

    def is_about(self, finding: Finding) -> bool:
        """Whether a finding can be about this fault."""
        if finding.family not in self.families:
            return False
        named = {subject.name for subject in finding.subjects}
        return not self.subjects or bool(self.subjects & named) or self._lost_most(finding)

    def _lost_most(self, finding: Finding) -> bool:
        """Whether most jobs that a finding rests on were hit by this fault, whatever it takes for the culprit."""
        deciding = finding.jobs[: finding.deciding_jobs] or finding.jobs
        return bool(deciding) and sum(job in self.jobs for job in deciding) >= _MOST_OF * len(deciding)


def key_of(finding: Finding) -> FindingKey:
    """What two walks have in common when both have found the same."""
    subjects = tuple(f"{subject.kind}:{subject.name}" for subject in finding.subjects)
    return finding.family, str(finding.kind), subjects, finding.decided_at


def seen_at(injection: Injection, findings: Iterable[Finding], calm: Collection[FindingKey]) -> datetime | None:
    """Return when the first finding about a fault was known that the walk without it does not have; None: never."""
    known = (
        finding.known_at
        for finding in findings
        if injection.since <= finding.known_at <= injection.last_chance
        and injection.is_about(finding)
        and key_of(finding) not in calm
    )
    return min(known, default=None)


def paged_at(
    injection: Injection, seen: datetime | None, incidents: Iterable[Incident], calm: Collection[datetime]
) -> datetime | None:
    """Return when somebody was sent a message about a fault that was `seen`, which the walk without it does not send."""
    if seen is None:
        return None
    sent = (
        moment
        for incident in incidents
        if any(injection.is_about(finding) for finding in incident.findings)
        for moment in incident.paged_at
        if injection.since <= moment <= injection.last_chance and moment not in calm
    )
    first = min(sent, default=None)
    return None if first is None else max(first, seen)

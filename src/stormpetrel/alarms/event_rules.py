"""Findings from counted events: what the rules over places and the forecast of the whole say of one bucket.

reasons of a bucket (events/finding.py) -> findings_of_bucket -> findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.event_blame import pointers
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit

FAMILY: Final = "events"
HARD: Final = frozenset({ReasonKind.BLACK_HOLE, ReasonKind.SILENT_HOST, ReasonKind.SILENCE})  # rules: they need no model
_PLACES: Final = {
    "node": SubjectKind.NODE,
    "submit_host": SubjectKind.SUBMIT_HOST,
    "site": SubjectKind.PARTITION,
    "group": SubjectKind.GROUP,
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """A span of counted events, and the jobs that failed in it, where the site has their records."""

    cluster: str
    start: datetime
    length: timedelta
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def end(self) -> datetime:
        """When it was over."""
        return self.start + self.length


def findings_of_rules(bucket: Bucket, reasons: Iterable[Reason], known_at: datetime) -> list[Finding]:
    """Return a finding for each node that fails all it gets, each silent submit host, and a silent cluster."""
    return [_of_rule(bucket, reason, known_at) for reason in reasons if reason.kind in HARD]


def finding_of_score(
    bucket: Bucket, reasons: Sequence[Reason], *, score: float, threshold: float, model: str, known_at: datetime
) -> Finding | None:
    """Return that the counts of a bucket are unusual as a whole, by its most surprising kind; None where only rules speak."""
    others = sorted((reason for reason in reasons if reason.kind not in HARD), key=lambda reason: -reason.surprise)
    if not others:
        return None
    first = others[0]
    place = _PLACES.get(first.place) if first.value else None
    involved = (Subject(place, first.value),) if place else ()
    return Finding(
        family=FAMILY,
        rule=model,
        kind=FindingKind.COUNTS_ODD,
        cluster=bucket.cluster,
        subjects=(Subject(SubjectKind.CLUSTER, bucket.cluster), *involved),
        since=min(first.since or bucket.start, bucket.start),
        decided_at=bucket.end,
        until=bucket.end,
        known_at=max(known_at, bucket.end),
        score=score,
        threshold=threshold,
        evidence=(*_figures(first), *pointers(others)),
        jobs=bucket.jobs,
        deciding_jobs=len(bucket.jobs),
        users=bucket.users,
        label=first.event_kind,
    )


def _of_rule(bucket: Bucket, reason: Reason, known_at: datetime) -> Finding:
    about = {
        ReasonKind.BLACK_HOLE: (FindingKind.NODE_EATS_JOBS, Subject(SubjectKind.NODE, reason.value)),
        ReasonKind.SILENT_HOST: (FindingKind.SILENCE, Subject(SubjectKind.SUBMIT_HOST, reason.value)),
        ReasonKind.SILENCE: (FindingKind.SILENCE, Subject(SubjectKind.CLUSTER, bucket.cluster)),
    }
    kind, subject = about[reason.kind]
    jobs: tuple[Evidence, ...] = ()
    if kind == FindingKind.NODE_EATS_JOBS:
        lost = round(reason.count * min(1.0, reason.share))  # more may end in a bucket than start in it
        jobs = (Evidence("lost", lost, Unit.JOBS), Evidence("tried", reason.count, Unit.JOBS))
    return Finding(
        family=FAMILY,
        rule=f"{kind}/1",
        kind=kind,
        cluster=bucket.cluster,
        subjects=(subject,),
        since=min(reason.since or bucket.start, bucket.start),
        decided_at=bucket.end,
        until=bucket.end,
        known_at=max(known_at, bucket.end),
        score=max(reason.surprise, 1.0),
        threshold=1.0,
        evidence=(*jobs, *_figures(reason)),
    )


def _figures(reason: Reason) -> tuple[Evidence, ...]:
    share = (Evidence("share", reason.share, Unit.SHARE),) if reason.share else ()  # of no place in particular: none
    return (Evidence("count", reason.count, Unit.EVENTS), Evidence("expected", reason.expected, Unit.EVENTS), *share)

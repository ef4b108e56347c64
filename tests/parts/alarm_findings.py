"""Findings as the rules over job records make them, for tests of what becomes of findings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from tests.parts.alarm_jobs import at


def finding(
    kind: FindingKind = FindingKind.NODE_EATS_JOBS,
    *subjects: tuple[SubjectKind, str],
    when: datetime = at(1),
    known: datetime | None = None,
    jobs: Iterable[str] = (),
    users: Iterable[str] = ("ann",),
    cluster: str = "c1",
    family: str = "jobs",
    **figures: float,
) -> Finding:
    """A finding, by default about node n017, decided at `when` and known five seconds later."""
    jobs, users = tuple(jobs), tuple(users)
    values = {"lost": 3, "tried": 3, "users": len(users), "usual": 0.02} | figures
    units = {"lost": Unit.JOBS, "tried": Unit.JOBS}
    return Finding(
        family=family,
        rule=f"{kind}/1",
        kind=kind,
        cluster=cluster,
        subjects=tuple(Subject(*subject) for subject in subjects or [(SubjectKind.NODE, "n017")]),
        since=when - timedelta(hours=1),
        decided_at=when,
        until=when,
        known_at=known or when + timedelta(seconds=5),
        score=13.0,
        threshold=12.0,
        evidence=tuple(Evidence(name, value, units.get(name, Unit.COUNT)) for name, value in values.items()),
        jobs=jobs,
        deciding_jobs=len(jobs),
        users=users,
    )


def batch_finding(user: str = "ann", application: str = "fit", **more: object) -> Finding:
    """A batch of a user that fails as one."""
    subjects = ((SubjectKind.USER, user), (SubjectKind.APPLICATION, application))
    return finding(FindingKind.BATCH_FAILS, *subjects, users=(user,), **more)  # type: ignore[arg-type]

"""What is new at a site, and which incidents that explains: a change of its work, not an anomaly.

Site + moment -> changes_at -> Changes; Site + Incident -> explanation -> a sentence, or nothing. An incident is a change where
most of the jobs that it rests on are of an application, user or account that was new then, or where more events than expected
come from such jobs or from load that has grown. What is said of nodes is never explained by who is new, and what the whole
cluster lost only where something new lost clearly more than its share.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.changes import GROUPS, NEW_FOR, PAST, SPAN, Changes, named_work, work_changes
from stormpetrel.records.events import EventKind
from stormpetrel.records.findings import Finding, FindingKind, SubjectKind
from stormpetrel.records.incidents import Incident
from stormpetrel.records.jobs import ref_text
from stormpetrel.store.site import Site

__all__ = ["Changes", "change_texts", "changes_at", "explanation"]

_SURELY: Final = 1.1  # times the load, or so many times less, that is surely a change
_MOST_OF: Final = 0.5  # of the jobs, or of what is more than expected
_OF_ALL: Final = 1.5  # times its share of the work, which something new must have of what the whole cluster lost
_NEARLY_ALL: Final = 0.9
_ABOUT_NODES: Final = frozenset(
    {FindingKind.NODE_EATS_JOBS, FindingKind.NODE_DOWN, FindingKind.WINDOWS_ODD, FindingKind.WINDOWS_KNOWN}
)
# The events that more work makes, and the time of a job at which each is counted.
_OF_WORK: Final = {EventKind.SUBMIT: "submit_time", EventKind.EXECUTE: "start_time", EventKind.TERMINATED: "end_time"}
_MOST_READ: Final = 2  # spans of work that are kept in memory
_MOST_KEPT: Final = 4096  # sentences
_READ: Final[dict[tuple[Path, datetime], pl.DataFrame]] = {}
_EXPLAINED: Final[dict[tuple[Any, ...], str]] = {}
_NEEDED: Final = (
    "cluster", "job_id", "array_task", "submit_time", "restart", "user", "account", "job_name", "script_path", "work_dir",
    "extra", "state", "start_time", "end_time", "elapsed_s", "cpus", "req_cpus",
)  # fmt: skip


def changes_at(site: Site, now: datetime) -> Changes:
    """Return what was new at a moment: what came in the two weeks before it, and how the load of the last week has changed."""
    return work_changes(read_work(site, now), now)


def explanation(site: Site, incident: Incident, *, oldest: datetime | None = None) -> str:
    """Return what has changed where that explains an incident; empty where it does not, or was raised before `oldest`."""
    if oldest is not None and incident.raised_at < oldest:
        return ""
    candidates = [finding for finding in incident.findings if _can_be_explained(finding)]
    if not candidates or len(candidates) < len(incident.findings):
        return ""
    key = (site.folder, incident.id, incident.raised_at, tuple(map(_key, candidates)))
    known = _EXPLAINED.get(key)
    if known is None:
        if len(_EXPLAINED) >= _MOST_KEPT:
            _EXPLAINED.clear()
        reasons = [_reason(site, incident, finding) for finding in candidates]
        known = _EXPLAINED[key] = " ".join(dict.fromkeys(reasons)) if all(reasons) else ""
    return known


def _can_be_explained(finding: Finding) -> bool:
    return finding.kind not in _ABOUT_NODES and (bool(finding.jobs) or finding.label in _OF_WORK)


def _key(finding: Finding) -> tuple[Any, ...]:
    """What an explanation rests on."""
    return (finding.kind, finding.subjects, finding.label, finding.since, finding.jobs[: finding.deciding_jobs])


def newcomer_text(changes: Changes, by: str, name: str) -> str:
    """Return since when something is new, and how much it makes of the load, in a sentence."""
    newcomer = next(new for new in changes.newcomers if (new.by, new.name) == (by, name))
    users = f" of {newcomer.users} users" if by != "user" and newcomer.users > 1 else ""
    shares = f"{_percent(newcomer.share_of_jobs)} of all and {_percent(newcomer.share_of_load)} of the load"
    return f"The {by} {name} is new since {newcomer.since:%Y-%m-%d}: {newcomer.jobs:,} jobs{users}, {shares}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def change_texts(changes: Changes, *, most: int = 12) -> list[str]:
    """Return what has changed, a sentence each: those with most jobs first, then the load if it has surely changed."""
    texts = [newcomer_text(changes, newcomer.by, newcomer.name) for newcomer in changes.newcomers[:most]]
    load = changes.load
    return [*texts, *([load_text(changes)] if load is not None and (load.grows or load.high < 1 / _SURELY) else [])]


def load_text(changes: Changes) -> str:
    """Return how the load has changed, in a sentence; empty where nobody can tell."""
    load = changes.load
    if load is None:
        return ""
    word = "grown" if load.grows else "not surely changed" if load.high >= 1 / _SURELY else "fallen"
    span = f"{load.low:.2f} to {load.high:.2f}"
    return (
        f"The load has {word}: {load.jobs_a_day:,.0f} jobs a day in the last week, {load.earlier_jobs_a_day:,.0f} in the weeks "
        f"before ({load.ratio:.2f} times; {span})."
    )


def _reason(site: Site, incident: Incident, finding: Finding) -> str:
    """Why one finding is a change, by what was known when it was raised, or when its counts began; empty where it is none."""
    now, until = incident.raised_at, incident.raised_at
    if finding.kind == FindingKind.COUNTS_ODD:  # the figures are those of the worst span, which may have come later
        now, until = max(now, finding.since), max(now, finding.until)
    work = read_work(site, until)
    changes = work_changes(work, now)
    if finding.label in _OF_WORK:
        return _of_counts(finding, changes, work)
    deciding = finding.jobs[: finding.deciding_jobs] or finding.jobs
    lost = work.filter(pl.col("ref").is_in(list(deciding)))
    everywhere = finding.subject.kind == SubjectKind.CLUSTER
    return _of_newcomers(lost, _MOST_OF * len(deciding), changes, of_lost=len(deciding) if everywhere else 0)


def _of_counts(finding: Finding, changes: Changes, work: pl.DataFrame) -> str:
    """More submissions, starts or ends than expected, most of which are of something new, or of load that has grown."""
    count, expected = finding.figure("count"), finding.figure("expected")
    if count <= expected:
        return ""
    places = finding.subjects[1:]
    if places and finding.figure("share") >= _MOST_OF:  # where they come from is known
        new = [place.name for place in places if place.kind == SubjectKind.GROUP and place.name in changes.names("account")]
        return newcomer_text(changes, "account", new[0]) if new else ""
    column = _OF_WORK[EventKind(finding.label)]
    inside = work.filter(pl.col(column).is_between(finding.since, finding.until, closed="left"))
    reason = _of_newcomers(inside, _MOST_OF * (count - expected), changes)
    if reason:
        return reason
    grown = changes.load is not None and changes.load.grows and count <= expected * changes.load.high * 1.5
    return load_text(changes) if grown else ""


def _of_newcomers(jobs: pl.DataFrame, fewest: float, changes: Changes, *, of_lost: int = 0) -> str:
    """The newcomer to which at least so many jobs belong, in a sentence; the narrowest kind first.

    Of jobs that the whole cluster lost (`of_lost`) its share must be clearly larger than that of the work: trouble that hits
    everybody hits those who are new as well.
    """
    for by in GROUPS:
        counts = (
            jobs.filter(pl.col(by).is_in(list(changes.names(by)))).group_by(by).len().sort("len", by, descending=[True, False])
        )
        share = sum(newcomer.share_of_jobs for newcomer in changes.newcomers if newcomer.by == by)
        needed = max(1.0, fewest, of_lost * min(_NEARLY_ALL, _OF_ALL * share))
        if counts.height and counts["len"].sum() >= needed:
            return newcomer_text(changes, by, str(counts[by][0]))
    return ""


def read_work(site: Site, now: datetime) -> pl.DataFrame:
    """The work of the six weeks up to a moment; of weeks that are over it is read once each, of this one once an hour."""
    monday = (now.astimezone(UTC) - timedelta(days=now.astimezone(UTC).weekday())).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    hour = site.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    until = max(min(monday + timedelta(weeks=1), hour), now.astimezone(UTC))
    key = (site.folder, until)
    if key not in _READ:
        for other in [(folder, end) for folder, end in _READ if folder == site.folder and monday < end < until]:
            _READ.pop(other)  # this week up to an earlier hour: nobody asks for that again
        while len(_READ) >= _MOST_READ:
            _READ.pop(next(iter(_READ)))
        first = monday - NEW_FOR - PAST
        begins = [first + number * SPAN for number in range(-(-(until - first) // SPAN))]
        _READ[key] = pl.concat([_read_work(site, begin, min(begin + SPAN, until)) for begin in begins])
    return _READ[key]


def _read_work(site: Site, since: datetime, until: datetime) -> pl.DataFrame:
    """What was submitted in a span: a week of a large site is as much as should be in memory with all columns."""
    rows = site.jobs.read_jobs(since=since, until=until).select(_NEEDED).collect()
    states = tuple(str(state) for state in site.settings.jobs.failure_states)
    return named_work(rows, states).with_columns(rows.select(ref_text()))

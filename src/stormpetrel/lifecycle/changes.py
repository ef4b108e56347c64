"""What is new at a site, and which incidents that explains: a change of its work, not an anomaly.

Site + moment -> changes_at -> Changes; Site + Incident -> explanation -> a sentence, or nothing. An incident is a change where most
of the jobs that it rests on are of an application, user or account that was new then, or where more events than expected
come from such jobs or from load that has grown. What is said of nodes is never explained by who is new.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.jobs.changes import GROUPS, PAST, SPAN, Changes, named_work, work_changes
from stormpetrel.records.events import EventKind
from stormpetrel.records.findings import Finding, FindingKind
from stormpetrel.records.incidents import Incident
from stormpetrel.records.jobs import ref_text
from stormpetrel.store.site import Site

__all__ = ["Changes", "changes_at", "explanation", "load_text", "newcomer_text"]

_MOST_OF: Final = 0.5  # of the jobs, or of what is more than expected
_ABOUT_NODES: Final = frozenset(
    {FindingKind.NODE_EATS_JOBS, FindingKind.NODE_DOWN, FindingKind.WINDOWS_ODD, FindingKind.WINDOWS_KNOWN}
)
# The events that more work makes, and the time of a job at which each is counted.
_OF_WORK: Final = {EventKind.SUBMIT: "submit_time", EventKind.EXECUTE: "start_time", EventKind.TERMINATED: "end_time"}
_NEEDED: Final = (
    "cluster", "job_id", "array_task", "submit_time", "restart", "user", "account", "job_name", "script_path", "work_dir",
    "extra", "state", "start_time", "end_time", "elapsed_s", "cpus", "req_cpus",
)  # fmt: skip


def changes_at(site: Site, now: datetime) -> Changes:
    """Return what was new at a moment: the week before it against the four weeks before that."""
    return _changes(site, now)[0]


def explanation(site: Site, incident: Incident) -> str:
    """Return what has changed where that explains an incident; empty where it does not."""
    if any(finding.kind in _ABOUT_NODES for finding in incident.findings):
        return ""
    candidates = [finding for finding in incident.findings if finding.jobs or finding.label in _OF_WORK]
    if not candidates or len(candidates) < len(incident.findings):
        return ""
    changes, work = _changes(site, incident.raised_at)
    if not changes.newcomers and (changes.load is None or not changes.load.grows):
        return ""
    reasons = [_reason(finding, changes, work) for finding in candidates]
    return " ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def newcomer_text(changes: Changes, by: str, name: str, zone: str = "") -> str:
    """Return since when something is new, and how much it makes of the load, in a sentence."""
    one = next(new for new in changes.newcomers if (new.by, new.name) == (by, name))
    users = f" of {one.users} users" if by != "user" and one.users > 1 else ""
    share = f"{one.jobs:,} jobs{users}, {100 * one.share_of_jobs:.0f} % of all and {100 * one.share_of_load:.0f} % of the load"
    return f"The {by} {name} is new since {one.since:%Y-%m-%d}: {share}."


def load_text(changes: Changes) -> str:
    """Return how the load has changed, in a sentence; empty where nobody can tell."""
    load = changes.load
    if load is None:
        return ""
    word = "grown" if load.grows else "not surely changed" if load.high >= 1 / 1.1 else "fallen"
    span = f"{load.low:.2f} to {load.high:.2f}"
    return (
        f"The load has {word}: {load.jobs_a_day:,.0f} jobs a day in the last week, {load.earlier_jobs_a_day:,.0f} in the weeks "
        f"before ({load.ratio:.2f} times; {span})."
    )


def _reason(finding: Finding, changes: Changes, work: pl.DataFrame) -> str:
    if finding.kind == FindingKind.COUNTS_ODD:
        return _of_counts(finding, changes, work)
    deciding = finding.jobs[: finding.deciding_jobs] or finding.jobs
    lost = work.filter(pl.col("ref").is_in(list(deciding)))
    return _of_newcomers(lost, _MOST_OF * len(deciding), changes)


def _of_counts(finding: Finding, changes: Changes, work: pl.DataFrame) -> str:
    """More submissions, starts or ends than expected, most of which are of something new, or of load that has grown."""
    column = _OF_WORK.get(EventKind(finding.label)) if finding.label in _OF_WORK else None
    count, expected = finding.figure("count"), finding.figure("expected")
    if column is None or count is None or expected is None or count <= expected:
        return ""
    inside = work.filter(pl.col(column).is_between(finding.since, finding.until, closed="left"))
    reason = _of_newcomers(inside, _MOST_OF * (count - expected), changes)
    if reason:
        return reason
    grown = changes.load is not None and changes.load.grows and count <= expected * changes.load.high * 1.5
    return load_text(changes) if grown else ""


def _of_newcomers(jobs: pl.DataFrame, fewest: float, changes: Changes) -> str:
    """The newcomer to which at least so many jobs belong, in a sentence; the narrowest kind first."""
    for by in GROUPS:
        names = changes.names(by)
        counts = jobs.filter(pl.col(by).is_in(list(names))).group_by(by).len().sort("len", by, descending=[True, False])
        if counts.height and counts["len"].sum() >= max(1.0, fewest):
            return newcomer_text(changes, by, str(counts[by][0]))
    return ""


def _changes(site: Site, now: datetime) -> tuple[Changes, pl.DataFrame]:
    hour = now.replace(minute=0, second=0, microsecond=0)
    return _read(site.folder, site.jobs.table.version(), hour, _Reader(site))


class _Reader:
    """Reads the records of a site; two are the same where the site is, so that what was read is kept."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader)

    def __hash__(self) -> int:
        return 0

    def work(self, since: datetime, until: datetime) -> pl.DataFrame:
        rows = self._site.jobs.read_jobs(since=since, until=until).select(_NEEDED).collect()
        states = tuple(str(state) for state in self._site.settings.jobs.failure_states)
        return named_work(rows, states).with_columns(rows.select(ref_text()))


@lru_cache(maxsize=64)
def _read(_folder: Path, _version: int, hour: datetime, reader: _Reader) -> tuple[Changes, pl.DataFrame]:
    work = reader.work(hour - SPAN - PAST, hour.replace(minute=59, second=59))
    return work_changes(work, hour.replace(minute=59, second=59)), work.filter(pl.col("submit_time") > hour - 2 * SPAN)

"""Replay: walk through a site's own past with the watcher and the rules of the live loop, and no look ahead.

Site -> replay -> Replay: which incidents, when each would have been known, how many pages a week.

The rules decide at the moments of the records, whenever they are asked. So the past is taken in pieces of days, and each finding
is given the time at which a watch that looks every `every` would have had it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.silences import Silences
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.store.site import Site
from stormpetrel.watch.incident_keeper import maintenance_of
from stormpetrel.watch.job_findings import JobFindings

PIECE: Final = timedelta(days=7)
_WEEK: Final = timedelta(weeks=1)


@dataclass(frozen=True, slots=True)
class Replay:
    """What the watch would have told between two times, the oldest first; `since` is None where there is no record at all."""

    incidents: tuple[Incident, ...]
    since: datetime | None
    until: datetime | None
    recorded: tuple[datetime | None, datetime | None]  # from when to when there are records

    @property
    def weeks(self) -> float:
        """How long that was."""
        return (self.until - self.since) / _WEEK if self.since and self.until else 0.0


def pages_per_week(incidents: Iterable[Incident], weeks: float) -> float | None:
    """Return how often somebody would have been woken by these, returns counted as well; None where there was no time."""
    return sum(len(incident.paged_at) for incident in incidents) / weeks if weeks else None


def replay(
    site: Site,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    every: timedelta | None = None,
    progress: Callable[[float, str], None] = lambda _share, _words: None,
) -> Replay:
    """Return the incidents that a watch looking every so often would have raised; without times, over all job records."""
    recorded = first, last = recorded_span(site)
    if first is None or last is None:
        return Replay((), None, None, recorded)
    start = max(first, since) if since else first
    end = min(last, until) if until else last
    if end <= start:
        return Replay((), start, start, recorded)
    rhythm = every or timedelta(seconds=site.settings.watch.poll_s)
    watcher, book, now = JobFindings(site, start), IncidentBook(), start
    book.budget = PageBudget(site.settings.alarms.pages_per_week, start) if site.settings.alarms.pages_per_week else None
    # Maintenance is announced: it is taken as the site knows it today. Mutes are of the present.
    book.silences = Silences(windows=maintenance_of(site, since=start, until=end))
    while now < end:
        now = min(now + PIECE, end)
        findings = [_at_its_time(finding, start, rhythm, end) for finding in watcher.step(now)]
        book.take(findings, now)
        progress((now - start) / (end - start), f"{now:%Y-%m-%d}")
    return Replay(tuple(book), start, end, recorded)


def recorded_span(site: Site) -> tuple[datetime | None, datetime | None]:
    """Return the times between which something is known of jobs: the first start or end, and the last, not after now."""
    times = site.jobs.table.scan().select("start_time", "end_time").filter(pl.col("end_time") <= site.now())
    row = times.select(
        first=pl.min_horizontal(pl.col("start_time").min(), pl.col("end_time").min()), last=pl.col("end_time").max()
    )
    first, last = row.collect().row(0)
    # The first record itself must come after the beginning.
    return (None, None) if last is None else (_utc(first) - timedelta(seconds=1), _utc(last))


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _at_its_time(finding: Finding, start: datetime, rhythm: timedelta, end: datetime) -> Finding:
    """The finding as known at the first look after it was decided."""
    looks = -(-(finding.decided_at - start) // rhythm)
    return replace(finding, known_at=min(start + looks * rhythm, max(end, finding.decided_at)))

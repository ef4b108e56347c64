"""Replay: walk through a site's own past with the watchers and the rules of the live loop, and no look ahead.

Site -> replay -> Replay: which incidents, when each would have been known, how many pages a week.

The rules decide at the moments of the records, whenever they are asked. So the past is taken in pieces of days, and each finding
is given the time at which a watch that looks every `every` would have had it. Findings of all families go into one book, in the
order in which they would have been known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, Protocol

import polars as pl

from stormpetrel.alarms.acts import Silences
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.lifecycle.trace_models import TraceModel
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.store.site import Site
from stormpetrel.watch.incident_keeper import maintenance_of
from stormpetrel.watch.job_findings import JobFindings
from stormpetrel.watch.past.events import EventPast, PastCounts, counted_span, past_counts
from stormpetrel.watch.past.traces import TracePast, scored_span

PIECE: Final = timedelta(days=7)
_WEEK: Final = timedelta(weeks=1)
FAMILIES: Final = (JobFindings.name, EventPast.name, TracePast.name)
_AT_ONCE: Final = timedelta(0)


class _Walker(Protocol):
    """Tells, from one moment to the next, what could be known."""

    name: str

    def step(self, now: datetime) -> list[Finding]:
        """Return what was decided up to `now` and not told before."""
        ...


@dataclass(frozen=True, slots=True)
class Examined:
    """What a replay has looked at."""

    jobs: int = 0  # that ended in that time
    buckets: int = 0  # of events, seen whole
    partial_buckets: int = 0  # of events that were counted but not seen whole, whenever
    models: int = 0  # of events, trained on the way
    has_traces: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """What the watch would have told between two times, the oldest first; `since` is None where there is no record at all."""

    incidents: tuple[Incident, ...]
    since: datetime | None
    until: datetime | None
    recorded: tuple[datetime | None, datetime | None]  # from when to when there are records
    looked_at: Examined = Examined()

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
    families: Collection[str] = FAMILIES,
    models: bool = True,
    count_jobs: bool = True,
    progress: Callable[[float, str], None] = lambda _share, _words: None,
    note: Callable[[Finding], None] = lambda _finding: None,
    trace_model: TraceModel | None = None,
) -> Replay:
    """Return the incidents that a watch looking every so often would have raised; without times, over all that is recorded.

    `families` are those that are looked at. Without `models` only rules speak: no model of events is trained on the way. Without
    `count_jobs` events are those that are in the site's tables; else those that its job records tell are counted where the watch
    would do so. `note` hears of each finding, as known at its time, before it is part of an incident. The
    detector of `trace_model`, where one is named, judges the CPU windows that are kept.
    """
    progress(0.0, "reading")
    recorded = first, last = recorded_span(site)
    counts = past_counts(site, count_jobs=count_jobs)
    if first is None or last is None:
        return Replay((), None, None, recorded, Examined(partial_buckets=counts.partial()))
    start = max(first, since) if since else first
    end = min(last, until) if until else last
    if end <= start:
        return Replay((), start, start, recorded)
    book, now = IncidentBook(), start
    book.budget = PageBudget(site.settings.alarms.pages_per_week, start) if site.settings.alarms.pages_per_week else None
    # Maintenance is announced: it is taken as the site knows it today. Mutes are of the present.
    book.silences = Silences(windows=maintenance_of(site, since=start, until=end))

    def share() -> float:
        return (now - start) / (end - start)

    models = models and EventPast.name in families
    events = EventPast(counts, start, models=models, progress=lambda words: progress(share(), words))
    traces = TracePast(site, start, model=trace_model) if scored_span(site) else None
    settled: list[tuple[_Walker, timedelta]] = [(JobFindings(site, start), _AT_ONCE), (events, events.settle)]
    if traces:
        settled.append((traces, traces.settle))
    walkers = [(walker, settle) for walker, settle in settled if walker.name in families]
    rhythm = every or timedelta(seconds=site.settings.watch.poll_s)
    waiting: list[Finding] = []
    while now < end:
        upto = min(now + PIECE, end)
        for walker, settle in walkers:
            findings = [_at_its_time(finding, start, rhythm, settle, end) for finding in walker.step(upto)]
            for finding in findings:
                note(finding)
            waiting += findings
        now = upto
        # What was decided in this piece may be known in the next one, before something that is decided there.
        waiting = _take(book, waiting, now)
        progress(share(), f"{now:%Y-%m-%d}")
    if until is None or until > last:
        _take(book, waiting, max((finding.known_at for finding in waiting), default=now))
    return Replay(tuple(book), start, end, recorded, _examined(site, counts, events, start, end, has_traces=traces is not None))


def recorded_span(site: Site) -> tuple[datetime | None, datetime | None]:
    """Return the times between which something is known of jobs, events or CPU traces, not after now."""
    spans = [span for span in (_job_span(site), counted_span(site), scored_span(site)) if span is not None]
    if not spans:
        return None, None
    return min(first for first, _ in spans), min(site.now(), max(last for _, last in spans))


def _job_span(site: Site) -> tuple[datetime, datetime] | None:
    """The first start or end of a job, and the last end, not after now."""
    times = site.jobs.table.scan().select("start_time", "end_time").filter(pl.col("end_time") <= site.now())
    row = times.select(
        first=pl.min_horizontal(pl.col("start_time").min(), pl.col("end_time").min()), last=pl.col("end_time").max()
    )
    first, last = row.collect().row(0)
    # The first record itself must come after the beginning.
    return None if last is None else (first.astimezone(UTC) - timedelta(seconds=1), last.astimezone(UTC))


def _examined(site: Site, counts: PastCounts, events: EventPast, start: datetime, end: datetime, *, has_traces: bool) -> Examined:
    ended = pl.col("end_time").is_between(start, end, closed="right")
    jobs = site.jobs.table.scan().filter(ended).select(pl.len()).collect().item()
    return Examined(jobs, counts.seen(start, end), counts.partial(), events.trained, has_traces)


def _take(book: IncidentBook, findings: list[Finding], now: datetime) -> list[Finding]:
    """Give the book what was known by `now`, look by look; return the rest."""
    ready = sorted((finding for finding in findings if finding.known_at <= now), key=lambda finding: finding.known_at)
    for known_at, several in groupby(ready, key=lambda finding: finding.known_at):
        book.take(several, known_at)
    book.take((), now)
    return [finding for finding in findings if finding.known_at > now]


def _at_its_time(finding: Finding, start: datetime, rhythm: timedelta, settle: timedelta, end: datetime) -> Finding:
    """The finding as known at the first look after it was decided and settled; the last look is at the end."""
    settled_at = finding.decided_at + settle
    look = start + -(-(settled_at - start) // rhythm) * rhythm
    return replace(finding, known_at=min(look, end) if settled_at <= end else look)

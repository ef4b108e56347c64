"""Ingest of event counts: a source's spans -> the table of counts, and what came of it.

EventSource -> spans -> replace or add -> EventReport. Each span is one commit with its cursor: killed anywhere and run again, the
table is the same. What a source could not see is recorded with its reason until it is seen.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.engine import Progress
from stormpetrel.errors import SettingsError, SourceError, SourceUnavailableError, StormpetrelError, UsageError
from stormpetrel.ingest.job_event_counts import JobTableEvents
from stormpetrel.ingest.report import EventReport
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, FUTURE, FUTURE_SLACK, WHOLE, Missing, bucket_floor
from stormpetrel.sources.contract import BackgroundSource, CountedSpan, EventSource, OutageSource
from stormpetrel.sources.elastic.counts import ElasticEvents, RawElasticEvents
from stormpetrel.sources.graphite import GraphiteBackground
from stormpetrel.sources.outages.grafana import GrafanaOutages
from stormpetrel.sources.prometheus.background import PrometheusBackground
from stormpetrel.store.events.counts import EventCountStore
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import PollSource, Seen, unnoted
from stormpetrel.store.tables import Committed

_TABLE: Final = "table:"  # what the names of sources that are files of counts or events begin with
_ANNOUNCED: Final = timedelta(days=366)
_BACK: Final = timedelta(days=180)  # where nothing has been counted yet, as `events.since` has it
_BUCKET_LABELS: Final = (
    "These counts are per {there:g} min, and the models see counts per {wanted} min: set events.bucket_minutes to look at them."
)


def ingest_events(
    site: Site, source: EventSource, *, progress: Progress | None = None, report: EventReport | None = None
) -> EventReport:
    """Read a source on and take in what it tells; a source that fails leaves what was committed, and its gap recorded.

    `report` is filled as the reading goes on, so that it says what was taken in when the source fails.
    """
    started = time.perf_counter()
    report = report if report is not None else EventReport()
    report.source = source.source
    taking = _Taking(site, source.source, report)
    try:
        for span in source.spans(taking.cursor, site.now()):
            taking.take(span)
            if progress:
                progress(span.done, f"{source.source} up to {span.end:%Y-%m-%d %H:%M}")
    except (SourceError, SettingsError) as error:
        taking.note_failure(error)
        raise
    finally:
        report.notes += [note for note in source.notes if note not in report.notes]
        report.seconds += time.perf_counter() - started
        taking.finish()
    return report


class _Taking:
    """One ingest on its way: where the source was left, and the report."""

    def __init__(self, site: Site, source: str, report: EventReport) -> None:
        self._site = site
        self._store: EventCountStore = site.event_counts
        self._source = source
        self._report = report
        self._now = site.now()
        self._bucket_s = site.settings.events.bucket_minutes * 60
        self._left_at: dict[str, int | None] = {}  # where each log was when its reader asked
        self._read_to: datetime | None = None
        self._before: set[datetime] | None = None
        self._new: set[datetime] = set()
        self._late: set[datetime] = set()

    def cursor(self, name: str) -> int | None:
        """Where a source was left; remembered, so that nobody else can have read on unnoticed."""
        self._left_at[name] = self._store.cursor(name)
        return self._left_at[name]

    def take(self, span: CountedSpan) -> None:
        """Commit one span, and count it."""
        for why, events in span.quarantined.items():
            self._report.set_aside(why, events)
        counts = self._checked(span.counts)
        again = None if span.additive else (span.start, span.end)
        if span.missing:  # before the counts: killed in between, this span is told again, and no gap is without its reason
            self._update_reasons(span.missing, again)
        self._commit(span, counts)
        self._report.count(counts)
        if counts.height:
            # One value each, not the column as objects: half a million of them would hold up the loop of the watch for seconds.
            first, last, bucket_s = counts.select(
                first=pl.col("bucket_start").min(), last=pl.col("bucket_start").max(), bucket_s=pl.col("bucket_s").max()
            ).row(0)
            self._report.stretch(first, last + timedelta(seconds=bucket_s))
        self._read_to = span.end
        if self._store.reasons.read(self._source).height:
            self._update_reasons([], None if span.missing else again)

    def _update_reasons(self, missing: Sequence[Missing], again: tuple[datetime, datetime] | None) -> None:
        seen = self._store.coverage(bucket_s=self._bucket_s, source=self._source)
        self._store.reasons.update(self._source, missing, seen=seen, now=self._now, again=again)

    def _is_followed(self, error: StormpetrelError) -> bool:
        """Whether the source goes on and on, so that what it did not tell now is a gap; a file that somebody names does not."""
        return isinstance(error, SourceUnavailableError) or any(self._source in name for name in self._left_at)

    def note_failure(self, error: StormpetrelError) -> None:
        """Record that the source did not answer, or not with events, from where it was seen last to what is over now."""
        self._report.problems.append(str(error))
        if not self._is_followed(error):
            return
        seen = self._store.coverage(bucket_s=self._bucket_s, source=self._source)
        start = self._read_to
        if start is None and seen.start_s.size:
            start = datetime.fromtimestamp(int(seen.start_s[-1]) + self._bucket_s, UTC)
        settled = self._now - timedelta(minutes=self._site.settings.events.settle_minutes)
        end = bucket_floor(settled, self._bucket_s)
        if start is not None and start < end:
            self._store.reasons.update(self._source, [(start, end, error.what)], seen=seen, now=self._now)

    def finish(self) -> None:
        """What is still missing between the first and the last bucket of this reading, and a line in the book of ingests."""
        report = self._report
        if report.first and report.last:
            report.gaps = self._store.gaps(bucket_s=self._bucket_s, since=report.first, until=report.last, source=self._source)
            self._note_others(report.first, report.last)
        if report.kept or report.changed or report.quarantined or report.problems:
            self._site.state.record_ingest(self._source, report.as_dict())

    def _note_others(self, first: datetime, last: datetime) -> None:
        """Say so where a table of another name counts the same time: a copy would be counted twice."""
        others = self._store.overlapping(self._source, first, last) if self._source.startswith(_TABLE) else []
        if others:
            self._report.notes.append(
                f"{', '.join(others[:3])} counts the same time, and both are added up. If they tell of the same events: "
                f"stormpetrel ingest events --drop {others[0]}"
            )

    def _commit(self, span: CountedSpan, counts: pl.DataFrame) -> None:
        if span.additive:
            if span.cursor is None:
                raise ValueError("an additive span has a cursor")
            name = span.cursor.name
            known = {"after": self._left_at[name]} if name in self._left_at else {}
            self._note_before(counts)
            done = self._store.add(counts, cursor=span.cursor, **known)
            self._left_at[name] = span.cursor.position
            self._note_added(counts, done)
            return
        parts = counts.partition_by("source", "bucket_s", as_dict=True) or {(self._source, self._bucket_s): counts}
        for number, ((source, bucket_s), part) in enumerate(parts.items(), start=1):
            last = span.cursor if number == len(parts) else None
            done = self._store.replace(
                part, source=str(source), start=span.start, end=span.end, bucket_s=int(bucket_s), cursor=last
            )
            self._report.add(done)

    def _note_before(self, counts: pl.DataFrame) -> None:
        """Which buckets there were before this reading: a log comes in pieces, and a bucket is new or changed only once."""
        if self._before is None and counts.height:
            rows = self._store.read().filter(pl.col("source") == self._source)
            self._before = set(rows.select(pl.col("bucket_start").unique()).collect().to_series())

    def _note_added(self, counts: pl.DataFrame, done: Committed) -> None:
        if not done.kept and not done.changed:  # it was read before
            self._report.add(done)
            return
        before = self._before or set()
        self._new |= set(counts["bucket_start"]) - before
        self._late |= set(counts.filter(pl.col("kind") != COVERED)["bucket_start"]) & before
        self._report.kept, self._report.changed = len(self._new), len(self._late)

    def _checked(self, counts: pl.DataFrame) -> pl.DataFrame:
        """The counts as the table wants them, without buckets that begin in the future."""
        typed = counts.select(pl.col(name).cast(dtype) for name, dtype in COUNT_SCHEMA.items())
        future = pl.col("bucket_start") > self._now + FUTURE_SLACK
        ahead = typed.filter(future)
        if ahead.height:
            events = ahead.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED)["count"].sum()
            self._report.set_aside(FUTURE, int(events))
            typed = typed.filter(~future)
        for there in typed["bucket_s"].unique():
            note = _BUCKET_LABELS.format(there=there / 60, wanted=self._bucket_s // 60)
            if there != self._bucket_s and note not in self._report.notes:
                self._report.notes.append(note)
        return typed


def ingest_background(
    site: Site, source: BackgroundSource, *, progress: Progress | None = None, report: EventReport | None = None
) -> EventReport:
    """Read a server of background on and take in what it tells."""
    started = time.perf_counter()
    report = report if report is not None else EventReport()
    report.source = source.source
    bucket_s = site.settings.events.bucket_minutes * 60
    try:
        for span in source.spans(site.event_background.cursor, site.now()):
            done = site.event_background.replace(
                span.values, source=source.source, start=span.start, end=span.end, bucket_s=bucket_s, cursor=span.cursor
            )
            report.read += span.values.height
            report.add(done)
            report.stretch(span.start, span.end)
            if progress:
                progress(0.0, f"{source.source} up to {span.end:%Y-%m-%d %H:%M}")
    finally:  # what was read before a server went away is told as well
        report.notes += source.notes
        report.seconds = time.perf_counter() - started
    if report.read:
        site.state.record_ingest(source.source, report.as_dict())
    return report


def ingest_outages(
    site: Site,
    source: OutageSource,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    report: EventReport | None = None,
) -> EventReport:
    """Take what a source of outages says of a span in place of what it said before; by default of all that was counted, on.

    The span ends a year from now: maintenance is announced.
    """
    started = time.perf_counter()
    report = report if report is not None else EventReport()
    report.source = source.source
    start, end = start or _counted_since(site), end or site.now() + _ANNOUNCED
    outages = source.outages(start, end)
    report.read = len(outages)
    report.add(site.outages.replace_source(source.source, outages, start, end))
    report.notes += source.notes
    report.seconds = time.perf_counter() - started
    if report.kept or report.changed:
        site.state.record_ingest(source.source, report.as_dict())
    return report


def drop_table(site: Site, source: str) -> int:
    """Forget what a table has told; how many rows. A log cannot be forgotten: it would not be read again."""
    known = [name for name in site.event_counts.sources() if name.startswith(_TABLE)]
    if source not in known:
        there = f"Tables that have been counted: {', '.join(known)}." if known else "No table has been counted."
        raise UsageError(f"There are no counts of a table {source[:80]!r}.", hint=there)
    return site.event_counts.drop(source)


def ingest_job_events(site: Site, *, whole: bool = False, progress: Progress | None = None) -> EventReport:
    """Count what the job table tells of submissions, starts and ends: what is new, or of all jobs if `whole` says so."""
    return ingest_events(site, _job_table(site, whole), progress=progress)


def has_event_sources(site: Site) -> bool:
    """Whether there are events to count or judge: a server or a log is named, tables were counted, or there are jobs to come."""
    settings = site.settings
    if settings.elastic.url or settings.htcondor.event_log or settings.site.feed or settings.slurm.rest_url:
        return True
    if shutil.which(settings.slurm.sacct) or _has_background(site) or settings.grafana.url:
        return True
    return bool(site.event_counts.sources()) or _has_jobs(site)


def _has_background(site: Site) -> bool:
    graphite, prometheus = site.settings.graphite, site.settings.prometheus
    return bool((graphite.url and graphite.targets) or (prometheus.url and prometheus.background))


def ingest_live_events(
    site: Site, *, whole: bool = False, raw: bool = False, progress: Progress | None = None, poll_source: PollSource = unnoted
) -> list[EventReport]:
    """Read on every source that site.toml names: events first, then the background, then outages.

    One that fails does not keep the others out: its report says so under `problems`. `whole` counts all of the job table again;
    `raw` counts the documents of Elasticsearch here. `poll_source` is entered around each reading, with the name of its source.
    """
    reports = []
    for name, reading in _live_readings(site, whole=whole, raw=raw):
        report = EventReport()
        try:
            with poll_source(name) as seen:
                reading(report, _noting(progress, seen))
                seen(report.read)
        except StormpetrelError as error:
            if str(error) not in report.problems:
                report.problems.append(str(error))
        reports.append(report)
    return reports


_Reading = Callable[[EventReport, "Progress | None"], object]


def _noting(progress: Progress | None, seen: Seen) -> Progress:
    """The same progress, which also says that the reading goes on."""

    def note(share: float, text: str) -> None:
        seen(0)
        if progress:
            progress(share, text)

    return note


def _live_readings(site: Site, *, whole: bool, raw: bool) -> Iterator[tuple[str, _Reading]]:
    """What is to be read, in order, by name; nothing is opened before its turn."""
    settings = site.settings
    if settings.elastic.url:
        yield "elasticsearch", lambda report, progress: ingest_events(site, _elastic(site, raw), progress=progress, report=report)
    if settings.htcondor.event_log:
        yield (
            "event log (events)",
            lambda report, progress: ingest_events(site, _followed_log(site), progress=progress, report=report),
        )
    if counts_jobs(site):
        yield "job table", lambda report, progress: ingest_events(site, _job_table(site, whole), progress=progress, report=report)
    if settings.graphite.url and settings.graphite.targets:
        yield "graphite", lambda report, progress: ingest_background(site, _graphite(site), progress=progress, report=report)
    if settings.prometheus.url and settings.prometheus.background:
        yield "prometheus", lambda report, progress: ingest_background(site, _prometheus(site), progress=progress, report=report)
    if settings.grafana.url:
        yield "grafana", lambda report, _progress: ingest_outages(site, _grafana(site), report=report)


def counts_jobs(site: Site) -> bool:
    """Whether the job table is a source of events: where no other is named, or next to them where Slurm is read."""
    if not (site.settings.elastic.url or site.settings.htcondor.event_log):
        return _has_jobs(site)
    return any(site.jobs.cursor(f"slurm:{name}") is not None for name in site.settings.slurm.clusters or ["local"])


def _has_jobs(site: Site) -> bool:
    return bool(site.jobs.read_jobs().select("job_id").head(1).collect().height)


def _counted_since(site: Site) -> datetime:
    first = site.event_counts.seen()["first"].min()
    return first if isinstance(first, datetime) else site.now() - _BACK


def _elastic(site: Site, raw: bool) -> EventSource:
    if raw:
        return RawElasticEvents(site.settings.elastic, site.settings.events)

    return ElasticEvents(site.settings.elastic, site.settings.events)


def _followed_log(site: Site) -> EventSource:
    from stormpetrel.sources.htcondor.follow import FollowedEventLog

    return FollowedEventLog(site.settings)


def _job_table(site: Site, whole: bool) -> EventSource:
    return JobTableEvents(site, whole=whole)


def _graphite(site: Site) -> BackgroundSource:
    return GraphiteBackground(site.settings.graphite, site.settings.events)


def _prometheus(site: Site) -> BackgroundSource:
    return PrometheusBackground(site.settings.prometheus, site.settings.events)


def _grafana(site: Site) -> OutageSource:
    return GrafanaOutages(site.settings.grafana, now=site.now())

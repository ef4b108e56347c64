"""Reading records into a site: an act of who manages it, with a receipt that adds up.

Site + Viewer + JobFiles -> ingest_job_files -> JobsIngested; ingest_live_jobs, of a running Slurm; take_job_documents,
of its jobcomp plug-in -> DocumentsTaken; ingest_event_files,
ingest_live_events -> EventsIngest; drop_event_table -> DroppedTable; ingest_campaign_files, ingest_live_traces -> TraceIngest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.ingest import (
    DocumentsTaken,
    DroppedTable,
    EventIngest,
    EventsIngest,
    JobFiles,
    JobIngest,
    TraceIngest,
)
from stormpetrel.answers.viewer import INGEST, MANAGE
from stormpetrel.errors import NotThereError, SourceError, SourceUnavailableError, UsageError
from stormpetrel.ingest import events
from stormpetrel.ingest.events import drop_table, ingest_events
from stormpetrel.ingest.jobcomp_inbox import JobcompInbox
from stormpetrel.ingest.jobs import find_gaps, ingest_jobs, sum_job_reports
from stormpetrel.ingest.report import EventReport, sum_event_reports
from stormpetrel.ingest.traces import ingest_campaigns, ingest_live
from stormpetrel.sources.formats import ReadOptions, event_file, open_source
from stormpetrel.sources.slurm.live import live_sources

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.ingest import JobDocument
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.ingest.jobs import IngestReport
    from stormpetrel.sources.contract import JobSource
    from stormpetrel.store.site import Site

Bar = Callable[[str, int], AbstractContextManager[Callable[[int, int], None]]]  # title, bytes in all -> bytes done, records read
Progress = Callable[[float, str], None]  # the share that is done, what is being read


@dataclass(frozen=True, slots=True)
class JobsIngested:
    """The receipt of each source by its name, their sum with the gaps of the whole span, and the errors of those that failed."""

    sources: tuple[tuple[str, JobIngest], ...]
    total: JobIngest
    problems: tuple[SourceError, ...]


def ingest_job_files(site: Site, viewer: Viewer, act: JobFiles, *, bar: Bar) -> JobsIngested:
    """Read files of job records, one after the other; one that cannot be read does not keep the others out."""
    viewer.require(MANAGE)
    reports, problems = _read_all(site, _file_sources(site, act), bar)
    return _jobs_ingested(site, reports, problems)


def ingest_live_jobs(site: Site, viewer: Viewer, *, bar: Bar) -> JobsIngested:
    """Read what the site's Slurm has to tell since the last run, a window at a time; the receipt is that of all windows."""
    viewer.require(MANAGE)
    accounting = live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=site.now())
    sources = chain(JobcompInbox(site).sources(), accounting) if site.settings.slurm.jobcomp else accounting
    reports, problems = _read_all(site, sources, bar)
    ingested = _jobs_ingested(site, reports, problems)
    together = ((f"Slurm, {len(reports)} windows", ingested.total),) if reports else ()
    return JobsIngested(together, ingested.total, ingested.problems)


def take_job_documents(site: Site, viewer: Viewer, documents: Sequence[JobDocument]) -> DocumentsTaken:
    """Keep what Slurm's jobcomp plug-in sends, for the watch to read into the job table."""
    viewer.require(INGEST)
    if not site.settings.slurm.jobcomp:
        raise NotThereError("This site takes in no documents of jobcomp.", hint="In site.toml set slurm.jobcomp = true.")
    JobcompInbox(site).put([document.model_dump(by_alias=True) for document in documents])
    return DocumentsTaken(taken=len(documents))


def ingest_event_files(
    site: Site, viewer: Viewer, files: Sequence[Path], *, format_name: str | None, year: int | None, progress: Progress
) -> EventsIngest:
    """Count the events of each file; one that cannot be read does not keep the others out, and stands among the problems."""
    viewer.require(MANAGE)
    reports = []
    for path in files:
        report = EventReport(path.name)
        try:
            ingest_events(site, event_file(path, format_name, site.settings, year=year), progress=progress, report=report)
        except SourceError as error:
            if str(error) not in report.problems:
                report.problems.append(str(error))
        reports.append(report)
    return _events_ingested(reports)


def ingest_live_events(site: Site, viewer: Viewer, *, raw: bool, progress: Progress) -> EventsIngest:
    """Count events of every source that site.toml names, from where the last run stopped; UsageError where it names none."""
    viewer.require(MANAGE)
    reports = events.ingest_live_events(site, raw=raw, progress=progress)
    if not reports:
        raise UsageError(
            "Nothing says where events come from.",
            hint="In site.toml set elastic.url or htcondor.event_log, or take in jobs first: stormpetrel ingest jobs.",
        )
    return _events_ingested(reports)


def event_receipt(report: EventReport) -> EventIngest:
    """Return what came of one source of events, of background or of outages."""
    return EventIngest.model_validate({**report.as_dict(), "gap_count": len(report.gaps), "note_count": len(report.notes)})


def drop_event_table(site: Site, viewer: Viewer, source: str) -> DroppedTable:
    """Forget what a table of counts has told, by its name; buckets that were scored keep their score."""
    viewer.require(MANAGE)
    return DroppedTable(dropped=source, rows=drop_table(site, source))


def ingest_campaign_files(site: Site, viewer: Viewer, files: Sequence[Path], *, progress: Progress) -> TraceIngest:
    """Cut the traces of campaign files into windows and keep them."""
    viewer.require(MANAGE)
    return TraceIngest.model_validate(ingest_campaigns(site, files, progress=progress).as_dict())


def ingest_live_traces(site: Site, viewer: Viewer, *, progress: Progress) -> TraceIngest:
    """Cut what the site's Prometheus has seen since the last run into windows and keep them."""
    viewer.require(MANAGE)
    return TraceIngest.model_validate(ingest_live(site, progress=progress).as_dict())


def _file_sources(site: Site, act: JobFiles) -> Iterator[JobSource | SourceError]:
    options = ReadOptions(
        time_zone=site.settings.site.time_zone,
        cluster=act.cluster or site.settings.site.cluster,
        fields=act.fields,
        delimiter=act.delimiter,
        year=act.year,
    )
    for path in act.files:
        try:
            source = open_source(path, act.format, options)
        except SourceError as error:
            yield error
            continue
        if act.as_of:
            source.as_of = act.as_of
        yield source


def _read_all(
    site: Site, sources: Iterable[JobSource | SourceError], bar: Bar
) -> tuple[list[tuple[str, IngestReport]], list[SourceError]]:
    """Each source in turn. A live source that is gone ends it: what comes after would leave a hole."""
    reports: list[tuple[str, IngestReport]] = []
    problems: list[SourceError] = []
    for source in sources:
        try:
            if isinstance(source, SourceError):
                raise source
            with bar(f"reading {source.name}", source.size_bytes) as progress:
                reports.append((source.name, ingest_jobs(site, source, progress=progress)))
        except SourceError as error:
            problems.append(error)
            if isinstance(error, SourceUnavailableError):
                break
    return reports, problems


def _jobs_ingested(site: Site, reports: list[tuple[str, IngestReport]], problems: list[SourceError]) -> JobsIngested:
    total = sum_job_reports([report for _, report in reports])
    total.gaps = find_gaps(site, total.first, total.last)
    receipts = tuple((name, JobIngest.model_validate(report.as_dict())) for name, report in reports)
    return JobsIngested(receipts, JobIngest.model_validate(total.as_dict()), tuple(problems))


def _events_ingested(reports: Sequence[EventReport]) -> EventsIngest:
    total = event_receipt(sum_event_reports(reports))
    return EventsIngest(**total.model_dump(by_alias=True), sources=[event_receipt(report) for report in reports])

"""What has happened since the last poll: the live sources of a site, read into its job table.

Site -> LiveReader.read -> Read (up to when everything is known, how many records, what is wrong).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.config import Settings
from stormpetrel.errors import SourceError, UsageError
from stormpetrel.ingest.jobcomp_inbox import JobcompInbox
from stormpetrel.ingest.jobs import IngestReport, ingest_jobs
from stormpetrel.sources.contract import JobSource
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import JOBS, Seen, SourceBook
from stormpetrel.watch.slurm_poll import SlurmPoll

_SECOND: Final = timedelta(seconds=1)  # schedulers tell whole seconds: the one under way may not be over for them


@dataclass(frozen=True, slots=True)
class Read:
    """One poll: `until` is None where a source did not answer, so that nothing may be said about what happened since."""

    until: datetime | None
    new: int = 0
    changed: int = 0
    quarantined: int = 0
    problem: str | None = None
    notes: tuple[str, ...] = ()  # what is known and not told in full
    again_s: float | None = None  # when to poll again, where a second poll is needed


@dataclass
class _Counts:
    new: int = 0
    changed: int = 0
    quarantined: int = 0

    def add(self, report: IngestReport) -> None:
        self.new += report.kept
        self.changed += report.changed
        self.quarantined += sum(report.quarantined.values())


@dataclass
class LiveReader:
    """Reads every live source of a site, each with its own cursor; one that is away keeps the horizon where it is."""

    site: Site
    book: SourceBook = field(default_factory=SourceBook)  # what each poll came to
    poll_s: float | None = None  # how often it is called, if not as the settings say
    _slurm: SlurmPoll | None = None
    _counts: _Counts = field(default_factory=_Counts)
    _polls: dict[str, Callable[[datetime], Iterator[JobSource]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.site.settings
        if not has_job_sources(settings):
            raise nothing_to_watch(settings)
        if settings.slurm.rest_url or shutil.which(settings.slurm.sacct):
            self._slurm = SlurmPoll(self.site, lambda report: self._counts.add(report), self._poll_source)
        if settings.slurm.jobcomp:
            inbox = JobcompInbox(self.site)
            self._polls["jobcomp"] = lambda _now: inbox.sources()
        if settings.htcondor.event_log:
            from stormpetrel.sources.htcondor.follow_jobs import FollowedJobs  # numba, which other sites need not load

            log = FollowedJobs(settings)
            self._polls["event log (jobs)"] = lambda now: log.sources(self.site.jobs.cursor, now)

    def read(self) -> Read:
        """Take in what is new; a source that fails commits nothing and is read again at the next poll."""
        now = self.site.now()
        self._counts = counts = _Counts()
        slurm = self._slurm
        try:
            if slurm is not None:
                slurm.poll(now)
            for name, poll in self._polls.items():
                self._take_in(name, poll(now))
        except SourceError as error:
            return Read(None, counts.new, counts.changed, counts.quarantined, problem=str(error))
        read = Read(now - _SECOND, counts.new, counts.changed, counts.quarantined)
        return read if slurm is None else replace(read, problem=slurm.problem, notes=slurm.notes, again_s=slurm.again_s)

    def _poll_source(self, name: str) -> AbstractContextManager[Seen]:
        return self.book.poll(name, watcher=JOBS, every_s=self.poll_s or self.site.settings.watch.poll_s)

    def _take_in(self, name: str, sources: Iterator[JobSource]) -> None:
        with self._poll_source(name) as seen:
            for source in sources:
                report = ingest_jobs(self.site, source, remember=False)
                seen(report.read)
                self._counts.add(report)


def has_job_sources(settings: Settings) -> bool:
    """Whether there is a live source of jobs."""
    slurm = settings.slurm
    return bool(slurm.rest_url or slurm.jobcomp or settings.htcondor.event_log or shutil.which(slurm.sacct))


def nothing_to_watch(settings: Settings) -> UsageError:
    """What to say where no live source is set."""
    hint = "Set one of them in site.toml; stormpetrel doctor says what can be reached."
    if settings.prometheus.url:
        hint = "There is a prometheus.url: set traces.watch = true to have its CPU counters followed, or prometheus.background."
    return UsageError(
        f"There is nothing to watch: no command '{settings.slurm.sacct}', no slurm.rest_url, no slurm.jobcomp, "
        "no htcondor.event_log, no elastic.url, no graphite.url with targets, no prometheus.url, no grafana.url, and no jobs "
        "or events in the tables.",
        hint=hint,
    )

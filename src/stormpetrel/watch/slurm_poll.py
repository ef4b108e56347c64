"""One poll of Slurm: what its controllers list now, what accounting says has ended, and what became of jobs on no list any more.

SlurmPoll.poll -> rows of the job table; what waits and runs there is what the controllers list. Asked in this order: the list
(a few milliseconds), jobs that have ended, details of listed jobs whose line has changed, jobs that are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import SourceError
from stormpetrel.ingest.jobs import IngestReport, ingest_jobs
from stormpetrel.records.states import UNFINISHED
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.record_filter import Chosen, is_among
from stormpetrel.sources.slurm.live import LiveSlurm, find_queues, has_queues
from stormpetrel.sources.slurm.queue import Queue, QueueList
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import PollSource, Seen
from stormpetrel.watch.gone_jobs import GoneJobs

_WIDE_EVERY: Final = timedelta(hours=1)  # how often a poll reaches back as far as slurm.overlap_hours, for late corrections
_AGAIN_EVERY: Final = timedelta(minutes=1)  # how often one reaches back watch.overlap_minutes, where that is very much
_NEAR_HOURS: Final = 1 / 60  # and how far the others do
_VERY_MANY: Final = 2_000  # records that a poll reads although they are known
_ALL_EVERY_S: Final = 600.0  # how often every listed job is looked at again, whatever its line says
_ACCOUNTING_LAG_S: Final = (2.0, 15.0)  # so many seconds after its controller, accounting has heard of a job
_BENEATH: Final = datetime(
    1970, 1, 1, tzinfo=UTC
)  # what accounting says of a job that goes on gives way to its controller's word

Take = Callable[[JobSource], IngestReport]


@dataclass
class _Listed:
    """What is remembered of one cluster's list between two polls."""

    queue: Queue
    gone: GoneJobs
    has_answered: bool = False
    lines: dict[int, str] = field(default_factory=dict)  # by raw id, as last taken in
    all_at: float = float("-inf")
    requested_beneath: tuple[float, float] = (0.0, 0.0)  # from when to when accounting is asked about jobs that are new
    is_settled: bool = False  # table and list were the same at the last poll


class SlurmPoll:
    """Polls a Slurm again and again; what is requested depends on what has changed."""

    def __init__(self, site: Site, count: Callable[[IngestReport], None], poll_source: PollSource) -> None:
        self._site, self._count, self._poll_source = site, count, poll_source
        self._accounting = "slurmrestd" if site.settings.slurm.rest_url else "sacct"
        self._seen: Seen = lambda _records: None  # of the poll under way
        self._slurm: LiveSlurm | None = None
        self._clusters: dict[str, _Listed] | None = None
        self._wide_at: datetime | None = None
        self._again_at: datetime | None = None  # the last poll that reached back watch.overlap_minutes
        self._known_again = 0  # records that it read although they were known
        self.problem: str | None = None  # of a controller's list; accounting that is away is raised
        self.notes: tuple[str, ...] = ()
        self.again_s: float | None = None  # when to poll again, where a second poll is needed

    def poll(self, now: datetime) -> None:
        """Take in what has changed; SourceError where accounting does not answer, after the lists have been taken in."""
        self.problem, self.notes, self.again_s = None, (), None
        lists = self._lists()
        failure = self._take_ended(now, lists)
        for name, listed in lists.items():
            try:
                with self._polling(self._queue_of(name)):
                    self._take_listed(name, listed, now, accounting_answers=failure is None)
            except SourceError as error:
                self.problem = str(error)
        if failure is not None:
            self._slurm = None  # it may come back as another version, or with other clusters
            raise failure

    @contextmanager
    def _polling(self, name: str) -> Iterator[None]:
        """Note a poll of a source of this name: one that hangs is seen while it does."""
        with self._poll_source(name) as self._seen:
            yield

    def _queue_of(self, cluster: str) -> str:
        command = "slurmctld" if self._site.settings.slurm.rest_url else "squeue"
        return f"{command} of {cluster}" if cluster else command

    def _take(self, source: JobSource) -> IngestReport:
        report = ingest_jobs(self._site, source, remember=False)
        self._seen(report.read)
        self._count(report)
        self.notes = (*self.notes, *(note for note in report.notes if note not in self.notes))
        return report

    def _lists(self) -> dict[str, QueueList]:
        """The lists that can be had; a cluster without one is read from accounting alone, as far as that goes."""
        lists = {}
        if self._clusters is None and has_queues(self._site.settings.slurm):
            self._find_clusters()
        for name, cluster in (self._clusters or {}).items():
            try:
                with self._polling(self._queue_of(name)):
                    lists[name] = cluster.queue.list_jobs()
                    self._seen(lists[name].jobs.height)
                self.notes = (*self.notes, *lists[name].notes)
                cluster.has_answered = True
            except SourceError as error:
                if name and not cluster.has_answered:  # one of several: its controller may be out of reach from here for good
                    self.notes = (*self.notes, f"{name} is read from accounting alone: {error.what}")
                else:
                    self.problem = str(error)
                cluster.lines, cluster.all_at, cluster.is_settled = {}, float("-inf"), False  # accounting may overwrite it all
        return lists

    def _find_clusters(self) -> None:
        try:
            with self._polling(self._queue_of("")):
                queues = find_queues(self._site.settings.slurm)
        except SourceError as error:
            self.problem = str(error)
            return
        self._clusters = {name: _Listed(queue, GoneJobs(self._site, queue, name, self._take)) for name, queue in queues.items()}

    def _take_ended(self, now: datetime, lists: dict[str, QueueList]) -> SourceError | None:
        """What accounting says has happened; of clusters without a list also what it says of jobs that go on."""
        settings = self._site.settings
        wide = self._wide_at is None or now - self._wide_at >= _WIDE_EVERY
        near = not wide and self._known_again > _VERY_MANY and self._again_at is not None and now - self._again_at < _AGAIN_EVERY
        hours = _NEAR_HOURS if near else settings.watch.overlap_minutes / 60
        overlap = settings.slurm.overlap_hours if wide else min(settings.slurm.overlap_hours, hours)
        try:
            with self._polling(self._accounting):
                if self._slurm is None:
                    self._slurm = LiveSlurm(settings.slurm, settings.site)
                sources = self._slurm.sources(self._site.jobs.cursor, now=now, overlap_hours=overlap, listed=list(lists))
                reports = [self._take(source) for source in sources]
                changed = any(self._changed(report) for report in reports)
            for cluster in (self._clusters or {}).values():
                cluster.is_settled = cluster.is_settled and not changed
        except SourceError as error:
            return error
        self._wide_at = now if wide else self._wide_at
        if not wide and not near:
            self._again_at, self._known_again = now, sum(report.known for report in reports)
        return None

    @staticmethod
    def _changed(report: IngestReport) -> bool:
        return report.kept + report.changed > 0

    def _take_listed(self, name: str, listed: QueueList, now: datetime, *, accounting_answers: bool) -> None:
        assert self._clusters is not None
        cluster = self._clusters[name]
        clock = time.monotonic()
        goes_on = listed.jobs.filter(pl.col("state").is_in([str(state) for state in UNFINISHED]))
        lines = dict(goes_on.select("raw_id", "line").iter_rows())
        if clock - cluster.all_at >= _ALL_EVERY_S:
            cluster.lines, cluster.all_at, cluster.is_settled = {}, clock, False
        changed = frozenset(number for number, line in lines.items() if cluster.lines.get(number) != line)
        if changed:
            self._take_details(cluster, changed, clock)
        if changed or len(lines) != len(cluster.lines):
            cluster.is_settled = False
        cluster.lines = lines
        if cluster.requested_beneath[0] <= clock < cluster.requested_beneath[1] and accounting_answers:
            self._take_beneath(name, listed, now)
        if not cluster.is_settled:
            accounting = self._slurm.accounting if self._slurm and accounting_answers else None
            again_s = cluster.gone.poll(listed, accounting, now)
            cluster.is_settled = cluster.gone.none_left
            self.again_s = min(filter(None, (self.again_s, again_s)), default=None)

    def _take_details(self, cluster: _Listed, raw_ids: frozenset[int], clock: float) -> None:
        source = cluster.queue.details(raw_ids)
        self._take(source)
        if "submit_line" not in source.fields():
            first, last = _ACCOUNTING_LAG_S
            waits = cluster.requested_beneath[0] if clock < cluster.requested_beneath[1] else clock + first
            cluster.requested_beneath = (waits, clock + last)

    def _take_beneath(self, name: str, listed: QueueList, now: datetime) -> None:
        """What only accounting knows of jobs that go on; what both tell, their controller tells better."""
        assert self._slurm is not None
        start = now - timedelta(minutes=self._site.settings.watch.overlap_minutes)
        source = self._slurm.accounting.going_on(name, start, now)
        if source is None:
            return
        source.as_of = _BENEATH
        # A job that it believes to be open and that no controller lists has ended, or has not been listed yet.
        self._take(Chosen(source, lambda records: is_among(records, listed.open)))

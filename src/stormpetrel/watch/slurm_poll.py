"""One poll of Slurm: what its controllers list now, what accounting says has ended, and what became of jobs on no list any more.

SlurmPoll.poll -> rows of the job table; what waits and runs there is what the controllers list. Asked in this order: the list
(a few milliseconds), jobs that have ended, details of listed jobs whose line has changed, jobs that are gone.

Jobs that are open in the table and on their controller's list no more: looked up by id, and closed.

QueueList -> GoneJobs.poll -> rows that ended as accounting or the controller say; as a last resort, after a second poll, by our
own conclusion: a waiting task whose array is still known was cancelled, a job that nobody knows has vanished. Nothing is
concluded from a list that may not hold everything, and a job that shows again is open again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import SourceError
from stormpetrel.ingest.jobs import IngestReport, ingest_jobs
from stormpetrel.records.jobs import JOB_SCHEMA, KEY
from stormpetrel.records.states import UNFINISHED, JobState
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.record_filter import OPEN_KEY, Chosen, is_among, key_of
from stormpetrel.sources.slurm.live import Accounting, LiveSlurm, find_queues, has_queues
from stormpetrel.sources.slurm.queue import Queue, QueueList
from stormpetrel.sources.slurm.unfinished import ClosedJobs, is_unfinished
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import PollSource, Seen

_WIDE_EVERY: Final = timedelta(hours=1)  # how often a poll reaches back as far as slurm.overlap_hours, for late corrections
_AGAIN_EVERY: Final = timedelta(minutes=1)  # how often one reaches back watch.overlap_minutes, where that is very much
_NEAR_HOURS: Final = 1 / 60  # and how far the others do
_VERY_MANY: Final = 2_000  # records that a poll reads although they are known
_ALL_EVERY_S: Final = 600.0  # how often every listed job is looked at again, whatever its line says
_ACCOUNTING_LAG_S: Final = (2.0, 15.0)  # so many seconds after its controller, accounting has heard of a job
_BENEATH: Final = datetime(
    1970, 1, 1, tzinfo=UTC
)  # what accounting says of a job that goes on gives way to its controller's word
_FORMATS: Final = (
    "sacct",
    "sacct-json",
    "squeue",
    "slurmrestd",
    "absence",
)  # an HTCondor job may bear the cluster's name as well
_SECOND_LOOK_S: Final = 1.0
_END_KNOWN_AFTER_S: Final = 4.0  # so long accounting may take to tell the end of a job that ran
_ASKS: Final = 2  # how often accounting is asked for a job at once
_ASK_AGAIN_S: Final = 600.0  # and then, of jobs that cannot be closed
_IDS_PER_CALL: Final = 200
_TASKS_BY_THEMSELVES: Final = 50  # of one array; more are asked for with all the others of it
# What is remembered of a job that is gone: since when (on our own clock), whether the poll before had it, how often and when
# accounting was asked for it.
_MEMORY: Final = pl.Schema(
    {
        **{name: JOB_SCHEMA[name] for name in KEY},
        "since": pl.Float64(),
        "was_listed": pl.Boolean(),
        "asks": pl.Int32(),
        "asked": pl.Float64(),
    }
)
_NEVER_STARTED: Final = pl.col("start_time").is_null()


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


class GoneJobs:
    """What is open in the table and not on the list of one cluster, from poll to poll."""

    def __init__(self, site: Site, queue: Queue, cluster: str, take: Callable[[JobSource], IngestReport]) -> None:
        self._site, self._queue, self._cluster, self._take = site, queue, cluster, take
        self._memory = pl.DataFrame(schema=_MEMORY)
        self._last_open: pl.DataFrame | None = None
        self._was_quick = False

    @property
    def none_left(self) -> bool:
        """Whether everything that is open in the table was on the last list."""
        return not self._memory.height

    def poll(self, listed: QueueList, accounting: Accounting | None, now: datetime) -> float | None:
        """Close what can be closed; return in how many seconds to poll again, if a second poll is worth it."""
        clock = time.monotonic()
        gone = self._gone(listed, clock)
        in_sight = set(listed.jobs["job_id"])
        if accounting is not None and gone.height:
            gone = self._look_up(gone, accounting, clock, in_sight)
        confirmed = gone.filter(pl.col("since") < clock, _NEVER_STARTED | (pl.col("since") <= clock - _END_KNOWN_AFTER_S))
        if confirmed.height:
            self._take_ended(confirmed, listed)
            if accounting is not None:
                self._conclude(self._still_open(confirmed), listed, in_sight, now)
            gone = self._still_open(gone)
        self._memory, self._last_open = gone.select(list(_MEMORY)), listed.open
        # Every other poll at most: a cluster of many short jobs always has some of which accounting has not heard.
        self._was_quick = not self._was_quick and gone.filter(pl.col("since") == clock, _NEVER_STARTED).height > 0
        return _SECOND_LOOK_S if self._was_quick else None

    def _gone(self, listed: QueueList, clock: float) -> pl.DataFrame:
        """The jobs of this cluster that are open in the table and not listed, with what is remembered of them."""
        rows = self._site.jobs.open_jobs().filter(
            pl.col("cluster") == listed.cluster, pl.col("source").is_in(_FORMATS), pl.col("state") != JobState.UNKNOWN.value
        )
        gone = rows.join(listed.open, on=list(OPEN_KEY), how="anti", nulls_equal=True)
        if listed.cut:
            gone = gone.filter(~pl.col("job_id").is_in(list(listed.cut)) | pl.col("array_task").is_null())
        gone = gone.join(self._memory, on=list(KEY), how="left", nulls_equal=True)
        before = False if self._last_open is None else is_among(gone, self._last_open)
        return gone.with_columns(
            pl.col("since").fill_null(clock), pl.col("was_listed").fill_null(before), pl.col("asks").fill_null(0)
        )

    def _still_open(self, gone: pl.DataFrame) -> pl.DataFrame:
        return gone.join(self._site.jobs.open_jobs().select(KEY), on=list(KEY), how="semi", nulls_equal=True)

    def _look_up(self, gone: pl.DataFrame, accounting: Accounting, clock: float, in_sight: set[int]) -> pl.DataFrame:
        """Take in what accounting says has become of them; of those that ran, once it had the time to say so by itself.

        The ids that it knows are added to `in_sight`.
        """
        has_had_time = _NEVER_STARTED | (pl.col("since") < clock)
        due = (has_had_time & (pl.col("asks") < _ASKS)) | (pl.col("asked") <= clock - _ASK_AGAIN_S)

        def ended(records: pl.DataFrame) -> pl.Series:
            in_sight.update(key_of(records)["job_id"].drop_nulls())
            return is_among(records, gone) & ~is_unfinished(records)

        changed = 0
        requested: list[str] = []
        for ids in _batches(ids_of(gone.filter(due))[: accounting.most_ids]):
            report = self._take(Chosen(accounting.lookup(self._cluster, ids), ended))
            changed += report.kept + report.changed
            requested += ids
        names = pl.Series(requested, dtype=pl.String).implode()
        was_asked = due & (_array_name().is_in(names) | _task_name().is_in(names).fill_null(False))
        gone = gone.with_columns(
            asks=pl.col("asks") + was_asked.cast(pl.Int32), asked=pl.when(was_asked).then(clock).otherwise("asked")
        )
        return self._still_open(gone) if changed else gone

    def _take_ended(self, gone: pl.DataFrame, listed: QueueList) -> None:
        """Take in how they ended as the controller says, as long as it remembers them."""
        over = listed.jobs.filter(~pl.col("state").is_in([str(state) for state in UNFINISHED]))
        raw_ids = over.join(gone, on=["job_id", "submit_time"], how="semi")["raw_id"].to_list()
        if raw_ids:
            self._take(Chosen(self._queue.ended(frozenset(raw_ids)), lambda records: is_among(records, gone)))

    def _conclude(self, gone: pl.DataFrame, listed: QueueList, in_sight: set[int], now: datetime) -> None:
        """Close those that neither list nor accounting know to have gone on or ended, where the list would hold them."""
        gone = gone.filter(pl.col("asks") > 0)
        if not gone.height or not listed.whole:
            return
        sees_all = self._queue.sees_all()
        if sees_all is False:
            return
        if sees_all is None:
            gone = gone.filter(pl.col("was_listed") | pl.col("job_id").is_in(listed.jobs["job_id"].implode()))
        # A waiting task leaves its array when it starts, and then has a record of its own, or when it is cancelled.
        is_task = pl.col("array_task").is_not_null() & _NEVER_STARTED
        cancelled = is_task & pl.col("job_id").is_in(pl.Series(sorted(in_sight), dtype=pl.Int64).implode())
        state = pl.when(cancelled).then(pl.lit(JobState.CANCELLED.value)).otherwise(pl.lit(JobState.VANISHED.value))
        if gone.height:
            self._take(ClosedJobs(gone.with_columns(state=state, end_time=pl.lit(now.replace(microsecond=0)))))


def ids_of(jobs: pl.DataFrame) -> list[str]:
    """What to ask accounting for: a few tasks of an array by themselves, many with their whole array."""
    if not jobs.height:
        return []
    few = (pl.len().over("job_id") <= _TASKS_BY_THEMSELVES) & pl.col("array_task").is_not_null()
    return jobs.select(pl.when(few).then(_task_name()).otherwise(_array_name()).unique(maintain_order=True)).to_series().to_list()


def _task_name() -> pl.Expr:
    return pl.concat_str(pl.col("job_id"), pl.lit("_"), pl.col("array_task"))


def _array_name() -> pl.Expr:
    return pl.col("job_id").cast(pl.String)


def _batches(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _IDS_PER_CALL):
        yield list(ids[start : start + _IDS_PER_CALL])

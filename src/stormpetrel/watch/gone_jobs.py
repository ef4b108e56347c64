"""Jobs that are open in the table and on their controller's list no more: looked up by id, and closed.

QueueList -> GoneJobs.poll -> rows that ended as accounting or the controller say; as a last resort, after a second poll, by our
own conclusion: a waiting task whose array is still known was cancelled, a job that nobody knows has vanished. Nothing is
concluded from a list that may not hold everything, and a job that shows again is open again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.ingest.jobs import IngestReport
from stormpetrel.records.jobs import JOB_SCHEMA, KEY
from stormpetrel.records.states import UNFINISHED, JobState
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.record_filter import OPEN_KEY, Chosen, is_among, key_of
from stormpetrel.sources.slurm.live import Accounting
from stormpetrel.sources.slurm.queue import Queue, QueueList
from stormpetrel.sources.slurm.unfinished import ClosedJobs, is_unfinished
from stormpetrel.store.site import Site

_FORMATS: Final = (
    "sacct",
    "sacct-json",
    "squeue",
    "slurmrestd",
    "absence",
)  # an HTCondor job may bear the cluster's name as well
_SECOND_LOOK_S: Final = 1.0
_ACCOUNTING_LAG_S: Final = 4.0  # so long accounting may take to tell the end of a job that ran
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
        confirmed = gone.filter(pl.col("since") < clock, _NEVER_STARTED | (pl.col("since") <= clock - _ACCOUNTING_LAG_S))
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

"""The overview: every job of the site with its latest prediction, by month: the latest in memory, those before on disk.

Site -> Overview.refresh; Viewer + TableQuery -> Overview.page -> TablePage.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.answers.jobs.past_jobs import longest_limits, past_of
from stormpetrel.answers.overview.column_index import ColumnIndex, Rows
from stormpetrel.answers.overview.comparable import Comparable, MonthOfEnds
from stormpetrel.answers.overview.month import (
    JOB_COLUMNS,
    MONTH_SCHEMA,
    OVERVIEW_SCHEMA,
    PREDICTION_COLUMNS,
    Files,
    again,
    files_by_month,
    identity_of,
    month_frame,
    read_rows,
    submission_spans,
    submitted_within,
)
from stormpetrel.answers.overview.query import TableFilter, TablePage, TableQuery
from stormpetrel.answers.overview.search import OverviewRows
from stormpetrel.answers.overview.stored_month import StoredMonth, find_month, store_month
from stormpetrel.answers.viewer import READ, WRITE, Viewer
from stormpetrel.errors import NotThereError
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.kinds import Kind
from stormpetrel.records.cluster import Cluster
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, JobRef, job_number, jobs_with_id, ref_text
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import Site

__all__ = ["OVERVIEW_SCHEMA", "Overview", "TableFilter", "TablePage", "TableQuery", "again"]
NO_ROWS = pl.DataFrame(schema=MONTH_SCHEMA)
IN_MEMORY: Final = 200_000  # jobs, from which on older months are not kept in memory


@dataclass(frozen=True, slots=True)
class _Month:
    """One month of the overview, and the files that it was read from: in memory, or on disk (`stored`)."""

    jobs: frozenset[Path]
    predictions: frozenset[Path]
    frame: pl.DataFrame
    longest: pl.DataFrame
    index: ColumnIndex | StoredMonth
    ends: MonthOfEnds | StoredMonth
    cluster: Cluster | None = None  # as it was when the waiting jobs were worded
    has_waiting: bool = False
    is_refused: bool = False  # it is old, and could not be written: no reason to try at every refresh

    @property
    def stored(self) -> StoredMonth | None:
        return self.index if isinstance(self.index, StoredMonth) else None

    @property
    def height(self) -> int:
        return self.index.height

    def is_of(self, jobs: frozenset[Path], predictions: frozenset[Path], cluster: Cluster | None) -> bool:
        """Whether it was read from these files, and its waiting jobs were worded with this cluster."""
        return (self.jobs, self.predictions) == (jobs, predictions) and (not self.has_waiting or self.cluster == cluster)

    def lazy(self) -> pl.LazyFrame:
        """All rows, the latest submission first."""
        return self.stored.lazy() if self.stored else self.frame.lazy()

    def may_have(self, since: int) -> bool:
        """Whether anything may happen, or has happened, to one of its jobs since a time (microseconds)."""
        return self.stored is None or self.stored.facts.has_open or self.stored.facts.last_event >= since


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The overview between two changes: a reader keeps the one that it began with."""

    months: Mapping[str, _Month] = field(default_factory=dict)
    frame: pl.DataFrame = field(default_factory=lambda: NO_ROWS)  # of the months in memory, which are the latest
    longest: pl.DataFrame = field(default_factory=lambda: NO_ROWS)  # of each month and partition, the job with the longest limit
    limits: dict[str, float] = field(default_factory=dict)  # the longest of each partition, in seconds
    comparable: Comparable = field(default_factory=lambda: Comparable([]))

    @property
    def jobs(self) -> Files:
        return {name: month.jobs for name, month in self.months.items()}

    @property
    def predictions(self) -> Files:
        return {name: month.predictions for name, month in self.months.items()}

    @property
    def height(self) -> int:
        return sum(month.height for month in self.months.values())

    @property
    def stored(self) -> list[_Month]:
        return [month for month in self.months.values() if month.stored]

    def lazy(self, months: Iterable[_Month] | None = None) -> pl.LazyFrame:
        """The rows of the months in memory, and of these months on disk: all where none are named."""
        chosen = self.stored if months is None else months
        return pl.concat([self.frame.lazy(), *(month.lazy() for month in chosen)])

    def rows(self, rows: Rows, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of rows with these numbers, in this order."""
        first = self.frame.height
        if not rows.size or rows.max() < first:
            return self.frame.select(columns)[rows]
        parts = [self.frame.select(columns)[rows[rows < first]]]
        order = [np.flatnonzero(rows < first)]
        for month in self.stored:
            here = np.flatnonzero((rows >= first) & (rows < first + month.height))
            if here.size:
                order.append(here)
                parts.append(month.ends.rows(rows[here] - first, columns))
            first += month.height
        return pl.concat(parts).select(pl.all().gather(np.argsort(np.concatenate(order), kind="stable")))

    def latest_of_others(self, user: str | None, now: datetime, count: int) -> pl.DataFrame:
        """The rows of the months that hold the last so many jobs of anybody else to end before `now`."""
        others = pl.col("user").ne_missing(pl.lit(user, dtype=pl.String)) & (pl.col("end_time") < now) & ~pl.col("never_started")
        ends = self.frame.lazy().filter(others).select("end_time").collect()
        chosen = []
        for month in sorted(self.stored, key=lambda month: -month.ends.last_end):
            if ends.height >= count:
                since = ends["end_time"].top_k(count).dt.epoch("us").min()
                if since is not None and month.ends.last_end < since:  # type: ignore[operator]
                    break
            chosen.append(month)
            ends = pl.concat([ends, month.lazy().filter(others).select("end_time").collect()])
        in_order = [month for month in self.stored if any(month is other for other in chosen)]
        return self.lazy(in_order).collect() if in_order else self.frame


class Overview:
    """One row per job: its columns, and its latest prediction (null where there is none).

    The latest months are in memory until there are `in_memory` jobs; those before lie in files of the site, and of these what a
    question needs is read when it is asked. A site that cannot be written has all months in memory.
    """

    def __init__(self, *, in_memory: int = IN_MEMORY) -> None:
        self._now = _Snapshot()
        self._in_memory = in_memory
        self._unheard: set[str] = set()  # months on disk that have changed since `heard`
        self.rebuilt = 0  # months that were read of the tables, in all
        self.is_whole = False  # whether the last refresh left no month for the next

    @property
    def frame(self) -> pl.DataFrame:
        """Everybody's rows, the latest submission first: the columns of `OVERVIEW_SCHEMA`, and those that advice needs.

        Of a large site they do not belong into memory: see `lazy`.
        """
        now = self._now
        return now.lazy().collect() if now.stored else now.frame

    @property
    def height(self) -> int:
        """How many jobs there are."""
        return self._now.height

    def lazy(self, *, since: datetime | None = None) -> pl.LazyFrame:
        """Everybody's rows; with `since` those of months where anything has happened since then, or still may."""
        now = self._now
        if since is None:
            return now.lazy()
        least = int(since.timestamp() * 1e6)
        return now.lazy([month for month in now.stored if month.may_have(least)])

    def unheard(self, since: datetime) -> pl.LazyFrame:
        """Everybody's rows that one who has heard of everything up to a time, and said so by `heard`, may not know yet."""
        now, least = self._now, int(since.timestamp() * 1e6)
        return now.lazy([m for name, m in now.months.items() if m.stored and (name in self._unheard or m.may_have(least))])

    def heard(self) -> None:
        """What `unheard` has returned is known."""
        self._unheard.clear()

    def take(self, frames: Mapping[str, pl.DataFrame]) -> None:
        """Replace months (`2026-11`) by frames that `month_frame` has returned; the other months stay."""
        nothing = frozenset[Path]()
        taken = {name: _month(nothing, nothing, frame) for name, frame in frames.items()}
        self._now = _snapshot({**self._now.months, **taken})

    def refresh(self, site: Site, *, most: int | None = None, patience_s: float | None = None) -> bool:
        """Take in what has been committed since; only months whose files have changed are read. True if there was anything.

        With `most` the latest months alone, until there are so many jobs, and with `patience_s` no further month is begun after
        that time, one at least being read: the rest is at the next refresh.
        """
        return again(lambda: self._refresh(site, most, patience_s))

    def _refresh(self, site: Site, most: int | None, patience_s: float | None) -> bool:
        began = time.monotonic()
        jobs, predictions = files_by_month(site.jobs.table), files_by_month(site.predictions.table)
        known_cluster = site.cluster.known()
        cluster = known_cluster.cluster if known_cluster else None
        months: dict[str, _Month] = {}
        count, has_read = 0, False
        for name in sorted(jobs, reverse=True):
            if most is not None and count >= most:
                break
            known, files = self._now.months.get(name), (jobs[name], predictions.get(name, frozenset()))
            in_memory = count < self._in_memory or bool(site.read_only)
            if known is not None and known.is_of(*files, cluster) and _is_placed(known, in_memory=in_memory):
                months[name] = known
            elif has_read and patience_s is not None and time.monotonic() - began > patience_s:
                if known is not None and not (known.stored and not known.stored.is_there()):
                    months[name] = known  # as it was
                else:
                    break
            else:
                months[name] = self._read(site, name, *files, cluster, in_memory=in_memory)
                has_read = True
                self._unheard.add(name)
            if known is not None and isinstance(known.ends, MonthOfEnds) and known.ends.is_used and months[name] is not known:
                months[name].ends.prepare()  # here, and not within the next request
            count += months[name].height
        self.is_whole = months.keys() == jobs.keys()
        if months.keys() == self._now.months.keys() and all(month is self._now.months[name] for name, month in months.items()):
            return False
        self._now = _snapshot(months)
        return True

    def _read(
        self,
        site: Site,
        name: str,
        jobs: frozenset[Path],
        predictions: frozenset[Path],
        cluster: Cluster | None,
        *,
        in_memory: bool,
    ) -> _Month:
        states = site.settings.jobs
        made_of = identity_of((jobs, predictions), states.failure_states, states.dropped_states)
        if not in_memory:
            stored = find_month(site, name, made_of, cluster)
            if stored is not None:
                return _stored(jobs, predictions, stored, cluster)
        self.rebuilt += 1
        if not in_memory:
            stored = store_month(site, name, made_of, _pieces(site, jobs, predictions, cluster), cluster)
            if stored is not None:
                return _stored(jobs, predictions, stored, cluster)
        frame = pl.concat(_pieces(site, jobs, predictions, cluster)).rechunk()
        has_waiting = frame["waiting"].null_count() < frame.height
        return _month(jobs, predictions, frame, cluster, has_waiting, is_refused=not in_memory)

    def rows(self, viewer: Viewer) -> pl.LazyFrame:
        """Return the rows that a viewer may see, with `ref`, the latest submission first."""
        return self.lazy().filter(viewer.sees()).select(*OVERVIEW_SCHEMA, ref_text())

    def sums(self, viewer: Viewer, sums: Mapping[str, pl.Expr], *, of: Hashable) -> dict[str, int]:
        """Return whole numbers summed over the rows that a viewer may see; `of` says what decides the expressions."""
        now, sees = self._now, viewer.sees()

        def summed(rows: pl.LazyFrame) -> dict[str, int]:
            return {
                name: int(number or 0) for name, number in rows.filter(sees).select(**sums).collect().row(0, named=True).items()
            }

        parts = [summed(now.frame.lazy())]
        for month in now.stored:
            stored = month.stored
            assert stored is not None
            if viewer.is_admin or viewer.user in stored.facts.users:
                parts.append(stored.kept(("sums", viewer, tuple(sums), of), partial(summed, stored.lazy())))
        return {name: sum(part[name] for part in parts) for name in sums}

    def find(self, viewer: Viewer, ref: JobRef) -> pl.DataFrame:
        """Return the row of one job; a job that is not there and one of somebody else give the same error."""
        viewer.require(READ)
        matches = self.rows_at(ref).filter(viewer.sees())
        if matches.is_empty():
            raise not_there(ref)
        return matches.head(1).select(*OVERVIEW_SCHEMA, ref_text())

    def rows_at(self, ref: JobRef) -> pl.DataFrame:
        """Return everybody's rows of one job."""
        now = self._now
        month = now.months.get(f"{ref.submit_time:%Y-%m}")
        rows = now.lazy([month] if month is not None and month.stored else [])
        return rows.filter(ref.is_row()).collect()

    def rows_with_id(self, viewer: Viewer, text: str) -> pl.DataFrame:
        """Return the rows that a viewer may see of an id as people write it, the latest submission first."""
        visible, number = viewer.sees(), job_number(text)
        either = (pl.col("job_id") == number) | (pl.col("job_id_raw") == number)
        return jobs_with_id(self.lazy().filter(either & visible).collect(), text)

    def latest(self, count: int) -> pl.DataFrame:
        """Return the rows of the latest jobs to be submitted."""
        return self.lazy().head(count).collect()

    def require_own(self, viewer: Viewer, ref: JobRef) -> None:
        """Refuse who has nothing to say about a job, as if it were not there; writing about one's own needs no scope to read."""
        viewer.require(WRITE)
        if self.rows_at(ref).filter(viewer.owns()).is_empty():
            raise not_there(ref)

    def page(self, viewer: Viewer, query: TableQuery) -> TablePage:
        """Return one page of the rows that a viewer may see, in the order of the query."""
        viewer.require(READ)
        query.check((*OVERVIEW_SCHEMA, "ref"))
        return again(lambda: self._page(viewer, query))

    def _page(self, viewer: Viewer, query: TableQuery) -> TablePage:
        now = self._now
        rows, total = OverviewRows([month.index for month in now.months.values()]).page(viewer, query)
        return TablePage(now.rows(rows, tuple(OVERVIEW_SCHEMA)).with_columns(ref_text()), total)

    def rows_of(self, user: str | None) -> pl.DataFrame:
        """Return all rows of one user, with all columns, the latest submission first; none where nobody is named."""
        now = self._now
        own = now.frame.filter(pl.col("user") == pl.lit(user, dtype=pl.String))
        older = [
            month.stored.of_user(user).collect() for month in now.stored if month.stored and user in month.stored.facts.users
        ]
        return pl.concat([own, *older]) if older else own

    def past(self, request: pl.DataFrame, *, now: datetime, own: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return everybody's rows that advice on a request (one row) needs: the same as with all, in a fraction of the time.

        `own` are the rows of its user, where they are at hand.
        """
        snapshot = self._now
        own = self.rows_of(request["user"].item()) if own is None else own
        latest = snapshot.latest_of_others(request["user"].item(), now, kinds.OTHERS_CONSIDERED)
        needed = past_of(request, own, latest, now=now)
        return pl.concat([needed, snapshot.longest])

    def comparable(self, request: pl.DataFrame, *, now: datetime) -> tuple[Kind, dict[str, float]]:
        """Return the kind of past jobs that a request (one row) is compared with, and the longest time limit of each partition.

        With both, advice says the same as with all jobs.
        """
        snapshot = self._now
        return snapshot.comparable.kind(request, now=now), snapshot.limits

    def whole_rows(self, site: Site, chosen: pl.DataFrame) -> pl.DataFrame:
        """Return the job rows of some rows of the overview, with every column of the table."""
        return read_rows(site.jobs.table, chosen, self._now.jobs).select(list(JOB_SCHEMA))

    def predictions(self, site: Site, chosen: pl.DataFrame) -> pl.DataFrame:
        """Return every stored prediction of the jobs of some rows of the overview."""
        return read_rows(site.predictions.table, chosen, self._now.predictions).select(list(PREDICTION_SCHEMA))


def not_there(ref: JobRef) -> NotThereError:
    """Return the error of a job that does not exist, and of one that is somebody else's."""
    return NotThereError(f"There is no job {ref.job} that you may see.", hint="Look for it in the table of jobs.")


def _pieces(site: Site, jobs: frozenset[Path], predictions: frozenset[Path], cluster: Cluster | None) -> Iterator[pl.DataFrame]:
    """The rows of a month in their order, piece by piece; at least one piece."""
    states = site.settings.jobs
    for span in reversed(submission_spans(site.jobs.table, jobs)):
        within = submitted_within(span)
        yield month_frame(
            site.jobs.table.scan(sorted(jobs)).filter(within).select(JOB_COLUMNS).collect(),
            site.predictions.table.scan(sorted(predictions)).filter(within).select(*KEY, *PREDICTION_COLUMNS).collect(),
            states.failure_states,
            states.dropped_states,
            cluster,
        )


def _month(
    jobs: frozenset[Path],
    predictions: frozenset[Path],
    frame: pl.DataFrame,
    cluster: Cluster | None = None,
    has_waiting: bool = False,
    *,
    is_refused: bool = False,
) -> _Month:
    index = ColumnIndex(frame)
    return _Month(
        jobs, predictions, frame, longest_limits(frame), index, MonthOfEnds(frame, index), cluster, has_waiting, is_refused
    )


def _stored(jobs: frozenset[Path], predictions: frozenset[Path], stored: StoredMonth, cluster: Cluster | None) -> _Month:
    facts = stored.facts
    return _Month(jobs, predictions, NO_ROWS, facts.longest, stored, stored, cluster, facts.has_waiting)


def _is_placed(month: _Month, *, in_memory: bool) -> bool:
    """Whether a month is where it belongs: in memory, or in a file that is there."""
    if month.stored is None:
        return in_memory or month.is_refused
    return not in_memory and month.stored.is_there()


def _snapshot(months: Mapping[str, _Month]) -> _Snapshot:
    frame = pl.concat([NO_ROWS, *(month.frame for month in months.values())], rechunk=False)
    longest = pl.concat([NO_ROWS, *(month.longest for month in months.values())])
    limits = kinds.longest_limits(longest, now=datetime.max.replace(tzinfo=UTC))
    return _Snapshot(months, frame, longest, limits, Comparable([month.ends for month in months.values()]))

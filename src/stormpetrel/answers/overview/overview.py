"""The overview: every job of the site with its latest prediction, kept in memory, one frame per month.

Site -> Overview.refresh; Viewer + TableQuery -> Overview.page -> TablePage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

from stormpetrel.answers.jobs.past_jobs import longest_limits, past_of
from stormpetrel.answers.overview.column_index import ColumnIndex
from stormpetrel.answers.overview.month import (
    JOB_COLUMNS,
    MONTH_SCHEMA,
    OVERVIEW_SCHEMA,
    PREDICTION_COLUMNS,
    Files,
    again,
    files_by_month,
    month_frame,
    read_rows,
)
from stormpetrel.answers.overview.page import OverviewRows
from stormpetrel.answers.overview.query import TableFilter, TablePage, TableQuery
from stormpetrel.answers.viewer import READ, WRITE, Viewer
from stormpetrel.errors import NotThereError
from stormpetrel.records.cluster import Cluster
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, JobRef, ref_text
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import Site

__all__ = ["OVERVIEW_SCHEMA", "Overview", "TableFilter", "TablePage", "TableQuery", "again"]

NO_ROWS = pl.DataFrame(schema=MONTH_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Month:
    """One month of the overview, and the files that it was read from."""

    jobs: frozenset[Path]
    predictions: frozenset[Path]
    frame: pl.DataFrame
    longest: pl.DataFrame
    index: ColumnIndex
    cluster: Cluster | None = None  # as it was when the waiting jobs were worded
    has_waiting: bool = False

    def is_of(self, jobs: frozenset[Path], predictions: frozenset[Path], cluster: Cluster | None) -> bool:
        """Whether it was read from these files, and its waiting jobs were worded with this cluster."""
        return (self.jobs, self.predictions) == (jobs, predictions) and (not self.has_waiting or self.cluster == cluster)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The overview between two changes: a reader keeps the one that it began with."""

    months: Mapping[str, _Month] = field(default_factory=dict)
    frame: pl.DataFrame = field(default_factory=lambda: NO_ROWS)

    @property
    def jobs(self) -> Files:
        return {name: month.jobs for name, month in self.months.items()}

    @property
    def predictions(self) -> Files:
        return {name: month.predictions for name, month in self.months.items()}


class Overview:
    """One row per job: its columns, and its latest prediction (null where there is none)."""

    def __init__(self) -> None:
        self._now = _Snapshot()
        self.rebuilt = 0  # months that were read, in all

    @property
    def frame(self) -> pl.DataFrame:
        """Everybody's rows, the latest submission first: the columns of `OVERVIEW_SCHEMA`, and those that advice needs."""
        return self._now.frame

    def take(self, frames: Mapping[str, pl.DataFrame]) -> None:
        """Replace months (`2026-11`) by frames that `month_frame` has returned; the other months stay."""
        nothing = frozenset[Path]()
        taken = {
            name: _Month(nothing, nothing, frame, longest_limits(frame), ColumnIndex(frame)) for name, frame in frames.items()
        }
        self._now = _snapshot({**self._now.months, **taken})

    def refresh(self, site: Site, *, most: int | None = None) -> bool:
        """Take in what has been committed since; only months whose files have changed are read. True if there was anything.

        With `most` the latest months alone, until there are so many jobs: the rest is read at the next refresh.
        """
        return again(lambda: self._refresh(site, most))

    def _refresh(self, site: Site, most: int | None) -> bool:
        jobs, predictions = files_by_month(site.jobs.table), files_by_month(site.predictions.table)
        known_cluster = site.cluster.known()
        cluster = known_cluster.cluster if known_cluster else None
        months: dict[str, _Month] = {}
        for name in sorted(jobs, reverse=True):
            if most is not None and sum(month.frame.height for month in months.values()) >= most:
                break
            known, files = self._now.months.get(name), (jobs[name], predictions.get(name, frozenset()))
            months[name] = known if known is not None and known.is_of(*files, cluster) else self._read(site, *files, cluster)
        if months.keys() == self._now.months.keys() and all(month is self._now.months[name] for name, month in months.items()):
            return False
        self._now = _snapshot(months)
        return True

    def _read(self, site: Site, jobs: frozenset[Path], predictions: frozenset[Path], cluster: Cluster | None) -> _Month:
        self.rebuilt += 1
        job_rows = site.jobs.table.scan(sorted(jobs)).select(JOB_COLUMNS).collect()
        prediction_rows = site.predictions.table.scan(sorted(predictions)).select(*KEY, *PREDICTION_COLUMNS).collect()
        states = site.settings.jobs
        frame = month_frame(job_rows, prediction_rows, states.failure_states, states.dropped_states, cluster)
        has_waiting = frame["waiting"].null_count() < frame.height
        return _Month(jobs, predictions, frame, longest_limits(frame), ColumnIndex(frame), cluster, has_waiting)

    def rows(self, viewer: Viewer) -> pl.LazyFrame:
        """Return the rows that a viewer may see, with `ref`, the latest submission first."""
        return self.frame.lazy().filter(viewer.sees()).select(*OVERVIEW_SCHEMA, ref_text())

    def find(self, viewer: Viewer, ref: JobRef) -> pl.DataFrame:
        """Return the row of one job; a job that is not there and one of somebody else give the same error."""
        viewer.require(READ)
        matches = self.frame.filter(ref.is_row() & viewer.sees())
        if matches.is_empty():
            raise not_there(ref)
        return matches.head(1).select(*OVERVIEW_SCHEMA, ref_text())

    def require_own(self, viewer: Viewer, ref: JobRef) -> None:
        """Refuse who has nothing to say about a job, as if it were not there; writing about one's own needs no scope to read."""
        viewer.require(WRITE)
        if self.frame.filter(ref.is_row() & viewer.owns()).is_empty():
            raise not_there(ref)

    def page(self, viewer: Viewer, query: TableQuery) -> TablePage:
        """Return one page of the rows that a viewer may see, in the order of the query."""
        viewer.require(READ)
        query.check((*OVERVIEW_SCHEMA, "ref"))
        now = self._now
        rows, total = OverviewRows(now.frame, [month.index for month in now.months.values()]).page(viewer, query)
        return TablePage(now.frame.select(*OVERVIEW_SCHEMA)[rows].with_columns(ref_text()), total)

    def rows_of(self, user: str | None) -> pl.DataFrame:
        """Return all rows of one user, with all columns, the latest submission first; none where nobody is named."""
        return self.frame.filter(pl.col("user") == pl.lit(user, dtype=pl.String))

    def past(self, request: pl.DataFrame, *, now: datetime, own: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return everybody's rows that advice on a request (one row) needs: the same as with all, in a fraction of the time.

        `own` are the rows of its user, where they are at hand.
        """
        snapshot = self._now
        own = self.rows_of(request["user"].item()) if own is None else own
        needed = past_of(request, own, snapshot.frame, now=now)
        return pl.concat([needed, *(month.longest for month in snapshot.months.values())])

    def whole_rows(self, site: Site, chosen: pl.DataFrame) -> pl.DataFrame:
        """Return the job rows of some rows of the overview, with every column of the table."""
        return read_rows(site.jobs.table, chosen, self._now.jobs).select(list(JOB_SCHEMA))

    def predictions(self, site: Site, chosen: pl.DataFrame) -> pl.DataFrame:
        """Return every stored prediction of the jobs of some rows of the overview."""
        return read_rows(site.predictions.table, chosen, self._now.predictions).select(list(PREDICTION_SCHEMA))


def not_there(ref: JobRef) -> NotThereError:
    """Return the error of a job that does not exist, and of one that is somebody else's."""
    return NotThereError(f"There is no job {ref.job} that you may see.", hint="Look for it in the table of jobs.")


def _snapshot(months: Mapping[str, _Month]) -> _Snapshot:
    return _Snapshot(months, pl.concat([NO_ROWS, *(month.frame for month in months.values())], rechunk=False))

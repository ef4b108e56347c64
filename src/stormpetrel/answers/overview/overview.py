"""The overview: every job of the site with its latest prediction, kept in memory, one frame per month.

Site -> Overview.refresh; Viewer + TableQuery -> Overview.page -> TablePage.

Pages of the overview: which rows match a query, and which of them are on the page.

rows and their indices + Viewer + TableQuery -> OverviewRows.page -> (row numbers of the page, rows in all).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.jobs.past_jobs import longest_limits, past_of
from stormpetrel.answers.overview.column_index import STANDS_FOR, ColumnIndex, Keys, Mask, Rows, page_of, sort_keys
from stormpetrel.answers.overview.comparable import Comparable, MonthOfEnds
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
from stormpetrel.answers.overview.query import TableFilter, TablePage, TableQuery
from stormpetrel.answers.viewer import READ, WRITE, Viewer
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.kinds import Kind
from stormpetrel.records.cluster import Cluster
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, JobRef, ref_text
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import Site

__all__ = ["OVERVIEW_SCHEMA", "Overview", "TableFilter", "TablePage", "TableQuery", "again"]
NO_ROWS = pl.DataFrame(schema=MONTH_SCHEMA)
_Holds = Callable[[pl.Series], pl.Series]
_NEGATIVE: Final = ("not_equal", "not_contains")
_DAY: Final = timedelta(days=1)
_DAY_LENGTH: Final = len("2026-11-15")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class _Month:
    """One month of the overview, and the files that it was read from."""

    jobs: frozenset[Path]
    predictions: frozenset[Path]
    frame: pl.DataFrame
    longest: pl.DataFrame
    index: ColumnIndex
    ends: MonthOfEnds
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
    longest: pl.DataFrame = field(default_factory=lambda: NO_ROWS)  # of each month and partition, the job with the longest limit
    limits: dict[str, float] = field(default_factory=dict)  # the longest of each partition, in seconds
    comparable: Comparable = field(default_factory=lambda: Comparable([]))

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
        taken = {name: _month(nothing, nothing, frame) for name, frame in frames.items()}
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
            if known is not None and known.ends.is_used and months[name] is not known:
                months[name].ends.prepare()  # here, and not within the next request
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
        return _month(jobs, predictions, frame, cluster, has_waiting)

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


def _month(
    jobs: frozenset[Path],
    predictions: frozenset[Path],
    frame: pl.DataFrame,
    cluster: Cluster | None = None,
    has_waiting: bool = False,
) -> _Month:
    index = ColumnIndex(frame)
    return _Month(jobs, predictions, frame, longest_limits(frame), index, MonthOfEnds(frame, index), cluster, has_waiting)


def _snapshot(months: Mapping[str, _Month]) -> _Snapshot:
    frame = pl.concat([NO_ROWS, *(month.frame for month in months.values())], rechunk=False)
    longest = pl.concat([NO_ROWS, *(month.longest for month in months.values())])
    limits = kinds.longest_limits(longest, now=datetime.max.replace(tzinfo=UTC))
    return _Snapshot(months, frame, longest, limits, Comparable([month.ends for month in months.values()]))


@dataclass(frozen=True, slots=True)
class WordTest:
    """The test of a text: whether it wants to see small letters only, and whether a missing text passes."""

    holds: _Holds
    folded: bool
    missing: bool


def word_test(wanted: TableFilter) -> WordTest:
    """Return the test of a condition on a text column."""
    folded = wanted.kind in ("contains", "not_contains", "starts_with", "ends_with")
    return WordTest(_word_holds(wanted), folded, missing=wanted.kind in (*_NEGATIVE, "blank"))


def _word_holds(wanted: TableFilter) -> _Holds:
    match wanted.kind:
        case "blank":
            return lambda words: words == ""
        case "not_blank":
            return lambda words: words != ""
        case "is_in":
            several = [_text(wanted, value) for value in _several(wanted)]
            return lambda words: words.is_in(several)
    text = _text(wanted, wanted.value)
    small = text.lower()
    tests: dict[str, _Holds] = {
        "equals": lambda words: words == text,
        "not_equal": lambda words: words != text,
        "contains": lambda words: words.str.contains(small, literal=True),
        "not_contains": lambda words: ~words.str.contains(small, literal=True),
        "starts_with": lambda words: words.str.starts_with(small),
        "ends_with": lambda words: words.str.ends_with(small),
    }
    if wanted.kind not in tests:
        raise UsageError(f"'{wanted.column}' is a text: '{wanted.kind}' does not fit it.", hint=f"Use {', '.join(tests)}.")
    return tests[wanted.kind]


def condition(wanted: TableFilter, dtype: pl.DataType) -> pl.Expr:
    """Return a condition on a column of numbers, times or booleans as an expression."""
    column = pl.col(wanted.column)
    match wanted.kind:
        case "blank":
            return column.is_null()
        case "not_blank":
            return column.is_not_null()
        case "is_in":
            return pl.any_horizontal(*(_equals(wanted, dtype, value) for value in _several(wanted)), pl.lit(False))
        case "equals":
            return _equals(wanted, dtype, wanted.value)
        case "not_equal":
            return ~_equals(wanted, dtype, wanted.value)
    if dtype == pl.Boolean or wanted.kind not in ("less", "less_equal", "greater", "greater_equal", "between"):
        raise UsageError(
            f"'{wanted.column}' is no text: '{wanted.kind}' does not fit it.", hint="Use equals, less, greater or between."
        )
    return _compared(wanted, dtype).fill_null(False)


def is_job(wanted: TableFilter) -> pl.Expr:
    """Return the condition that a job is, or is not, the one (or one of several) of a reference."""
    if wanted.kind not in ("equals", "not_equal", "is_in"):
        raise UsageError(f"A reference is a whole: '{wanted.kind}' does not fit it.", hint="Use equals or is_in; or search.")
    refs = [JobRef.parse(str(value)) for value in (_several(wanted) if wanted.kind == "is_in" else (wanted.value,))]
    matches = pl.any_horizontal(*(ref.is_row() for ref in refs), pl.lit(False))
    return ~matches if wanted.kind == "not_equal" else matches


def _equals(wanted: TableFilter, dtype: pl.DataType, value: Any) -> pl.Expr:
    low, high = _span(wanted, dtype, value)
    column = pl.col(wanted.column)
    return (column.eq(low) if low == high else column.ge(low) & column.lt(high)).fill_null(False)


def _compared(wanted: TableFilter, dtype: pl.DataType) -> pl.Expr:
    column, (low, high) = pl.col(wanted.column), _span(wanted, dtype, wanted.value)
    whole = low != high  # a day: what comes after it begins where it ends
    match wanted.kind:
        case "less":
            return column.lt(low)
        case "less_equal":
            return column.lt(high) if whole else column.le(low)
        case "greater":
            return column.ge(high) if whole else column.gt(low)
        case "greater_equal":
            return column.ge(low)
    to_low, to_high = _span(wanted, dtype, wanted.value_to)
    return column.ge(low) & (column.lt(to_high) if to_low != to_high else column.le(to_low))


def _span(wanted: TableFilter, dtype: pl.DataType, value: Any) -> tuple[Any, Any]:
    """What a value stands for: twice itself, or the begin and the end of a day."""
    try:
        if isinstance(dtype, pl.Datetime):
            return _time_span(value)
        if dtype == pl.Boolean:
            truth = _TRUTHS[str(value).lower()]
            return truth, truth
        number = _number(value)
        return number, number
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        expected = "a time such as 2026-11-15T12:00" if isinstance(dtype, pl.Datetime) else "true or false"
        expected = expected if isinstance(dtype, pl.Datetime) or dtype == pl.Boolean else "a number"
        raise UsageError(f"{str(value)[:80]!r} does not fit the column '{wanted.column}'.", hint=f"Write {expected}.") from error


def _number(value: Any) -> int | float:
    try:
        return int(str(value))  # job ids are longer than a float is exact
    except ValueError:
        number = float(value)
        if number != number:
            raise
        return number


def _time_span(value: Any) -> tuple[datetime, datetime]:
    whole_day = (isinstance(value, date) and not isinstance(value, datetime)) or len(str(value)) == _DAY_LENGTH
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment, moment + _DAY if whole_day else moment


def _several(wanted: TableFilter) -> list[Any]:
    if isinstance(wanted.value, str) or not hasattr(wanted.value, "__iter__"):
        raise UsageError(f"'is_in' on '{wanted.column}' needs several values.", hint="Pass a list.")
    return list(wanted.value)


def _text(wanted: TableFilter, value: Any) -> str:
    if value is None or isinstance(value, list | tuple | dict | set | frozenset):
        raise UsageError(f"'{wanted.kind}' on '{wanted.column}' needs a text.", hint="For missing values use blank or not_blank.")
    return str(value)


_LIKE_AN_ID: Final = re.compile(r"[0-9_]+")
_SEARCHED: Final = ("user", "account", "partition", "job_name")


class OverviewRows:
    """The rows of the overview to be searched: frames of months, one below the other, each with its index."""

    def __init__(self, frame: pl.DataFrame, indices: list[ColumnIndex]) -> None:
        self._frame = frame
        self._indices = indices

    def page(self, viewer: Viewer, query: TableQuery) -> tuple[Rows, int]:
        """Return the row numbers of a page, in the order of the query, and how many rows match in all."""
        viewer.require(READ)
        rows = np.flatnonzero(self._matching(viewer, query))
        return page_of(rows, self._sort_keys(query), query.offset, query.limit), len(rows)

    def _matching(self, viewer: Viewer, query: TableQuery) -> Mask:
        matches = np.ones(self._frame.height, dtype=np.bool_)
        if not viewer.is_admin:
            matches &= self._words("user", word_test(TableFilter("user", "equals", viewer.user)))
        for column_filter in query.filters:
            matches &= self._filtered(column_filter)
        if query.search.strip():
            matches &= self._searched(query.search.strip())
        return matches

    def _filtered(self, column_filter: TableFilter) -> Mask:
        if column_filter.column == "ref":
            return self._holds(is_job(column_filter))
        dtype = OVERVIEW_SCHEMA[column_filter.column]
        if dtype == pl.String:
            return self._words(column_filter.column, word_test(column_filter))
        return self._holds(condition(column_filter, dtype))

    def _searched(self, text: str) -> Mask:
        matches = np.zeros(self._frame.height, dtype=np.bool_)
        if _LIKE_AN_ID.fullmatch(text):
            matches |= self._holds(pl.col("job").str.starts_with(text))
        for column in _SEARCHED:
            matches |= self._words(column, word_test(TableFilter(column, "contains", text)))
        return matches

    def _words(self, column: str, test: WordTest) -> Mask:
        if column == "job":  # hardly two are the same, and there are no capitals among digits
            return test.holds(self._frame["job"]).fill_null(test.missing).to_numpy()
        parts = [index.matches(column, test.holds, missing=test.missing, folded=test.folded) for index in self._indices]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)

    def _holds(self, condition: pl.Expr) -> Mask:
        return self._frame.select(condition.alias("holds")).to_series().to_numpy()

    def _sort_keys(self, query: TableQuery) -> list[Callable[[Rows], Keys]]:
        """What the rows are sorted by, one after the other."""
        columns = [(real, descending) for column, descending in query.sort for real in STANDS_FOR.get(column, (column,))]
        return [
            key
            for column, descending in columns
            for key in sort_keys(self._indices, column, is_text=OVERVIEW_SCHEMA[column] == pl.String, descending=descending)
        ]

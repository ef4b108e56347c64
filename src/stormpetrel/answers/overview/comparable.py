"""Comparable jobs: the kind of past jobs that a request belongs to, looked up by row numbers instead of queries.

months of the overview + request -> Comparable.kind -> Kind, the same as `jobs.advice.kinds.find_kind` finds among all jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.answers.overview.column_index import ColumnIndex
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.kinds import Kind, Row
from stormpetrel.jobs.history.keys import APPLICATION_COLUMNS, family
from stormpetrel.records.jobs import JOB_SCHEMA

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
NOT_ENDED: Final = int(np.iinfo(np.int64).min)
_MOST_ENDS: Final = 2 * kinds.OTHERS_CONSIDERED  # of all users, kept in the order of their ends


class MonthOfEnds:
    """The ended jobs of one month: when they ended, and of which application they are; worked out at first use."""

    def __init__(self, frame: pl.DataFrame, index: ColumnIndex) -> None:
        self.frame, self.index = frame, index
        self.is_used = False  # somebody has asked: the next version of the month is prepared before anybody does

    @cached_property
    def ended(self) -> Numbers:
        """When each job ended (microseconds); the smallest number where it has not, or never ran."""
        return self.frame.select(when_ended()).to_series().to_numpy()

    @cached_property
    def last_end(self) -> int:
        """When the last of them ended."""
        return int(self.ended.max(initial=NOT_ENDED))

    @cached_property
    def families(self) -> tuple[dict[str, int], NDArray[np.int32]]:
        """The applications of the month, and which one each job is of: -1 where nobody knows."""
        columns = [*APPLICATION_COLUMNS[:3], "executable"]
        names = self.frame.lazy().select(*APPLICATION_COLUMNS[:3], executable=pl.col("extra").map.get("executable"))
        # The expressions that recognise an application cost more than all else, so they see each name only once.
        named = names.unique(columns).select(*columns, family=application_family()).collect()
        applications = named["family"].unique().drop_nulls()
        codes = pl.DataFrame({"family": applications, "code": pl.int_range(len(applications), dtype=pl.Int32, eager=True)})
        named = named.join(codes, on="family", how="left")
        rows = names.join(named.lazy(), on=columns, how="left", nulls_equal=True, maintain_order="left").select("code").collect()
        return {name: code for code, name in enumerate(applications)}, rows["code"].fill_null(-1).to_numpy()

    @cached_property
    def sizes(self) -> tuple[Floats, Floats]:
        """How many CPUs and nodes each job asked for; NaN where nobody knows."""
        return sizes_of(self.frame)

    def own(self, user: str | None) -> tuple[Numbers, Numbers]:
        """The rows of a user's jobs, and when they ended."""
        self.is_used = True
        code = self.index.words("user").number.get(user) if user is not None else None
        rows = np.flatnonzero(self.index.words("user").codes == code) if code is not None else np.zeros(0, np.int64)
        return rows, self.ended[rows]

    def same(self, rows: Numbers, text: str, column: str) -> NDArray[np.bool_]:
        """Which of these rows have this text in a column, or are of this application (`family`)."""
        words = self.index.words(column) if column != "family" else None
        numbers, codes = self.families if words is None else (words.number, words.codes)
        return np.asarray(codes[rows] == numbers.get(text, -2), np.bool_)

    def sizes_at(self, rows: Numbers) -> tuple[Floats, Floats]:
        """How many CPUs and nodes these jobs asked for; NaN where nobody knows."""
        cpus, nodes = self.sizes
        return cpus[rows], nodes[rows]

    def rows(self, rows: Numbers, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of some rows."""
        return self.frame[list(columns)][rows]

    def prepare(self) -> None:
        """Work out what the next request needs."""
        _ = self.last_end, self.families, self.sizes, self.index.words("user").number, self.index.words("job_name").number
        self.is_used = True


class EndedJobs(Protocol):
    """The ended jobs of a month: in memory a `MonthOfEnds`, on disk a `StoredMonth`."""

    @property
    def ended(self) -> Numbers:
        """When each job ended (microseconds); the smallest number where it has not, or never ran."""

    @property
    def last_end(self) -> int:
        """When the last of them ended."""

    def own(self, user: str | None) -> tuple[Numbers, Numbers]:
        """The rows of a user's jobs, and when they ended."""

    def same(self, rows: Numbers, text: str, column: str) -> NDArray[np.bool_]:
        """Which of these rows have this text in a column, or are of this application (`family`)."""

    def sizes_at(self, rows: Numbers) -> tuple[Floats, Floats]:
        """How many CPUs and nodes these jobs asked for; NaN where nobody knows."""

    def rows(self, rows: Numbers, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of some rows."""


def sizes_of(jobs: pl.DataFrame) -> tuple[Floats, Floats]:
    """How many CPUs and nodes each job asked for, or was given where it does not say; NaN where nobody knows."""
    cpus, nodes = kinds.floats(jobs["req_cpus"]), kinds.floats(jobs["req_nodes"])
    cpus = np.where(np.isnan(cpus), kinds.floats(jobs["cpus"]), cpus)
    return cpus, np.where(np.isnan(nodes), kinds.floats(jobs["nodes"]), nodes)


def when_ended() -> pl.Expr:
    """When a job ended (microseconds); the smallest number where it has not, or never ran."""
    return pl.when(~pl.col("never_started")).then(pl.col("end_time").dt.epoch("us")).fill_null(NOT_ENDED).alias("ended")


def application_family() -> pl.Expr:
    """The application family by name, script and folder, and by the number that a log without names gives programs."""
    number = pl.concat_str(pl.lit("application "), pl.col("executable"))
    return pl.coalesce(family(APPLICATION_COLUMNS[:3]), number)


@dataclass(frozen=True, slots=True)
class _Ended:
    """Some ended jobs: of which month, which row of it, and when they ended (microseconds)."""

    month: Numbers
    row: Numbers
    ended: Numbers

    def where(self, which: NDArray[Any]) -> _Ended:
        return _Ended(self.month[which], self.row[which], self.ended[which])

    def latest(self, count: int) -> _Ended:
        """The last so many, and who ended at the same moment as the first of these."""
        if self.ended.size <= count:
            return self
        return self.where(self.ended >= np.partition(self.ended, -count)[-count])


class Comparable:
    """The ended jobs of some months, as they are until the next change."""

    def __init__(self, months: Sequence[EndedJobs]) -> None:
        self._months = months

    def kind(self, request: pl.DataFrame, *, now: datetime) -> Kind:
        """The narrowest kind with enough jobs that ended before `now`; the fullest one where none has enough."""
        row = kinds.prepared_request(request)
        fullest: Kind | None = None
        for name, jobs, relatives in self._kinds(row, int(now.timestamp() * 1e6)):
            if jobs.ended.size <= (fullest.jobs.height if fullest else 0):
                continue
            kind = self._read(name, jobs, relatives, row)
            if kind.known:
                return kind
            # Jobs of other applications are a last resort, and no reason to say that this one is known a little.
            if name != kinds.ANY_APPLICATION or row["family"] is None:
                fullest = max(fullest or kind, kind, key=lambda candidate: candidate.jobs.height)
        nothing = request.clear()
        return fullest or Kind(kinds.SAME_SIZE, kinds.prepared(nothing), kinds.prepared(nothing))

    def _kinds(self, row: Row, now: int) -> Iterator[tuple[str, _Ended, _Ended]]:
        """The kinds from the narrowest to the widest: their jobs, and those of the same application in any size."""
        own = self._own(row["user"], now)
        same_size = self._same_size(own, row)
        same_family = self._same(own, row["family"], "family")
        namesakes = same_family & self._same(own, row["job_name"], "job_name")
        relatives = own.where(same_family)
        yield kinds.SAME_NAME, own.where(namesakes & same_size), own.where(namesakes)
        yield kinds.SAME_SIZE, own.where(same_family & same_size), relatives
        yield kinds.SAME_APPLICATION, relatives, relatives
        if row["family"] is not None:
            others = self._others(row["user"], now)
            theirs = others.where(self._same(others, row["family"], "family"))
            yield kinds.OTHER_USERS, theirs, theirs
        if row["size_cpus"] is not None or row["size_nodes"] is not None:
            yield kinds.ANY_APPLICATION, own.where(same_size), own.where(np.zeros(own.ended.size, bool))

    def _own(self, user: str | None, now: int) -> _Ended:
        """The last jobs of a user to end."""
        parts: list[_Ended] = []
        known = 0
        least = NOT_ENDED
        for number in self._by_last_end:
            month = self._months[number]
            if known >= kinds.OWN_CONSIDERED and month.last_end < least:
                break
            rows, ended = month.own(user)
            there = (ended > NOT_ENDED) & (ended < now)
            parts.append(_Ended(np.full(int(there.sum()), number), rows[there], ended[there]))
            known += parts[-1].ended.size
            if known >= kinds.OWN_CONSIDERED:
                parts = [_together(parts).latest(kinds.OWN_CONSIDERED)]
                known, least = parts[0].ended.size, int(parts[0].ended.min())
        return _together(parts).latest(kinds.OWN_CONSIDERED)

    def _others(self, user: str | None, now: int) -> _Ended:
        """The last jobs of everybody else to end."""
        latest = self._latest
        others = latest.where(~self._same(latest, user, "user") & (latest.ended < now))
        if others.ended.size < kinds.OTHERS_CONSIDERED and latest.ended.size >= _MOST_ENDS:  # one user's, or later than `now`
            everything = self._ends(now)
            others = everything.where(~self._same(everything, user, "user"))
        return others.latest(kinds.OTHERS_CONSIDERED)

    @cached_property
    def _by_last_end(self) -> list[int]:
        return sorted(range(len(self._months)), key=lambda number: -self._months[number].last_end)

    @cached_property
    def _latest(self) -> _Ended:
        """The last jobs to end, of all users."""
        parts: list[_Ended] = []
        known, least = 0, NOT_ENDED
        for number in self._by_last_end:
            month = self._months[number]
            if known >= _MOST_ENDS and month.last_end < least:
                break
            ended = month.ended
            rows = np.flatnonzero(ended > max(NOT_ENDED, least - 1))
            parts = [_together([*parts, _Ended(np.full(rows.size, number), rows, ended[rows])]).latest(_MOST_ENDS)]
            known = parts[0].ended.size
            least = int(parts[0].ended.min()) if known >= _MOST_ENDS else NOT_ENDED
        return _together(parts)

    def _ends(self, now: int) -> _Ended:
        """All jobs that had ended by then."""
        parts = []
        for number, month in enumerate(self._months):
            ended = month.ended
            rows = np.flatnonzero((ended > NOT_ENDED) & (ended < now))
            parts.append(_Ended(np.full(rows.size, number), rows, ended[rows]))
        return _together(parts)

    def _same(self, jobs: _Ended, text: str | None, column: str) -> NDArray[np.bool_]:
        """Which of these jobs have this text in a column, or are of this application; none where it is not known."""
        out = np.zeros(jobs.ended.size, bool)
        for number in np.unique(jobs.month) if text is not None else ():
            here = jobs.month == number
            out[here] = self._months[number].same(jobs.row[here], str(text), column)
        return out

    def _same_size(self, jobs: _Ended, row: Row) -> NDArray[np.bool_]:
        """Which of these jobs are of a request's size, a missing one included."""
        out = np.zeros(jobs.ended.size, bool)
        for number in np.unique(jobs.month):
            here = jobs.month == number
            cpus, nodes = self._months[number].sizes_at(jobs.row[here])
            out[here] = _equal(cpus, row["size_cpus"]) & _equal(nodes, row["size_nodes"])
        return out

    def _read(self, name: str, jobs: _Ended, relatives: _Ended, row: Row) -> Kind:
        """A kind with the columns that advice needs: only of its last jobs, and of their last relatives."""
        both = _together([jobs.latest(kinds.LAST), relatives.latest(4 * kinds.LAST)])
        places = np.unique(np.stack([both.month, both.row], axis=1), axis=0)
        frame = kinds.prepared(self._rows(_Ended(places[:, 0], places[:, 1], places[:, 0]), kinds.COLUMNS))
        if frame.height < len(places):  # what is doubted makes some of them jobs that never ran: the next ones count
            everything = _together([jobs, relatives])
            places = np.unique(np.stack([everything.month, everything.row], axis=1), axis=0)
            frame = kinds.prepared(self._rows(_Ended(places[:, 0], places[:, 1], places[:, 0]), kinds.COLUMNS))
        sized = (
            kinds.rows_with(frame, size_cpus=row["size_cpus"], size_nodes=row["size_nodes"])
            if name in (kinds.SAME_NAME, kinds.SAME_SIZE, kinds.ANY_APPLICATION)
            else frame
        )
        return kinds.kind_of(name, sized, frame.clear() if name == kinds.ANY_APPLICATION else frame)

    def _rows(self, jobs: _Ended, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of these jobs, in their order where they are of one month or sorted by it."""
        parts: list[pl.DataFrame] = []
        order = []
        for number in np.unique(jobs.month):
            here = np.flatnonzero(jobs.month == number)
            order.append(here)
            parts.append(self._months[number].rows(jobs.row[here], columns))
        if not parts:
            return pl.DataFrame(schema={name: JOB_SCHEMA[name] for name in columns})
        if len(parts) == 1:
            return parts[0]
        places = np.concatenate(order)
        in_order = bool((np.diff(places) > 0).all())
        return pl.concat(parts) if in_order else pl.concat(parts)[np.argsort(places, kind="stable")]


def _equal(values: Floats, wanted: float | None) -> NDArray[np.bool_]:
    """Which of these are a number; NaN are equal to None."""
    return np.isnan(values) if wanted is None else values == wanted


def _together(parts: Sequence[_Ended]) -> _Ended:
    if len(parts) == 1:
        return parts[0]
    nothing = np.zeros(0, np.int64)
    columns = [[getattr(part, name) for part in parts] or [nothing] for name in ("month", "row", "ended")]
    return _Ended(*(np.concatenate(column) for column in columns))

"""Gaps: buckets that nobody has seen whole, and why.

marks of the sources -> Coverage -> gaps, with the reasons that the sources gave. A gap itself needs no row: it is the lack of a
mark. Its reason does, until the gap is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.events import Missing
from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.tables import TableSpec, TableStore

GAP_SCHEMA: Final = pl.Schema(
    {"source": pl.String(), "start": UTC_TIME, "end": UTC_TIME, "why": pl.String(), "seen_at": UTC_TIME}  # end: not in it
)
EVENT_GAPS: Final = TableSpec("event_gaps", GAP_SCHEMA, partition_by=(), ranges=("start",))
NO_REASON: Final = "not read"  # of a gap for which no source gave a reason
_MOST_REASONS: Final = 5000
_LONGEST_WHY: Final = 300


@dataclass(frozen=True, slots=True)
class EventGap:
    """A stretch of buckets that was not seen whole; `end` is not in it."""

    start: datetime
    end: datetime
    why: str
    sources: tuple[str, ...] = ()  # who has not seen it

    def as_dict(self) -> dict[str, str]:
        """The gap as `--json` prints it."""
        return {"from": self.start.isoformat(), "to": self.end.isoformat(), "why": self.why}


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """From the first mark to the last, which buckets were seen whole."""

    start_s: npt.NDArray[np.int64]  # (buckets,) Unix seconds, bucket_s apart; where marks begin: at UTC midnight, or another
    bucket_s: int
    whole: npt.NDArray[np.bool_]  # (buckets,)
    unseen_by: dict[str, npt.NDArray[np.bool_]]  # source: (buckets,) where it should have a mark and has none

    @property
    def phase_s(self) -> int:
        """How far its buckets begin behind those of UTC."""
        return int(self.start_s[0]) % self.bucket_s if self.start_s.size else 0


def place_of(start_s: npt.NDArray[np.int64], bucket_s: int, phase_s: int) -> npt.NDArray[np.int64]:
    """(rows,) which bucket, counted from 1970, each row is; one that begins elsewhere is the bucket that it shares most with.

    A server may cut its days at another midnight, and that may have been set otherwise before.
    """
    nearest: npt.NDArray[np.int64] = (start_s - phase_s + (bucket_s - 1) // 2) // bucket_s
    return nearest


def coverage_of(covered: pl.DataFrame, bucket_s: int) -> Coverage:
    """Marks (source, bucket_start) of any number of sources as one coverage.

    A bucket is whole when every source that has marks both before and after it, or at it, has a mark at it.
    """
    begin_s = covered["bucket_start"].dt.epoch("s").to_numpy()
    if not begin_s.size:
        return Coverage(np.empty(0, np.int64), bucket_s, np.empty(0, np.bool_), {})
    phases, often = np.unique(begin_s % bucket_s, return_counts=True)
    phase_s = int(phases[often.argmax()])
    place = place_of(begin_s, bucket_s, phase_s)
    first = int(place.min())
    buckets = int(place.max()) - first + 1
    anybody, complete, unseen_by = np.zeros(buckets, np.bool_), np.ones(buckets, np.bool_), {}
    for (source,), rows in covered.with_columns(_place=pl.Series(place - first)).partition_by("source", as_dict=True).items():
        seen = np.zeros(buckets, np.bool_)
        own = rows["_place"].to_numpy()
        seen[own] = True
        expected = np.zeros(buckets, np.bool_)
        expected[own.min() : own.max() + 1] = True
        anybody |= seen
        complete &= seen | ~expected
        unseen_by[str(source)] = expected & ~seen
    start_s = (first + np.arange(buckets, dtype=np.int64)) * bucket_s + phase_s
    return Coverage(start_s, bucket_s, anybody & complete, unseen_by)


def gaps_of(
    coverage: Coverage, reasons: pl.DataFrame, *, since: datetime | None = None, until: datetime | None = None
) -> list[EventGap]:
    """The stretches that are not whole, each with the reasons that overlap it; cut to a span of time."""
    wide = _stretched(coverage, reasons)
    unseen = ~wide.whole
    if since is not None:
        unseen &= wide.start_s >= since.timestamp()
    if until is not None:
        unseen &= wide.start_s < until.timestamp()
    return [_gap(wide, first, last, reasons) for first, last in _runs(unseen)]


class GapReasons(TableStore):
    """Why something was not seen, as reported by the sources; a small table."""

    spec = EVENT_GAPS

    def read(self, source: str | None = None) -> pl.DataFrame:
        """All reasons, or those of one source, oldest first, as a frame of GAP_SCHEMA."""
        rows = self.table.scan().sort("start", "source", "why").collect()
        return rows if source is None else rows.filter(pl.col("source") == source)

    def drop(self, source: str) -> None:
        """Forget the reasons of a source."""
        self.table.delete("source", source)

    def update(
        self,
        source: str,
        missing: Sequence[Missing],
        *,
        seen: Coverage,
        now: datetime,
        again: tuple[datetime, datetime] | None = None,
    ) -> None:
        """Take what a source says it did not see, and drop what it has seen whole since.

        `again` is a span that the source has just reported in full: its earlier reasons there are obsolete.
        """
        with self._writer_lock():
            stored = self.read()
            if not missing and not (stored["source"] == source).any():
                return
            others = stored.filter(pl.col("source") != source)
            own = [row for row in stored.filter(pl.col("source") == source).iter_rows() if not _within(row, again)]
            own += [(source, start, end, _short(why), now) for start, end, why in missing if start < end]
            kept = [row for row in _merged(own) if not _filled(row[1], row[2], seen)]
            rows = pl.concat([others, pl.DataFrame(kept, schema=GAP_SCHEMA, orient="row")]).sort("start", "source", "why")
            rows = rows.tail(_MOST_REASONS)
            if not rows.drop("seen_at").equals(stored.drop("seen_at")):
                self.table.overwrite(rows)


_Row = tuple[str, datetime, datetime, str, datetime]


def _within(row: _Row, span: tuple[datetime, datetime] | None) -> bool:
    return span is not None and span[0] <= row[1] and row[2] <= span[1]


def _merged(rows: list[_Row]) -> list[_Row]:
    """Spans with the same reason that overlap or touch become one; what was seen first says when."""
    merged: list[_Row] = []
    for row in sorted(rows, key=lambda key: (key[3], key[1], key[2])):
        if merged and merged[-1][3] == row[3] and row[1] <= merged[-1][2]:
            before = merged[-1]
            merged[-1] = (row[0], before[1], max(before[2], row[2]), row[3], min(before[4], row[4]))
        else:
            merged.append(row)
    return merged


def _filled(start: datetime, end: datetime, seen: Coverage) -> bool:
    """Whether every bucket that a span touches was seen whole."""
    if not seen.start_s.size:
        return False
    begin_s = int(seen.start_s[0])
    first = int((start.timestamp() - begin_s) // seen.bucket_s)
    last = int(-((begin_s - end.timestamp()) // seen.bucket_s))
    return first >= 0 and last <= seen.whole.size and bool(seen.whole[first:last].all())


def _stretched(coverage: Coverage, reasons: pl.DataFrame) -> Coverage:
    """The coverage, extended by the stretches before and after it that a source has reported as not seen."""
    if not reasons.height:
        return coverage
    bucket_s, phase_s = coverage.bucket_s, coverage.phase_s
    known = coverage.start_s // bucket_s
    begins = (reasons["start"].dt.epoch("s").to_numpy() - phase_s) // bucket_s
    ends = -((phase_s - reasons["end"].dt.epoch("s").to_numpy()) // bucket_s)
    first, last = int(min([*begins, *known[:1]])), int(max([*ends, *(known[-1:] + 1)]))
    whole = np.ones(last - first, np.bool_)
    for begin, end in zip(begins - first, ends - first, strict=True):
        whole[begin:end] = False
    before = int(known[0]) - first if known.size else 0
    whole[before : before + known.size] = coverage.whole
    padding = (before, whole.size - before - known.size)
    unseen_by = {name: np.pad(unseen, padding) for name, unseen in coverage.unseen_by.items()}
    return Coverage(np.arange(first, last, dtype=np.int64) * bucket_s + phase_s, bucket_s, whole, unseen_by)


def _gap(coverage: Coverage, first: int, last: int, reasons: pl.DataFrame) -> EventGap:
    begin = datetime.fromtimestamp(int(coverage.start_s[first]), UTC)
    end = datetime.fromtimestamp(int(coverage.start_s[last - 1]) + coverage.bucket_s, UTC)
    overlapping = reasons.filter(pl.col("start") < end, pl.col("end") > begin)
    silent = [name for name, unseen in coverage.unseen_by.items() if unseen[first:last].any()]
    reason = "; ".join(dict.fromkeys(overlapping["why"])) or NO_REASON
    return EventGap(begin, end, reason, tuple(sorted({*silent, *overlapping["source"]})))


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where stretches of true begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _short(why: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in why)[:_LONGEST_WHY]

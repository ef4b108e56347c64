"""Tables of events, and tables of counts: CSV, NDJSON or Parquet -> counts per bucket.

EventTable: one row per event (time, kind, places), as exported from anywhere. CountTable: one row per bucket with a column per
kind, or one row per bucket and kind. A table tells all of its span, so that reading it again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import CursorOf
from stormpetrel.records.events import (
    BAD_TIME,
    COVERED,
    FUTURE,
    FUTURE_SLACK,
    NO_KIND,
    PLACES,
    WHOLE,
    EventKind,
    Missing,
    as_counts,
    bucket_ceil,
    bucket_floor,
    covered,
    no_counts,
)  # fmt: skip
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.event_tally import MOST_KINDS, CountTally, NamedIds
from stormpetrel.sources.htcondor.vocabulary import AD_INFORMATION_NAME, host_name, kind_name
from stormpetrel.sources.tables.column_names import (
    COUNT,
    EVENTS,
    KIND,
    NORMALLY,
    NUMBER,
    PLACE,
    RETURNED,
    SIGNAL,
    TIME,
    TRIGGER,
    TRIGGER_NUMBER,
    VALUE,
)
from stormpetrel.sources.tables.event_frames import (
    counts_of,
    frames_of,
    ids_of,
    is_numbers,
    is_wall_clock,
    read_ahead,
    second_pass,
    times_of,
)

BAD_COUNT: Final = "bad_count"  # negative, not whole, or no number
DUPLICATE: Final = "duplicate"  # another row of the same time and kind
EMPTY: Final = "empty in the file"  # why a bucket of a table of counts is a gap
NO_COUNT: Final = "something that is no count in the file"
NO_ROW: Final = "no row in the file"
DAY_S: Final = 86_400
SILENCE: Final = timedelta(hours=48)  # of all events, in a table of events: longer, it is taken for rows that are missing
_MOST_COLUMNS: Final = 1000
_SHOWN_CELLS: Final = 3


class EventTable:
    """A table with one row per event; it has been seen whole from its first event to its last."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.source = f"table:{path.name}"
        self.notes: list[str] = []
        self._path, self._zone, self._events = path, settings.site.time_zone, settings.events
        self._bucket_s = settings.events.bucket_minutes * 60

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """One span: everything that the table tells."""
        tally, aside, no_rows = CountTally(self._bucket_s), Counter[str](), Counter[str]()
        edges: list[datetime] = []
        for frame in read_ahead(frames_of(self._path, no_rows, _needed)):
            edges += self._count(frame, now, tally, aside)
        aside += no_rows
        counts = tally.take(self.source, most_places=self._events.most_places)
        if not edges:
            self.notes.append(f"{self._path.name} holds no event that can be counted.")
            edges = [now]
        first, last = min(edges), max(edges)
        marks = covered(self.source, first, max(first, last), self._bucket_s, counts)
        silences = silent_stretches(counts, marks)
        for begin, until, _ in silences:
            marks = marks.filter(~pl.col("bucket_start").is_between(begin, until, closed="left"))
        start, end = bucket_floor(first, self._bucket_s), bucket_ceil(last + timedelta(microseconds=1), self._bucket_s)
        yield CountedSpan(start, end, pl.concat([counts, marks]), quarantined=dict(aside), missing=silences, done=1.0)

    def _count(self, frame: pl.DataFrame, now: datetime, tally: CountTally, aside: Counter[str]) -> list[datetime]:
        """Count the rows of a frame; the first and the last time in it."""
        named = EVENTS.columns(frame.columns, (TIME, KIND, *_ABOUT_KIND))
        if TIME not in named or not {KIND, NUMBER} & named.keys():
            raise SourceFormatError(
                f"{self._path} has no column for the {'kind' if TIME in named else 'time'} of an event. "
                f"Found: {', '.join(frame.columns[:20])}.",
                hint="Name its columns time and kind (or EventTime and MyType).",
            )
        time, kind = times_of(frame[named[TIME]], self._zone), _kinds(frame, named)
        is_ahead = (time > now + FUTURE_SLACK).fill_null(False)
        good = time.is_not_null() & ~is_ahead & kind.is_not_null()
        aside += Counter({BAD_TIME: time.null_count(), FUTURE: int(is_ahead.sum())})  # only what is above zero is kept
        aside += Counter({NO_KIND: len(good) - int(good.sum()) - time.null_count() - int(is_ahead.sum())})
        if not good.all():
            frame, time, kind = frame.filter(good), time.filter(good), kind.filter(good)
        if not frame.height:
            return []
        rows = _failed_once_more(frame, named, kind)
        kind_ids, kind_names = ids_of(kind)
        if len(kind_names) >= MOST_KINDS:
            raise SourceFormatError(
                f"{self._path} has more than {MOST_KINDS - 1} kinds of events.", hint="Is the right column called kind?"
            )
        code = np.concatenate([kind_ids, np.full(rows.size - kind_ids.size, len(kind_names))]).astype(np.int64)
        names = pl.concat([kind_names, pl.Series([EventKind.FAILED.value], dtype=pl.String)])
        micros = time.to_physical().to_numpy()
        tally.add(micros[rows], code, names, _places(frame, rows))
        return [moment for moment in (time.min(), time.max()) if isinstance(moment, datetime)]


def silent_stretches(counts: pl.DataFrame, marks: pl.DataFrame) -> list[Missing]:
    """The long stretches without a single event: a clock that was years behind must not make years of zeros."""
    busy = counts.filter(pl.col("place") == WHOLE).select(pl.col("bucket_start").unique().sort())
    edges = busy.select(begin=pl.col("bucket_start"), until=pl.col("bucket_start").shift(-1)).drop_nulls()
    if not marks.height:
        return []
    step = timedelta(seconds=int(marks["bucket_s"][0]))
    gaps = edges.with_columns(pl.col("begin") + step).filter(pl.col("until") - pl.col("begin") >= SILENCE)
    return [(begin, until, f"no event in {(until - begin) / timedelta(hours=1):,.0f} h") for begin, until in gaps.iter_rows()]


_ABOUT_KIND: Final = (
    NUMBER, TRIGGER, TRIGGER_NUMBER, RETURNED, NORMALLY, SIGNAL,
)  # fmt: skip


def _needed(names: list[str]) -> list[str]:
    """The columns that are looked at; all where the kind or the time is not there, so that the message can name them."""
    wanted = EVENTS.columns(names, (TIME, KIND, *_ABOUT_KIND, *PLACES))
    is_table = TIME in wanted and wanted.keys() & {KIND, NUMBER}
    return [name for name in names if name in wanted.values()] if is_table else names


def _kinds(frame: pl.DataFrame, named: dict[str, str]) -> pl.Series:
    """The kind of each event: `SubmitEvent` is Submit, 0 is Submit too, and event 028 is what it tells of."""
    kind = _kind_of(frame[named.get(KIND, named.get(NUMBER, ""))])
    trigger = named.get(TRIGGER_NUMBER) or named.get(TRIGGER)
    if trigger is None:
        return kind
    triggered = _kind_of(frame[trigger])
    return triggered.zip_with(((kind == AD_INFORMATION_NAME) & triggered.is_not_null()).fill_null(False), kind)


def _kind_of(column: pl.Series) -> pl.Series:
    """The kinds of a column of names or numbers; each different name is read once."""
    text = column.cast(pl.String, strict=False)
    names = text.unique().drop_nulls()
    kinds = pl.Series([host_name(kind_name(name) or name) or None for name in names], dtype=pl.String)
    return text.replace_strict(names, kinds, return_dtype=pl.String)


def _failed_once_more(frame: pl.DataFrame, named: dict[str, str], kind: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """(rows,) all events, then once more the ends of jobs that failed, where the table tells how they ended."""
    failed = pl.Series([False]).new_from_index(0, frame.height)
    for name in (RETURNED, SIGNAL):
        if name in named:
            failed |= (frame[named[name]].cast(pl.Float64, strict=False) != 0).fill_null(False)
    if NORMALLY in named:
        failed |= frame[named[NORMALLY]].cast(pl.String).str.to_lowercase().is_in(["false", "0"]).fill_null(False)
    again = (failed & (kind == EventKind.TERMINATED.value)).arg_true().to_numpy()
    return np.concatenate([np.arange(frame.height), again]).astype(np.intp)


def _places(frame: pl.DataFrame, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> dict[str, NamedIds]:
    ids_by_place: dict[str, NamedIds] = {}
    for place, name in EVENTS.columns(frame.columns, PLACES).items():
        ids, names = ids_of(frame[name].cast(pl.String, strict=False))
        if place == "node":
            names = names.str.split("@").list.last()
        shown = pl.Series([host_name(name) for name in names], dtype=pl.String)
        ids_by_place[place] = (ids[rows], shown)
    return ids_by_place


class CountTable:
    """A table of counts: `time` and one column per kind, or `time`, `kind`, `count` (and `place`, `value`).

    Per row it tells a bucket; an empty cell, or a time that has no row, is a gap; a 0 is a zero.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.source = f"table:{path.name}"
        self.notes: list[str] = []
        self._path, self._zone = path, settings.site.time_zone
        self._wanted_s = settings.events.bucket_minutes * 60
        self._settle = timedelta(minutes=settings.events.settle_minutes)

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """One span: everything that the table tells of buckets that are over."""
        aside = Counter[str]()
        table = pl.concat(list(frames_of(self._path, aside)), how="diagonal_relaxed")
        cells = self._cells(table, now, aside)
        step_s = self._step_s(cells["time"])
        bucket_s = self._wanted_s if self._wanted_s % step_s == 0 else step_s
        cells = self._once(cells.with_columns(time=_nearest_step(pl.col("time"), step_s)), aside)
        counts, coverage = _in_buckets(cells, step_s=step_s, bucket_s=bucket_s)
        counts = as_counts(counts, self.source, bucket_s)
        if not counts.height:
            raise SourceFormatError(f"{self._path} holds no count.", hint="Expected a column time and a column per kind.")
        first, last = coverage["bucket_start"].min(), coverage["bucket_start"].max()
        assert isinstance(first, datetime) and isinstance(last, datetime)
        end = last + timedelta(seconds=bucket_s)
        whole = bucket_floor(now - self._settle, bucket_s)  # later buckets may still grow
        marks = covered(self.source, first, min(end, max(first, whole)), bucket_s, counts)
        missing = _missing(marks, coverage)
        marks = marks.join(coverage.filter(pl.col("why").is_null()), on="bucket_start", how="semi")
        yield CountedSpan(first, end, pl.concat([counts, marks]), quarantined=dict(aside), missing=missing, done=1.0)

    def _cells(self, table: pl.DataFrame, now: datetime, aside: Counter[str]) -> pl.DataFrame:
        """One row per cell: time, kind, place, value, count (null where the table has none), and why it has none."""
        named = EVENTS.columns(table.columns, (TIME, KIND, COUNT, PLACE, VALUE))
        if TIME not in named:
            raise SourceFormatError(
                f"{self._path} has no column for the time. Found: {', '.join(table.columns[:20])}.", hint="Name one of them time."
            )
        time = times_of(table[named[TIME]], self._zone)
        is_ahead = (time > now + FUTURE_SLACK).fill_null(False)
        aside += Counter({BAD_TIME: time.null_count(), FUTURE: int(is_ahead.sum())})
        self._note_bad("No times", table[named[TIME]], time.is_null())
        self._note_bad("Times that are still to come", table[named[TIME]], is_ahead)
        good = time.is_not_null() & ~is_ahead
        on_wall_clock = is_wall_clock(table[named[TIME]])
        table, time = table.filter(good), time.filter(good).alias("time")
        if KIND in named and COUNT in named:
            cells = self._long(table, time, named, aside)
        else:
            cells = self._wide(table.drop(named[TIME]), time, aside)
        return second_pass(cells, _CELL, self._zone) if on_wall_clock else cells

    def _long(self, table: pl.DataFrame, time: pl.Series, named: dict[str, str], aside: Counter[str]) -> pl.DataFrame:
        kind = _kind_of(table[named[KIND]])
        count, is_bad = counts_of(table[named[COUNT]])
        aside += Counter({BAD_COUNT: int(is_bad.sum()), NO_KIND: kind.null_count()})
        self._note_bad("No counts", table[named[COUNT]], is_bad, time)
        empty = pl.Series([""], dtype=pl.String).new_from_index(0, table.height)
        place, value = (table[named[name]].cast(pl.String).fill_null("") if name in named else empty for name in (PLACE, VALUE))
        names = value.unique()
        value = value.replace_strict(names, pl.Series([host_name(name) for name in names], dtype=pl.String))
        cells = _explained(pl.DataFrame({"time": time, "kind": kind, "place": place, "value": value}), count, is_bad)
        odd = ~cells["place"].is_in([WHOLE, *PLACES])
        if odd.any():
            self.notes.append(f"Places other than {', '.join(PLACES)} are left out ({odd.sum()} rows).")
        return self._with_whole(cells.filter(~odd).drop_nulls("kind"))

    def _note_bad(self, what: str, written: pl.Series, is_bad: pl.Series, time: pl.Series | None = None) -> None:
        """Say what the first cells of their sort hold that cannot be counted, and where they are."""
        bad = written.filter(is_bad).head(_SHOWN_CELLS).cast(pl.String, strict=False).to_list()
        at = [
            "" if time is None else f" at {moment:%Y-%m-%d %H:%M} UTC"
            for moment in (time.filter(is_bad) if time is not None else bad)
        ]
        if bad:
            cells = ", ".join(f"{(text or '')[:40]!r}{where}" for text, where in zip(bad, at, strict=False))
            more = int(is_bad.sum()) - len(bad)
            self.notes.append(f"{what}: {cells}{f' and {more:,} more' if more else ''}.")

    def _with_whole(self, cells: pl.DataFrame) -> pl.DataFrame:
        """The cells, and the sums over the place that tells most where the table tells of places only."""
        if not cells.height or (cells["place"] == WHOLE).any():
            return cells
        sums = cells.group_by("place").agg(pl.col("count").sum()).sort("count", "place", descending=[True, False])
        most = str(sums["place"][0])
        self.notes.append(f"The table counts by place only; the whole is taken to be the sum over each {most}.")
        once = cells.filter(pl.col("place") == most).unique(_CELL, keep="first", maintain_order=True)
        whole = once.group_by("time", "kind", maintain_order=True).agg(pl.col("count").sum(), pl.col("why").drop_nulls().first())
        return pl.concat([cells, whole.with_columns(place=pl.lit(WHOLE), value=pl.lit("")).select(cells.columns)])

    def _wide(self, table: pl.DataFrame, time: pl.Series, aside: Counter[str]) -> pl.DataFrame:
        kinds = [name for name in table.columns if is_numbers(table[name])]
        others = [name for name in table.columns if name not in kinds]
        if others:
            self.notes.append(f"Columns that are no counts are left out: {', '.join(host_name(name) for name in others[:20])}.")
        if len(kinds) > _MOST_COLUMNS:
            raise SourceFormatError(f"{self._path} has {len(kinds)} columns of counts.", hint="One column per kind is expected.")
        parts = []
        for name in kinds:
            count, is_bad = counts_of(table[name])
            aside += Counter({BAD_COUNT: int(is_bad.sum())})
            self._note_bad(f"No counts in the column {host_name(name)}", table[name], is_bad, time)
            kind = host_name(kind_name(name) or name) or name
            cells = pl.DataFrame({"time": time}).with_columns(kind=pl.lit(kind), place=pl.lit(WHOLE), value=pl.lit(""))
            parts.append(_explained(cells, count, is_bad))
        if not parts:
            raise SourceFormatError(f"{self._path} has no column of counts.", hint="One column per kind is expected.")
        return pl.concat(parts)

    def _step_s(self, time: pl.Series) -> int:
        """How far the times of the table are apart."""
        moments = time.unique().sort()
        if len(moments) < 2:
            return self._wanted_s
        steps = moments.diff().drop_nulls().dt.total_seconds()
        step = int(steps.mode().min() or 0)  # type: ignore[arg-type]
        if step <= 0 or DAY_S % step:
            raise SourceFormatError(
                f"The times of {self._path} are {step} s apart, which does not divide a day.",
                hint="Name raw events with --format events, or count per minute, hour or day.",
            )
        return step

    def _once(self, cells: pl.DataFrame, aside: Counter[str]) -> pl.DataFrame:
        """Of several rows of the same bucket, kind and place the first."""
        once = cells.unique(subset=_CELL, keep="first", maintain_order=True)
        aside += Counter({DUPLICATE: cells.height - once.height})
        return once


_CELL: Final = ["time", "kind", "place", "value"]


def _explained(cells: pl.DataFrame, count: pl.Series, is_bad: pl.Series) -> pl.DataFrame:
    """Cells with their counts, and with the reason where they have none."""
    why = pl.when(is_bad).then(pl.lit(NO_COUNT)).when(count.is_null()).then(pl.lit(EMPTY))
    return cells.with_columns(count=count, why=why)


def _nearest_step(time: pl.Expr, step_s: int) -> pl.Expr:
    """The step of UTC that a row shares most with: a day of another zone does not begin at UTC midnight."""
    step_us = step_s * 1_000_000
    return ((time.to_physical() + (step_us - 1) // 2) // step_us * step_us).cast(pl.Datetime("us", "UTC"))


def _in_buckets(cells: pl.DataFrame, *, step_s: int, bucket_s: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Counts per bucket; and all buckets that have a row, with the reason why they are not whole, null where they are."""
    cells = cells.with_columns(bucket_start=bucket_floor(pl.col("time"), bucket_s))
    key = ["bucket_start", "kind", "place", "value"]
    counts = cells.drop_nulls("count").filter(pl.col("kind") != COVERED).group_by(key).agg(pl.col("count").sum())
    steps = cells.group_by("bucket_start").agg(pl.col("time").n_unique().alias("steps"), pl.col("why").drop_nulls().first())
    is_short = pl.col("steps") < bucket_s // step_s
    steps = steps.with_columns(why=pl.coalesce("why", pl.when(is_short).then(pl.lit(NO_ROW)))).select("bucket_start", "why")
    return (counts if counts.height else no_counts().select(*key, "count")), steps


def _missing(buckets: pl.DataFrame, coverage: pl.DataFrame) -> list[Missing]:
    """The stretches of buckets that the table does not tell as a whole, with the reason."""
    if not buckets.height:
        return []
    step = timedelta(seconds=int(buckets["bucket_s"][0]))
    rows = buckets.select("bucket_start").join(coverage.with_columns(has_row=pl.lit(True)), on="bucket_start", how="left")
    why = pl.when(pl.col("has_row").is_null()).then(pl.lit(NO_ROW)).otherwise("why")
    runs = rows.sort("bucket_start").with_columns(why=why, run=why.rle_id()).drop_nulls("why").group_by("run", "why")
    spans = runs.agg(pl.col("bucket_start").min().alias("first"), pl.col("bucket_start").max().alias("last")).sort("first")
    return [(first, last + step, reason) for reason, first, last in spans.select("why", "first", "last").iter_rows()]

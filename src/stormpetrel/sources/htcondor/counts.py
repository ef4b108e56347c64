"""One HTCondor event log -> counts: of the bytes behind its cursor, added to what was counted before.

LogFile -> LogReader -> CountedSpan (additive, with the cursor of the file). `CondorEventFile` is a log that somebody names, read
once or again and again; the log of a running access point is followed by `condor_follow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import FUTURE, WHOLE, bucket_ceil, bucket_floor, covered, no_counts
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.event_tally import CountTally
from stormpetrel.sources.htcondor.batches import EventBatch, tally
from stormpetrel.sources.htcondor.log_files import OTHER, ChangedMeanwhileError, LogFile, cursor_of, log_file
from stormpetrel.sources.htcondor.reference_reader import reference_batches
from stormpetrel.sources.htcondor.scan import TextScanner, year_of_first_date

LOOK_BACK_BYTES: Final = 8 << 20  # before the cursor, read again for the jobs that run: a job that fails fast has started there
_SPAN_BYTES: Final = 256 << 20  # of a long log, so much is one commit
_TRUNCATED: Final = "truncated_record"


class LogReader:
    """Reads files of a log on, in the order of time, and remembers the jobs that run from one to the next."""

    def __init__(self, source: str, settings: Settings, *, submit_host: str = "", year: int | None = None) -> None:
        self.source, self.notes = source, list[str]()
        self.bucket_s = settings.events.bucket_minutes * 60
        self.first: datetime | None = None  # times of what was read
        self.last: datetime | None = None
        self.is_torn = False  # the last file ended in the middle of an event
        self.is_rewritten = False  # what lies before the cursor is not what was read there
        self._settings, self._submit_host, self._year = settings, submit_host, year
        self._scanner: TextScanner | None = None
        self._is_warm = False
        self._totals: list[pl.DataFrame] = []

    def spans(self, file: LogFile, position: int, now: datetime, *, is_over: bool = False) -> Iterator[CountedSpan]:
        """What a file holds behind a position; `is_over` where nobody writes to it any more, so that a torn end is damage."""
        self.is_torn = False
        if file.size_bytes is not None and file.size_bytes < position and file.format != OTHER:
            self.notes.append(f"{file.path.name} is shorter than what was read of it; it is read on when it has grown again.")
            return
        if file.size_bytes == position:
            return
        counting, aside, done, reached = CountTally(self.bucket_s), Counter[str](), position, position
        for batch, reached, share in self._batches(file, position, now, is_over):
            tally(batch, counting)
            aside.update(batch.quarantined)
            self._note_times(batch)
            if reached - done >= _SPAN_BYTES:
                yield self._span(file, counting, aside, reached, share)
                done, aside = reached, Counter()
        if reached > done or aside:
            yield self._span(file, counting, aside, reached, 1.0)

    def warm_up_once(self, file: LogFile, now: datetime, *, whatever_it_costs: bool = False) -> None:
        """Learn which jobs run, and how late it was, from the end of a file that has been counted, unless it was just read."""
        if not self._is_warm and file.format != OTHER and file.size_bytes is not None:
            for _ in self._text(file, file.size_bytes, now, False):
                pass
        elif whatever_it_costs:  # XML and JSON can only be read from the beginning
            for batch, _, _ in self._batches(file, 0, now, False):
                self._note_last(batch)

    def coverage(self, start: datetime, end: datetime) -> pl.DataFrame:
        """The marks of a stretch that was seen; what was counted in it since this reader began is told in them."""
        totals = pl.concat([no_counts(), *self._totals])
        self._totals = [totals.filter(pl.col("bucket_start") >= bucket_floor(end, self.bucket_s))]
        return covered(self.source, start, end, self.bucket_s, totals)

    def _batches(self, file: LogFile, position: int, now: datetime, is_over: bool) -> Iterator[tuple[EventBatch, int, float]]:
        if file.format == OTHER:
            events = self._settings.events
            yield from reference_batches(
                file, position, time_zone=self._settings.site.time_zone, year=self._year, now=now,
                fast_failure_s=events.fast_failure_s, submit_host=self._submit_host,
            )  # fmt: skip
            return
        yield from self._text(file, position, now, is_over)

    def _text(self, file: LogFile, position: int, now: datetime, is_over: bool) -> Iterator[tuple[EventBatch, int, float]]:
        scanner = self._ready(now)
        start = position if self._is_warm else max(0, position - LOOK_BACK_BYTES)
        zone = self._settings.site.time_zone
        year = self._year if start == 0 else None
        year = year or year_of_first_date(file.samples(start), as_of=file.modified, time_zone=zone)
        scanner.begin_file(start, year=year, now=now)
        self._is_warm, at = True, start
        for piece in file.pieces(start):
            before = max(0, min(len(piece), position - at))
            if before:
                self._note_last(scanner.feed(piece[:before]))
            at += len(piece)
            if at < position:
                continue
            if before and scanner.position != position:
                self.notes.append(f"{file.path.name} was rewritten before what is left to read; events may be missing.")
                self.is_rewritten = True
                scanner.begin_file(position)
            yield scanner.feed(memoryview(piece)[before:]), scanner.position, _share(at, file.size_bytes)
        self.is_torn = scanner.waiting_bytes > 0
        if self.is_torn and is_over:
            torn = scanner.feed(b"")
            yield _with(torn, _TRUNCATED), at, 1.0

    def _ready(self, now: datetime) -> TextScanner:
        if self._scanner is None:
            self._scanner = TextScanner(
                time_zone=self._settings.site.time_zone,
                fast_failure_s=self._settings.events.fast_failure_s,
                now=now,
                submit_host=self._submit_host,
            )
        return self._scanner

    def _note_last(self, batch: EventBatch) -> None:
        if batch.last:
            self.last = max(self.last or batch.last, batch.last)

    def _note_times(self, batch: EventBatch) -> None:
        if batch.first:
            self.first = min(self.first or batch.first, batch.first)
        self._note_last(batch)
        note = "Some events lie in the future and are not counted: is site.time_zone the zone of the log?"
        if FUTURE in batch.quarantined and note not in self.notes:
            self.notes.append(note)

    def _span(self, file: LogFile, counting: CountTally, aside: Counter[str], reached: int, share: float) -> CountedSpan:
        counts = counting.take(self.source, most_places=self._settings.events.most_places)
        self._totals.append(counts.filter(pl.col("place") == WHOLE))
        step = timedelta(seconds=self.bucket_s)
        start, end = (counts["bucket_start"].min(), counts["bucket_start"].max()) if counts.height else (None, None)
        begin = start if isinstance(start, datetime) else file.first or file.modified
        until = end + step if isinstance(end, datetime) else begin
        cursor = Cursor(file.cursor_name, reached)
        return CountedSpan(begin, until, counts, cursor, additive=True, quarantined=dict(aside), done=share)


class CondorEventFile:
    """An event log that somebody names: what is new in it is counted, and it is seen from its first to its last event."""

    def __init__(self, path: Path, settings: Settings, *, year: int | None = None) -> None:
        host = settings.htcondor.submit_host
        self.source = f"condor:{host or path.name}"
        self._path, self._settings = path, settings
        self._reader = LogReader(self.source, settings, submit_host=host, year=year)
        self.notes = self._reader.notes

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """Read on from the cursor of the file's content to its last whole event, then mark what was seen whole."""
        file = log_file(self._path, time_zone=self._settings.site.time_zone, now=now)
        if file is None:
            self.notes.append(f"{self._path} holds no whole event yet.")
            return
        file = replace(file, bucket_s=self._reader.bucket_s)
        reader, position = self._reader, cursor(file.cursor_name) or 0
        try:
            yield from reader.spans(file, position, now)
        except ChangedMeanwhileError:
            self.notes.append(f"{self._path} was rotated or truncated while it was read; read it again.")
            return
        if reader.is_torn:
            self.notes.append(f"The last event of {self._path} is not whole; it is left for the next time.")
        seen_name = cursor_of(f"condor-seen:{file.identity}", reader.bucket_s)
        seen = cursor(seen_name)
        if reader.last is None:  # nothing is new; but who read it may have been killed before it was marked
            self._read_the_end(file, now, was_marked=seen is not None)
        start = datetime.fromtimestamp(seen, UTC) if seen is not None else file.first or reader.first
        if start is None or reader.last is None:
            return
        end = bucket_floor(reader.last, reader.bucket_s)
        if bucket_ceil(start, reader.bucket_s) < end:
            coverage = reader.coverage(start, end)
            yield CountedSpan(start, end, coverage, Cursor(seen_name, int(end.timestamp())), additive=True, done=1.0)

    def _read_the_end(self, file: LogFile, now: datetime, *, was_marked: bool) -> None:
        try:
            self._reader.warm_up_once(file, now, whatever_it_costs=not was_marked)
        except ChangedMeanwhileError:
            self.notes.append(f"{self._path} was rotated or truncated while it was read; read it again.")


def _share(done: int, size: int | None) -> float:
    return min(1.0, done / size) if size else 0.0


def _with(batch: EventBatch, reason: str) -> EventBatch:
    return replace(batch, quarantined={**batch.quarantined, reason: batch.quarantined.get(reason, 0) + 1})

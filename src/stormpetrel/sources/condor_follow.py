"""The event log of a running access point, followed: growing, rotated, compressed, truncated, whatever happens between two looks.

htcondor.event_log -> FollowedEventLog.spans -> CountedSpan. Each look reads every file of the log on from its cursor, oldest
first, and then marks the buckets that are over and settled. What was rotated away while nobody looked is a gap with its reason.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.records.event_counting import bucket_ceil, bucket_floor, no_counts
from stormpetrel.sources.condor_counts import LOOK_BACK_BYTES, LogReader
from stormpetrel.sources.condor_log_files import ChangedMeanwhileError, LogFile, log_files
from stormpetrel.sources.contract import Cursor
from stormpetrel.sources.event_contract import CountedSpan, CursorOf, Missing

_GONE: Final = "the event log was rotated away or truncated before it was read"
_JUMPED: Final = "{count} file(s) of the event log were rotated away before they were read"


class FollowedEventLog:
    """The EVENT_LOG of an access point, read on at each look."""

    def __init__(self, settings: Settings) -> None:
        if not settings.htcondor.event_log:
            raise SettingsError("No event log is set.", hint="Set htcondor.event_log in site.toml to the path of EVENT_LOG.")
        host = settings.htcondor.submit_host or socket.gethostname()
        self.source = f"condor:{host}"
        self._path, self._zone = Path(settings.htcondor.event_log), settings.site.time_zone
        self._settle = timedelta(minutes=settings.events.settle_minutes)
        self._reader = LogReader(self.source, settings, submit_host=host)
        self.notes = self._reader.notes
        self._seen_name = f"condor-seen:{self.source}"

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """What came since the last look, then the marks of what was seen whole by now."""
        self.notes.clear()
        files = log_files(self._path, time_zone=self._zone, now=now)
        if not files and not self._path.exists():
            raise SourceUnavailableError(
                f"There is no event log {self._path}.", hint="Check htcondor.event_log, and that this host may read it."
            )
        left = {file.identity: cursor(file.cursor_name) for file in files}
        seen = cursor(self._seen_name)
        try:
            for place, file in enumerate(files):
                yield from self._read(files, place, left[file.identity] or 0, now)
        except ChangedMeanwhileError:
            return  # what was not read now is read at the next look, and so are the marks
        if files:
            yield from self._marks(files, left, None if seen is None else datetime.fromtimestamp(seen, UTC), now)

    def _read(self, files: list[LogFile], place: int, position: int, now: datetime) -> Iterator[CountedSpan]:
        file = files[place]
        if file.size_bytes == position:
            return
        if place and position < LOOK_BACK_BYTES:
            self._reader.warm_up_once(files[place - 1], now)
        is_over = place + 1 < len(files) and now - file.modified > self._settle
        yield from self._reader.spans(file, position, now, is_over=is_over)

    def _marks(
        self, files: list[LogFile], left: dict[str, int | None], seen: datetime | None, now: datetime
    ) -> Iterator[CountedSpan]:
        """The marks from where they ended last to what is settled, less what nobody can have seen."""
        first = files[0].first or self._reader.first or files[0].modified
        goes_on = any(position is not None for position in left.values())
        start = seen if seen is not None and goes_on else first
        end = bucket_floor(self._seen_to(files[-1], now), self._reader.bucket_s)
        missing = [] if seen is None or goes_on or first <= seen else [(seen, first, _GONE)]
        missing += _jumps(files, left)
        marks = self._reader.marks(start, end) if end > start else no_counts()
        for begin, until, _ in missing:
            bucket = pl.col("bucket_start")
            marks = marks.filter((bucket >= until) | (bucket + pl.duration(seconds=self._reader.bucket_s) <= begin))
        if marks.height or missing or seen is None:  # that it was looked at is remembered from the first look on
            reached = max(end, bucket_ceil(start, self._reader.bucket_s), seen or start)
            position = Cursor(self._seen_name, int(reached.timestamp()))
            yield CountedSpan(start, max(start, end), marks, position, additive=True, missing=missing, done=1.0)

    def _seen_to(self, newest: LogFile, now: datetime) -> datetime:
        """Up to when the log was seen: an event that is being written may be as old as the last one before it."""
        settled = now - self._settle
        if self._reader.is_torn and newest.modified > settled:
            return min(settled, self._reader.last or settled)
        return settled


def _jumps(files: list[LogFile], left: dict[str, int | None]) -> list[Missing]:
    """Holes between files that nobody has read yet: HTCondor numbers the files of its log."""
    found: list[Missing] = []
    for earlier, later in pairwise(files):
        if earlier.sequence is None or later.sequence is None or later.sequence - earlier.sequence < 2:
            continue
        if left[later.identity] is None and later.first is not None:
            count = later.sequence - earlier.sequence - 1
            found.append((min(earlier.modified, later.first), later.first, _JUMPED.format(count=count)))
    return found

"""The event log of a running access point, followed: growing, rotated, compressed, truncated, whatever happens between two polls.

htcondor.event_log -> FollowedEventLog.spans -> CountedSpan. Each look reads every file of the log on from its cursor, oldest
first, and then marks the buckets that are over and settled. What was rotated away while nobody looked is a gap with its reason.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from stormpetrel.config import Settings
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import bucket_ceil, bucket_floor, no_counts
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.htcondor.counts import LOOK_BACK_BYTES, LogReader
from stormpetrel.sources.htcondor.log_files import ChangedMeanwhileError, LogFile, cursor_of, log_files

_GONE: Final = "the event log was rotated away or truncated before it was read"
_JUMPED: Final = "{count} file(s) of the event log were rotated away before they were read"
_BEHEADED: Final = "the event log was truncated before it was read: it has lost its head"
_CUT: Final = "the event log was cut off, or written anew, while it was followed"
_KEY_BITS: Final = 24  # of a file's identity, kept next to the time at which it was the newest


class FollowedEventLog:
    """The EVENT_LOG of an access point, read on at each poll."""

    def __init__(self, settings: Settings) -> None:
        if not settings.htcondor.event_log:
            raise SettingsError("No event log is set.", hint="Set htcondor.event_log in site.toml to the path of EVENT_LOG.")
        host = settings.htcondor.submit_host or socket.gethostname()
        self.source = f"condor:{host}"
        self._path, self._zone = Path(settings.htcondor.event_log), settings.site.time_zone
        self._settle = timedelta(minutes=settings.events.settle_minutes)
        self._reader = LogReader(self.source, settings, submit_host=host)
        self.notes = self._reader.notes
        bucket_s = self._reader.bucket_s
        self._seen_name = cursor_of(f"condor-seen:{self.source}", bucket_s)
        self._newest_name = cursor_of(f"condor-newest:{self.source}", bucket_s)

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """What came since the last poll, then the marks of what was seen whole by now."""
        self.notes.clear()
        seen_s = cursor(self._seen_name)
        poll = _Poll(None if seen_s is None else datetime.fromtimestamp(seen_s, UTC), cursor(self._newest_name), now)
        files_now = log_files(self._path, time_zone=self._zone, now=now)
        files = [replace(file, bucket_s=self._reader.bucket_s) for file in files_now]
        poll.files = [replace(file, cuts=cursor(file.cuts_name) or 0) for file in files]
        if not poll.files and not self._path.exists():
            raise SourceUnavailableError(
                f"There is no event log {self._path}.", hint="Check htcondor.event_log, and that this host may read it."
            )
        poll.left = {file.identity: cursor(file.cursor_name) for file in poll.files}
        poll.has_lost_newest = poll.newest is not None and poll.newest % (1 << _KEY_BITS) not in map(_key, poll.files)
        try:
            for place, file in enumerate(poll.files):
                yield from self._hole_before(poll, place)
                if file is poll.files[-1] and not self._is_loss_open(poll):
                    yield from self._newest(poll)
                yield from self._read(poll, place)
        except ChangedMeanwhileError:
            return  # what was not read now is read at the next poll, and so are the marks
        if poll.files and not self._is_loss_open(poll):
            yield from self._coverage(poll)

    def _is_loss_open(self, poll: _Poll) -> bool:
        """Whether the newest file is gone and no new one has begun: nobody knows yet how much is lost."""
        return poll.has_lost_newest and poll.files[-1].path != self._path

    def _read(self, poll: _Poll, place: int) -> Iterator[CountedSpan]:
        file, now = poll.files[place], poll.now
        position = poll.left[file.identity] or 0
        if file.size_bytes == position:
            return
        if file.size_bytes is not None and file.size_bytes < position:
            yield from self._cut(poll, file)
            return
        if place and position < LOOK_BACK_BYTES:
            self._reader.warm_up_once(poll.files[place - 1], now)
        is_over = place + 1 < len(poll.files) and now - file.modified > self._settle
        self._reader.is_rewritten = False
        yield from self._reader.spans(file, position, now, is_over=is_over)
        if self._reader.is_rewritten:
            yield from self._hole(poll, poll.seen or now, now, _CUT)

    def _cut(self, poll: _Poll, file: LogFile) -> Iterator[CountedSpan]:
        """A file that is shorter than what was read of it: what it holds now may have been counted, what follows has not.

        In this order, killed after any of the three, nothing is counted twice.
        """
        self.notes.append(f"{file.path.name} is shorter than what was read of it; it is read on from its end of now.")
        size, again = file.size_bytes or 0, replace(file, cuts=file.cuts + 1)
        yield CountedSpan(poll.now, poll.now, no_counts(), Cursor(again.cursor_name, size), additive=True)
        yield from self._hole(poll, poll.seen or poll.now, poll.now, _CUT)
        yield CountedSpan(poll.now, poll.now, no_counts(), Cursor(file.cuts_name, again.cuts), additive=True)

    def _hole_before(self, poll: _Poll, place: int) -> Iterator[CountedSpan]:
        """What is known to be missing before a file, told before the file is read: then no kill can hide it."""
        file = poll.files[place]
        begins = file.first or file.modified
        if poll.seen is not None and begins <= poll.seen:
            return
        if poll.has_lost_newest and begins > poll.newest_at:
            poll.has_lost_newest = False
            # Where nothing was marked yet, it is not known how much of the lost file was read: all of it may be missing.
            yield from self._hole(poll, poll.seen or poll.begins, begins, _GONE)
        elif place and poll.left[file.identity] is None and (lost := _lost_between(poll.files[place - 1], file)):
            yield from self._hole(poll, min(max(poll.files[place - 1].modified, poll.seen or poll.begins), begins), begins, lost)

    def _hole(self, poll: _Poll, start: datetime, end: datetime, why: str) -> Iterator[CountedSpan]:
        """The marks up to a stretch that nobody can have seen, and that stretch; it is seen on from behind it."""
        seen = poll.seen if poll.seen is not None else poll.begins
        coverage = self._reader.coverage(seen, start) if start > seen else no_counts()
        poll.seen = max(bucket_ceil(end, self._reader.bucket_s), seen)
        position = Cursor(self._seen_name, int(poll.seen.timestamp()))
        yield CountedSpan(min(seen, start), end, coverage, position, additive=True, missing=[(start, end, why)], done=0.0)

    def _coverage(self, poll: _Poll) -> Iterator[CountedSpan]:
        """The marks from where they ended last to what is settled."""
        start = poll.seen if poll.seen is not None else poll.files[0].first or self._reader.first or poll.begins
        end = bucket_floor(self._seen_to(poll.files[-1], poll.now), self._reader.bucket_s)
        coverage = self._reader.coverage(start, end) if end > start else no_counts()
        if coverage.height or poll.seen is None:  # that it was looked at is remembered from the first poll on
            reached = max(end, bucket_ceil(start, self._reader.bucket_s))
            position = Cursor(self._seen_name, int(reached.timestamp()))
            yield CountedSpan(start, max(start, end), coverage, position, additive=True, done=1.0)

    def _newest(self, poll: _Poll) -> Iterator[CountedSpan]:
        """Remember which file is the newest, where that is another one than before; it grows with time, as cursors must.

        Told before that file is read: if it is gone at the next poll, whatever ended this one, something may be lost.
        """
        key = _key(poll.files[-1])
        if poll.newest is None or poll.newest % (1 << _KEY_BITS) != key:
            position = (int(poll.now.timestamp()) << _KEY_BITS) | key
            yield CountedSpan(poll.now, poll.now, no_counts(), Cursor(self._newest_name, position), additive=True, done=1.0)

    def _seen_to(self, newest: LogFile, now: datetime) -> datetime:
        """Up to when the log was seen: an event that is being written may be as old as the last one before it."""
        settled = now - self._settle
        if not self._path.exists():  # moved away, or removed while HTCondor writes on: what comes is nowhere to be seen
            settled = min(settled, newest.modified)
        if self._reader.is_torn and newest.modified > settled:
            return min(settled, self._reader.last or settled)
        return settled


@dataclass(slots=True)
class _Poll:
    """One look at the log: how far it was seen, which file was the newest then, and what is there now."""

    seen: datetime | None
    newest: int | None
    now: datetime
    files: list[LogFile] = field(default_factory=list)
    left: dict[str, int | None] = field(default_factory=dict)
    has_lost_newest: bool = False

    @property
    def begins(self) -> datetime:
        """When the oldest file begins, as far as that can be told."""
        return self.files[0].first or self.files[0].modified

    @property
    def newest_at(self) -> datetime:
        """When the newest file was first found."""
        return datetime.fromtimestamp((self.newest or 0) >> _KEY_BITS, UTC)


def _lost_between(earlier: LogFile, later: LogFile) -> str:
    """Why something is missing between two files, "" where nothing is: HTCondor numbers the files of its log at their head."""
    if earlier.sequence is None:
        return ""
    if later.sequence is None:
        return _BEHEADED
    count = later.sequence - earlier.sequence - 1
    return _JUMPED.format(count=count) if count > 0 else ""


def _key(file: LogFile) -> int:
    return int(file.identity[: _KEY_BITS // 4], 16)

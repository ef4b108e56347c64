"""The jobs of an HTCondor event log that grows: each byte is read once, also over rotation and compression.

htcondor.event_log -> FollowedJobs.sources -> JobSource with the jobs that had an event since the last call. What the events tell
of jobs that have not ended is kept in memory. The cursor, committed with the rows, is the place from which a process that was
killed has to read again to know the same: the begin of the oldest job that had not ended. Rows are keyed by job, so that whatever
is read twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.sources.contract import Chunk, JobSource
from stormpetrel.sources.htcondor.event_jobs import COLUMNS, JobMerger, Place
from stormpetrel.sources.htcondor.event_log import Calendar, begins_event, end_of_last_event, events_in_text
from stormpetrel.sources.htcondor.log_files import TEXT, ChangedMeanwhileError, LogFile, log_files
from stormpetrel.sources.htcondor.scan import year_of_first_date
from stormpetrel.sources.job_rows import JobBatch
from stormpetrel.sources.lines import Refused, shown

_SLICE_BYTES: Final = 1 << 20  # the begin of a job is known to this length
_MOST_EVENT_BYTES: Final = 8 << 20
_MOST_ENDED: Final = 1000  # ended jobs held for the 028 that follows the end; each holds the cursor back
_CURSOR: Final = "condor-jobs:"


class FollowedJobs:
    """The EVENT_LOG of an access point, or any other log that grows, as job rows."""

    def __init__(self, settings: Settings) -> None:
        self._path = Path(settings.htcondor.event_log)
        self._zone, self._cluster = settings.site.time_zone, settings.site.cluster
        self._progress: _Progress | None = None  # None: begin at the cursor
        self._seen: tuple[int, int, int] | None = None  # inode, size and time of the log when it was last read

    def sources(self, cursor: CursorOf, now: datetime) -> Iterator[JobSource]:
        """What is new in the log, as one source; nothing where the log has not changed.

        The generator has to be resumed once the source is committed. Where that failed, the next call begins at the cursor.
        """
        try:
            facts = self._path.stat()
        except OSError as error:
            raise SourceFormatError(
                f"The event log {self._path} cannot be read: {error.strerror}.", hint="Check htcondor.event_log."
            ) from error
        seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if self._progress is not None and seen == self._seen:
            return
        files = log_files(self._path, time_zone=self._zone, now=now)
        progress, self._progress = self._progress or _resumed(files, cursor, self._cluster), None
        if files:
            source = NewEvents(self._path, files, progress, self._zone)
            yield source
            if source.has_changed:
                return
        self._progress, self._seen = progress, seen


@dataclass(slots=True)
class _Progress:
    """How far each file was read, by its identity, and what is known of the jobs that have not ended."""

    batch: JobBatch
    merger: JobMerger
    positions: dict[str, int] = field(default_factory=dict)  # behind the last whole event
    lines: dict[str, int] = field(default_factory=dict)  # read so far, from where the reading began
    calendars: dict[str, Calendar] = field(default_factory=dict)
    finished: set[tuple[str, datetime]] = field(default_factory=set)  # files, as they were modified, that hold nothing more


class NewEvents:
    """What came since the last call, in all the files of a log, oldest first."""

    format = "condor-events"

    def __init__(self, path: Path, files: list[LogFile], progress: _Progress, time_zone: str) -> None:
        self.name, self.as_of = str(path), files[-1].modified
        self.size_bytes = 0
        self.notes: list[str] = []
        self.cursor: Cursor | None = None
        self.has_changed = False  # a file was rotated, truncated or rewritten meanwhile: it is read again from the cursor
        self._files, self._progress, self._zone = files, progress, time_zone

    def fields(self) -> frozenset[str]:
        """The job columns that events can fill."""
        return COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The jobs that had an event; a job that goes on comes again with its next event."""
        batch, merger = self._progress.batch, self._progress.merger
        try:
            for file in self._files:
                for _ in self._read(file, is_last=file is self._files[-1]):
                    if batch.is_full:
                        yield batch.chunk(0)
        except ChangedMeanwhileError as error:
            self.has_changed = True
            self.notes.append(f"{error}; what is left is read at the next call.")
        for _ in merger.report_touched():
            if batch.is_full:
                yield batch.chunk(0)
        if merger.without_submit:
            self.notes.append(f"{merger.without_submit:,} rows are left out: the submission of their jobs is not in the log.")
            merger.without_submit = 0
        yield batch.chunk(0)
        self.cursor = None if self.has_changed else self._place_to_resume()

    def _read(self, file: LogFile, *, is_last: bool) -> Iterator[None]:
        progress, key = self._progress, file.identity
        position = progress.positions.setdefault(key, 0)
        if (key, file.modified) in progress.finished or file.size_bytes == position:
            return
        if file.format != TEXT:
            raise SourceFormatError(
                f"{file.path} is an event log in XML or JSON, which has counts only.",
                hint="Jobs are read from classic event logs.",
            )
        if file.size_bytes is not None and file.size_bytes < position:
            raise ChangedMeanwhileError(f"{file.path.name} is shorter than what was read of it")
        rest = b""
        for piece in _slices(file, position):
            data = rest + piece
            end = end_of_last_event(data)
            if not end and len(data) > _MOST_EVENT_BYTES:
                end = len(data) - _SLICE_BYTES  # its end, with whatever is left of it, is refused as no event
                progress.batch.refuse_all([self._too_long(key, data)])
            elif end:
                self._take(file, data[:end])
            progress.positions[key] += end
            rest = data[end:]
            yield
        if not is_last:
            if rest.strip():
                self._take(file, rest)
            progress.finished.add((key, file.modified))

    def _take(self, file: LogFile, data: bytes) -> None:
        progress, key = self._progress, file.identity
        place, line = (key, progress.positions[key]), progress.lines.get(key, 1)
        for event in events_in_text(data, first_line=line, calendar=self._calendar(file), zone=ZoneInfo(self._zone)):
            if isinstance(event, tuple):
                progress.batch.refuse_all([event])
            else:
                progress.merger.take(event, place)
        progress.lines[key] = line + data.count(b"\n")

    def _calendar(self, file: LogFile) -> Calendar:
        """The years of dates that have none: of the file from where it was begun."""
        calendars, start = self._progress.calendars, self._progress.positions[file.identity]
        if file.identity not in calendars:
            samples = file.samples(start)
            calendars[file.identity] = Calendar(year_of_first_date(samples, as_of=file.modified, time_zone=self._zone))
        return calendars[file.identity]

    def _too_long(self, key: str, data: bytes) -> Refused:
        reason = f"the event is longer than {_MOST_EVENT_BYTES:,} bytes"
        return (self._progress.lines.get(key, 1), "record_too_long", reason, shown(data))

    def _place_to_resume(self) -> Cursor:
        """The begin of the oldest job that is still held; behind everything that was read where there is none."""
        order = {file.identity: number for number, file in enumerate(self._files)}
        last = self._files[-1].identity
        places: list[Place] = [(last, self._progress.positions[last])]
        places += [place for place in self._progress.merger.begins() if place[0] in order]
        key, position = min(places, key=lambda place: (order[place[0]], place[1]))
        return Cursor(_CURSOR + key, position)


def _resumed(files: list[LogFile], cursor: CursorOf, cluster: str) -> _Progress:
    """Begin at the cursor, which is that of the newest file that has one; files before it have been read."""
    batch = JobBatch()
    progress = _Progress(batch, JobMerger(batch, cluster, followed=True, most_ended=_MOST_ENDED))
    for number in range(len(files) - 1, -1, -1):
        position = cursor(_CURSOR + files[number].identity)
        if position is not None:
            progress.positions[files[number].identity] = position if _is_begin(files[number], position) else 0
            progress.finished = {(file.identity, file.modified) for file in files[:number]}
            break
    return progress


def _is_begin(file: LogFile, position: int) -> bool:
    """Whether an event begins at a position, or will: a file that was cut and has grown again is read from its beginning."""
    if file.size_bytes is None or position in (0, file.size_bytes):
        return True
    if position > file.size_bytes:
        return False
    with file.path.open("rb") as raw:
        raw.seek(position)
        data = raw.read(_SLICE_BYTES)
    return begins_event(data) or b"\n" not in data


def _slices(file: LogFile, start: int) -> Iterator[bytes]:
    for piece in file.pieces(start):
        yield from (piece[at : at + _SLICE_BYTES] for at in range(0, len(piece), _SLICE_BYTES))

"""The files of one HTCondor event log: which there are, which content each has, and how it is read on.

path of EVENT_LOG -> log_files -> LogFile, oldest first. A file is known by its content, not by its name or inode: a log that is
rotated, compressed or copied goes on where it was left, and no copy is read twice.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG
from typing import IO, Final

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.htcondor.scan import PIECE_BYTES, TextScanner
from stormpetrel.sources.lines import BrokenOffError, LineFile, cannot_read

_HEAD_BYTES: Final = 64 * 1024
_MOST_HEAD_BYTES: Final = 4 << 20
_SAMPLE_EVERY: Final = 4 << 20
_LAST_BYTES: Final = 1 << 20
_FIRST_EVENT: Final = re.compile(rb"\A.*?^\.\.\.[ \t\r]*\n", re.MULTILINE | re.DOTALL)
_FIRST_XML: Final = re.compile(rb"\A\s*<.*?</c>", re.DOTALL)
_FIRST_JSON: Final = re.compile(rb"\A\s*\{.*?\}[ \t\r]*\n", re.DOTALL)
# HTCondor writes the counters of this line anew when it rotates the log; these two say for good which file it is.
_GLOBAL: Final = re.compile(rb"Global JobLog:.*? id=(\S+) sequence=(\d{1,9})\b")
_HEADER: Final = re.compile(rb"^\d{3} \(-?\d+\.-?\d+\.-?\d+\) \d\d", re.MULTILINE)
_SUFFIX: Final = re.compile(r"(?:\.(?:old|\d{1,6})|-\d{8}(?:-?\d{1,10})?)?(?:\.gz)?")
_GZIP: Final = b"\x1f\x8b"
_SLACK: Final = timedelta(days=1)
TEXT, OTHER = "text", "other"
HOUR_S: Final = 3600


def cursor_of(name: str, bucket_s: int) -> str:
    """The name of a cursor: buckets of another length than an hour are counts of their own, and read from the beginning."""
    return name if bucket_s == HOUR_S else f"{name} per {bucket_s // 60} min"


class ChangedMeanwhileError(Exception):
    """A file was rotated or truncated between two polls at it; the next poll sees it as it is."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log that holds at least one whole event."""

    path: Path
    identity: str  # digest of its first event
    sequence: int | None  # of HTCondor's own rotation
    first: datetime | None  # time of its first event, where that can be read
    modified: datetime
    size_bytes: int | None  # None where it is compressed
    format: str  # TEXT, or OTHER (XML, JSON)
    bucket_s: int = HOUR_S  # what is read of it is counted in buckets of this length
    cuts: int = 0  # how often it was found to be shorter than what was read of it; each time it is read on from a new beginning

    @property
    def cursor_name(self) -> str:
        """Under which name the store keeps how far it was read."""
        return cursor_of(f"condor:{self.identity}" + (f"/{self.cuts}" if self.cuts else ""), self.bucket_s)

    @property
    def cuts_name(self) -> str:
        """Under which name the store keeps how often it was cut."""
        return cursor_of(f"condor-cuts:{self.identity}", self.bucket_s)

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        """The content (decompressed) from a position on; ChangedMeanwhileError where it is another one by now."""
        if self.size_bytes is None:
            yield from self._unzipped(start)
            return
        try:
            with self.path.open("rb", buffering=0) as raw:
                self._check(raw)
                raw.seek(start)
                while piece := raw.read(PIECE_BYTES):
                    yield piece
                self._check(raw)
        except OSError as error:
            raise ChangedMeanwhileError(str(error)) from error

    def samples(self, start: int = 0) -> Iterator[bytes]:
        """Parts of the content from a position on: some of every stretch, and the first and the last as a whole."""
        if self.size_bytes is None:
            last = b""
            for piece in self.pieces(start):
                yield from (piece[at : at + _HEAD_BYTES] for at in range(0, len(piece), _SAMPLE_EVERY))
                last = (last + piece)[-_LAST_BYTES:]
            yield last
            return
        try:
            with self.path.open("rb", buffering=0) as raw:
                for at in range(start, self.size_bytes, _SAMPLE_EVERY):
                    raw.seek(at)
                    yield raw.read(_HEAD_BYTES)
                raw.seek(max(start, self.size_bytes - _LAST_BYTES))
                yield raw.read(_LAST_BYTES)
        except OSError as error:
            raise ChangedMeanwhileError(str(error)) from error

    def _check(self, raw: IO[bytes]) -> None:
        raw.seek(0)
        event = _first_event(raw.read(_HEAD_BYTES)) or _first_event(_longer(raw))
        if not event or _identity(event) != self.identity:
            raise ChangedMeanwhileError(f"{self.path} is another file now")

    def _unzipped(self, start: int) -> Iterator[bytes]:
        skip = start
        try:
            for piece, _ in LineFile(self.path).pieces(PIECE_BYTES // 2):
                text = piece[skip:]
                skip = max(0, skip - len(piece))
                for begin in range(0, len(text), PIECE_BYTES):
                    yield text[begin : begin + PIECE_BYTES]
        except BrokenOffError:
            return


def log_file(path: Path, *, time_zone: str, now: datetime) -> LogFile | None:
    """What a file is; None where it holds no whole event yet. SourceFormatError where it is no event log."""
    try:
        stat = path.stat()
        if not S_ISREG(stat.st_mode):
            raise SourceFormatError(f"{path} is no file.", hint="Name an event log of HTCondor.")
        with path.open("rb") as raw:
            is_plain = raw.read(2) != _GZIP
            raw.seek(0)
            head = raw.read(_HEAD_BYTES) if is_plain else LineFile(path).head(_MOST_HEAD_BYTES)
            event = _first_event(head) or (_first_event(_longer(raw)) if is_plain else None)
    except OSError as error:
        raise cannot_read(path, error) from error
    if not event:
        if head.strip() and not _may_be_log(head):
            raise _no_log(path)
        return None
    kind = OTHER if event.lstrip().startswith((b"<", b"{")) else TEXT
    if kind == TEXT and not _HEADER.search(head):
        raise _no_log(path)
    named = _GLOBAL.search(event)
    modified = datetime.fromtimestamp(stat.st_mtime_ns // 1000 / 1e6, UTC)
    first = _first_time(event, modified, time_zone, now) if kind == TEXT else None
    size = stat.st_size if is_plain else None
    return LogFile(path, _identity(event), int(named[2]) if named else None, first, modified, size, kind)


def log_files(path: Path, *, time_zone: str, now: datetime) -> list[LogFile]:
    """A log and what was rotated away of it, oldest first; of several files with the same content the longest."""
    by_identity: dict[str, LogFile] = {}
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent) if entry.name.startswith(path.name))
    except OSError as error:
        raise cannot_read(path.parent, error) from error
    for name in names:
        if not _SUFFIX.fullmatch(name.removeprefix(path.name)):
            continue
        try:
            file = log_file(path.parent / name, time_zone=time_zone, now=now)
        except FileNotFoundError:
            continue
        if file and (file.identity not in by_identity or _length(file) > _length(by_identity[file.identity])):
            by_identity[file.identity] = file
    files = list(by_identity.values())
    if all(file.sequence is not None for file in files):
        return sorted(files, key=lambda file: file.sequence or 0)
    return sorted(files, key=lambda file: (file.first or file.modified, file.path == path))


def _length(file: LogFile) -> int:
    """Plain files go before compressed ones, which are their copies."""
    return -1 if file.size_bytes is None else file.size_bytes


def _first_event(head: bytes) -> bytes | None:
    for pattern in (_FIRST_XML, _FIRST_JSON) if head.lstrip().startswith((b"<", b"{")) else (_FIRST_EVENT,):
        if match := pattern.match(head):
            return match[0]
    return None


def _longer(raw: IO[bytes]) -> bytes:
    raw.seek(0)
    return raw.read(_MOST_HEAD_BYTES)


def _may_be_log(head: bytes) -> bool:
    return bool(_HEADER.search(head)) or head.lstrip().startswith((b"<", b"{")) or b"\n" not in head


def _no_log(path: Path) -> SourceFormatError:
    return SourceFormatError(
        f"{path} is not a job event log of HTCondor: no line of its beginning is NNN (JOB) DATE TIME ….",
        hint="Name the log of the submit file or EVENT_LOG.",
    )


def _identity(event: bytes) -> str:
    named = _GLOBAL.search(event)
    return hashlib.sha256(b" ".join(named.groups()) if named else event).hexdigest()[:32]


def _first_time(event: bytes, modified: datetime, time_zone: str, now: datetime) -> datetime | None:
    """When the first event happened; a date without a year is the newest that is not later than the file."""
    scanner = TextScanner(time_zone=time_zone, fast_failure_s=0, now=min(now, modified + _SLACK), most_jobs=16)
    for year in (modified + _SLACK).year, (modified + _SLACK).year - 1:
        scanner.begin_file(year=year)
        first = scanner.feed(event[-PIECE_BYTES:]).first
        if first:
            return first
    return None

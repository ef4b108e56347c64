"""Job rows made one at a time: typed values out of single fields, and rows waiting to become a chunk.

text or number -> count, seconds, bytes, UTC time (None where it is none) · rows -> JobBatch -> Chunk.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeVar

from stormpetrel.records.quality import rejects
from stormpetrel.records.times import EARLIEST, LATEST
from stormpetrel.records.units import NO_LIMIT, NO_VALUE
from stormpetrel.records.unread import safe_text
from stormpetrel.sources.contract import Chunk, chunk_of_jobs
from stormpetrel.sources.lines import Refused, shown

ROWS_PER_CHUNK: Final = 10_000
MIB: Final = 1024 * 1024

_LARGEST: Final = 2**62  # what a column of 64 bits holds, with room to spare
_LARGEST_SMALL: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_REAL: Final = re.compile(r"[+-]?\d{1,19}(?:\.\d{0,19})?", re.ASCII)
_CLOCK: Final = re.compile(r"(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,9}):(\d{1,9}(?:\.\d{0,9})?)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{0,9})?)([kmgtpe]?)([bw]?)", re.ASCII | re.IGNORECASE)
_POWERS: Final = "kmgtpe"
_WORD_BYTES: Final = 8
_EARLIEST_S, _LATEST_S = EARLIEST.timestamp(), LATEST.timestamp()


_NOTHING: Final = frozenset({*NO_VALUE, *NO_LIMIT, "undefined", "UNDEFINED"})  # the last two are a ClassAd's
Raw = TypeVar("Raw")
Value = TypeVar("Value")


class FieldReader:
    """Reads the fields of one record, and remembers by column what says something and cannot be read."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}

    def read(self, column: str, value: Raw, parse: Callable[[Raw], Value | None]) -> Value | None:
        """The value of a column; None where there is none, or where it cannot be read."""
        parsed = parse(value)
        if parsed is None and has_value(value):
            self.note(column, value)
        return parsed

    def note(self, column: str, value: object) -> None:
        """Remember a value that cannot be read; of several for one column the first."""
        self.unread.setdefault(column, safe_text(value))


def has_value(value: object) -> bool:
    """Whether a field says something: it is there, and holds none of the words for nothing."""
    return value is not None and not (isinstance(value, str) and value in _NOTHING)


class JobBatch:
    """Rows and refusals that wait to become a chunk: every record read is a row, refused, or merged into a row."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []
        self._lines: list[int] = []
        self._refused: list[Refused] = []
        self._folded = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to make a chunk: rows, refusals and folded records all take their time."""
        return max(len(self._rows), len(self._refused), self._folded // 4) >= ROWS_PER_CHUNK

    def add(self, row: dict[str, object], line: int) -> None:
        """A row, and the line it stands for."""
        self._rows.append(row)
        self._lines.append(line)

    def refuse(self, line: int, rule: str, reason: str, raw: str) -> None:
        """A record that is no job."""
        self.refuse_all([(line, rule, reason, shown(raw.encode("utf-8", "replace")))])

    def refuse_all(self, refused: Iterable[Refused]) -> None:
        """Records that were refused elsewhere."""
        self._refused.extend(refused)

    def count_merged(self) -> None:
        """A record that adds to a row, or to nothing."""
        self._folded += 1

    def chunk(self, bytes_done: int) -> Chunk:
        """Everything so far as a chunk; the batch is empty again."""
        chunk = chunk_of_jobs(
            self._rows,
            self._lines,
            read=len(self._rows) + len(self._refused) + self._folded,
            rejects=rejects(self._refused),
            folded=self._folded,
            bytes_done=bytes_done,
        )
        self._rows, self._lines, self._refused, self._folded = [], [], [], 0
        return chunk


def whole(value: object) -> int | None:
    """A whole number, out of a number or its digits; None for anything else and for what no column can hold."""
    if isinstance(value, str):
        value = int(value) if _WHOLE.fullmatch(value) else None
    elif isinstance(value, float):
        value = int(value) if math.isfinite(value) and value.is_integer() else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_LARGEST < value < _LARGEST else None


def small(value: object) -> int | None:
    """A whole number of 32 bits, as exit codes and counters are."""
    number = whole(value)
    return number if number is not None and abs(number) <= _LARGEST_SMALL else None


def real(value: object) -> float | None:
    """A number that is finite, out of a number or its digits."""
    if isinstance(value, str):
        return float(value) if _REAL.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -_LARGEST < value < _LARGEST else None


def times(number: int | float | None, factor: int | float | None) -> int | None:
    """The product as a whole number, where both are known and it fits into a column."""
    if number is None or factor is None:
        return None
    product = round(number * factor)
    return product if abs(product) < _LARGEST else None


def unix_time(value: object) -> datetime | None:
    """Unix seconds as UTC; None for zero and for what can be no time."""
    seconds = real(value)
    if seconds is None or not _EARLIEST_S <= seconds < _LATEST_S:
        return None
    return datetime.fromtimestamp(seconds, UTC)


@lru_cache(maxsize=8192)  # limits, sizes and spans repeat
def clock_s(value: str | None) -> float | None:
    """`HH:MM:SS`, `MM:SS`, `DD:HH:MM:SS` or plain seconds (Torque 5) as seconds."""
    if value is None:
        return None
    match = _CLOCK.fullmatch(value)
    if not match:
        return real(value)
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400.0 + int(hours or 0) * 3600.0 + int(minutes) * 60.0 + float(seconds)


@lru_cache(maxsize=8192)
def pbs_size_bytes(value: str | None) -> int | None:
    """A size of PBS (`100mb`, `1294440kb`, `2gw`: words of eight bytes) as bytes."""
    match = _SIZE.fullmatch(value) if value else None
    if not match:
        return None
    number, unit, word = match.groups()
    power = _POWERS.index(unit.lower()) + 1 if unit else 0
    return times(float(number) * (_WORD_BYTES if word in ("w", "W") else 1), 1024**power)


def text(value: object) -> str | None:
    """Text that can be stored; None where it is empty or none. Half of a surrogate pair (JSON allows it) becomes `?`."""
    if not isinstance(value, str) or not value:
        return None
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def span_s(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds from start to end, where both are known and in order."""
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()

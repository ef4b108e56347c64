"""The server's log, which strangers can make speak: a line for each event, plain text, and errors of one kind once a minute.

log records -> lines on a stream. The first error of a kind comes with its traceback; what follows within a minute is counted.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TextIO

from stormpetrel.watch.logs import one_line

_EVERY_S: Final = 60.0
_LONGEST_LINE: Final = 1_000
_MOST_TRACE_LINES: Final = 60
_MOST_KINDS: Final = 200
_MOST_WORDINGS: Final = 20  # of one message, within a minute: what follows is counted together


class LineFormatter(logging.Formatter):
    """Time in UTC, level, message. Line ends and terminal codes in it are written out; lines of a traceback begin with a bar."""

    def __init__(self) -> None:
        super().__init__("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        lines = [_cut(self.formatMessage(record))]
        if record.exc_info and record.exc_info[1] is not None:
            lines += [f"  | {_cut(line)}" for line in _traceback(record.exc_info[1])]
        return "\n".join(lines)


def _cut(text: str) -> str:
    plain = one_line(text[:_LONGEST_LINE])
    return plain if len(text) <= _LONGEST_LINE else f"{plain}… ({len(text):,} characters)"


def _traceback(error: BaseException) -> list[str]:
    """The lines of a traceback; of a very long one the beginning and the end."""
    lines = [line for block in traceback.format_exception(error) for line in block.rstrip("\n").split("\n")]
    if len(lines) <= _MOST_TRACE_LINES:
        return lines
    half = _MOST_TRACE_LINES // 2
    return [*lines[:half], f"… {len(lines) - 2 * half:,} lines …", *lines[-half:]]


@dataclass(slots=True)
class _Repeated:
    since_s: float
    line: str
    times: int = 0  # besides the first


class MergedLog(logging.StreamHandler[TextIO]):
    """Writes what happened; warnings and errors that repeat are counted, and reported once a minute."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repeated: dict[Hashable, _Repeated] = {}
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        self._log_counts()
        if record.levelno < logging.WARNING or self._is_first(record):
            super().emit(record)

    def close(self) -> None:
        """Tell what was counted since the last time."""
        self._log_counts(all_of_them=True)
        super().close()

    def _is_first(self, record: logging.LogRecord) -> bool:
        kind = self._kind(record)
        before = self._repeated.get(kind)
        if before is None:
            self._repeated[kind] = _Repeated(self._clock(), record.getMessage())
            return True
        before.times += 1
        return False

    def _kind(self, record: logging.LogRecord) -> Hashable:
        """What makes two records the same: where the error was raised, or the words as far as they are few."""
        if record.exc_info and record.exc_info[1] is not None:
            kind: Hashable = (type(record.exc_info[1]), _place(record.exc_info[1].__traceback__))
        else:
            alike = [entry for entry in self._repeated if isinstance(entry, tuple) and entry[0] == record.msg]
            kind = (record.msg, record.getMessage() if len(alike) < _MOST_WORDINGS else "")
        return kind if kind in self._repeated or len(self._repeated) < _MOST_KINDS else "others"

    def _log_counts(self, *, all_of_them: bool = False) -> None:
        now = self._clock()
        for kind, repeated in list(self._repeated.items()):
            if not all_of_them and now - repeated.since_s < _EVERY_S:
                continue
            if repeated.times:
                self._write(f"{repeated.times:,} more times in {now - repeated.since_s:.0f} s: {repeated.line}")
                repeated.since_s, repeated.times = now, 0
            else:
                del self._repeated[kind]

    def _write(self, text: str) -> None:
        record: dict[str, Any] = {"msg": "%s", "args": (text,), "levelname": "WARNING", "levelno": logging.WARNING}
        super().emit(logging.makeLogRecord(record))


def _place(trace: TracebackType | None) -> tuple[str, int] | None:
    """File and line in which an error was raised."""
    innermost = None
    while trace is not None:
        innermost, trace = (trace.tb_frame.f_code.co_filename, trace.tb_lineno), trace.tb_next
    return innermost

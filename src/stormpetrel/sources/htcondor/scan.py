"""The fast reader of classic HTCondor event logs: bytes in the order of the file -> EventBatch.

Pieces of any cut -> TextScanner.feed -> EventBatch, up to the last whole event; the rest waits for the next piece. The work is
done by `scan_kernel` and `pair_kernel`; here are the buffer, the names, and the year of dates that have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from stormpetrel.records.events import BAD_TIME, FUTURE, FUTURE_SLACK, PLACES
from stormpetrel.sources.htcondor import scan_state
from stormpetrel.sources.htcondor.batches import EventBatch, moment_of
from stormpetrel.sources.htcondor.event_log import Calendar
from stormpetrel.sources.htcondor.pair_kernel import intern, pair
from stormpetrel.sources.htcondor.scan_kernel import scan
from stormpetrel.sources.htcondor.scan_state import (
    AT,
    EVENT_SLOTS,
    FIRST_US,
    LAST_US,
    LATEST_US,
    MARK,
    MONTH,
    MOST_EVENT_BYTES,
    MOST_JOBS,
    MOST_NAMES,
    NOWHERE,
    PLACES_AT,
    READ,
    ROW_NUMBER,
    ROW_TIME_US,
    TALLIES,
    TOO_LONG,
    USED,
    YEAR,
    Bytes,
    Ints,
    names_in,
    new_clock,
    new_events,
    new_jobs,
    new_letters,
    new_names,
    new_rows,
)  # fmt: skip  # isort: skip
from stormpetrel.sources.htcondor.vocabulary import host_name

PIECE_BYTES: Final = 16 << 20  # a third off, next to 4 MiB: counting has its price per piece
_ROOM: Final = 256  # newlines behind the text, so that the kernel may look ahead
_SHORTEST_EVENT: Final = 28
_SLACK: Final = timedelta(days=1)
_LEGACY: Final = re.compile(rb"^\d{3} \([\d.-]+\) (\d\d)/(\d\d) \d\d:", re.MULTILINE)
_REASONS: Final = {
    scan_state.TRUNCATED: "truncated_record",
    scan_state.BAD_RECORD: "bad_record",
    scan_state.BAD_TIME: BAD_TIME,
    scan_state.NUL_BYTE: "nul_byte",
    scan_state.TOO_LONG: "record_too_long",
    scan_state.FUTURE: FUTURE,
}
_HOST: Final = PLACES.index("submit_host")
_FAR: Final = 2**62


class TextScanner:
    """Reads on where the last piece ended. It remembers the jobs that run, whichever file their start stood in."""

    def __init__(
        self, *, time_zone: str, fast_failure_s: float, now: datetime, submit_host: str = "", most_jobs: int = MOST_JOBS
    ) -> None:
        latest_us = int((now + FUTURE_SLACK).timestamp() * 1e6)
        self._clock = new_clock(time_zone, year=now.year, latest_us=latest_us)
        most = PIECE_BYTES // _SHORTEST_EVENT  # memory that is not used is not taken
        self._jobs, self._events, self._rows = new_jobs(most_jobs), new_events(most), new_rows(most)
        self._index, self._letters = new_names(), new_letters()
        self._fresh = np.zeros(EVENT_SLOTS, dtype=np.int64)
        self._fast_us = int(fast_failure_s * 1e6)
        self._submit_host = submit_host
        self._names: list[str] = []
        self._seen_rows = 0
        self._buffer: Bytes = np.full((PIECE_BYTES + MOST_EVENT_BYTES + 2 * _ROOM) // 8 * 8, 10, dtype=np.uint8)
        self._held = self._problem = 0
        self.position = 0  # bytes of the file up to the end of the last whole event
        self._ahead = 0  # bytes behind it that were given up, as part of an event that is too long

    def begin_file(self, position: int = 0, *, year: int | None = None, now: datetime | None = None) -> None:
        """Go on with another file, or at another place of it; `year` is that of the first date without one that follows."""
        self._held = self._problem = self._ahead = 0
        self.position = position
        if year is not None:
            self._clock[YEAR], self._clock[MONTH] = year, 0
        if now is not None:
            self._clock[LATEST_US] = int((now + FUTURE_SLACK).timestamp() * 1e6)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of an event that is not whole yet have been read."""
        return self._held + self._ahead

    def feed(self, piece: bytes | memoryview) -> EventBatch:
        """The events that a piece (of at most PIECE_BYTES) completes. The arrays hold until the next call."""
        size = self._held + len(piece)
        self._buffer[self._held : size] = np.frombuffer(piece, dtype=np.uint8)
        self._buffer[size : size + _ROOM] = 10
        tally = np.zeros(TALLIES, dtype=np.int64)
        tally[FIRST_US], tally[LAST_US] = _FAR, -_FAR
        if int(self._index[USED]) > MOST_NAMES // 2:
            self._forget_names()
        events, settled, problem = scan(
            self._buffer, self._buffer.view(np.uint64), size, self._problem, self._clock, self._events, tally, self._fresh
        )
        rows = pair(
            self._buffer, self._events, events, self._jobs, self._index, self._letters, self._rows, self._seen_rows, self._fast_us
        )
        self._seen_rows += rows
        self._keep_rest(settled, size, problem)
        return self._batch(rows, tally)

    def _keep_rest(self, settled: int, size: int, problem: int) -> None:
        if settled:
            self.position += self._ahead + settled
            self._ahead = 0
            self._problem = 0  # what the rest is wrong about will be found again with it
        self._held = size - settled
        if self._held > MOST_EVENT_BYTES:
            self._ahead += self._held
            self._held, self._problem = 0, problem or TOO_LONG
        else:
            self._buffer[: self._held] = self._buffer[settled:size].copy()

    def _batch(self, rows: int, tally: Ints) -> EventBatch:
        new = names_in(self._index, self._letters, len(self._names))
        self._names += [host_name(name.decode("utf-8", "backslashreplace")) for name in new]
        table, names = self._rows[:rows], self._names
        places = table[:, PLACES_AT : PLACES_AT + 4]
        if self._submit_host:  # of events that do not tell theirs
            names = [*names, self._submit_host]
            host = places[:, _HOST]
            host[host == NOWHERE] = len(names) - 1
        return EventBatch(
            table[:, ROW_NUMBER],
            table[:, ROW_TIME_US],
            places,
            table[:, MARK],
            names,
            read=int(tally[READ]),
            quarantined={name: int(tally[reason]) for reason, name in _REASONS.items() if tally[reason]},
            first=moment_of(int(tally[FIRST_US])) if tally[READ] else None,
            last=moment_of(int(tally[LAST_US])) if tally[READ] else None,
        )

    def _forget_names(self) -> None:
        """Keep the names of jobs that are known, and make room for others."""
        places = self._jobs[:, AT : AT + 4]
        kept = np.unique(places[places >= 0]).tolist()
        known = names_in(self._index, self._letters)
        index, letters, ids = new_names(), new_letters(), np.full(len(known) + 1, NOWHERE, dtype=np.int64)  # the last is for -1
        text = np.frombuffer(b"".join(known[name] for name in kept) + bytes(8), dtype=np.uint8)
        at = 0
        for name in kept:
            ids[name] = intern(text, at, at + len(known[name]), index, letters)
            at += len(known[name])
        self._jobs[:, AT : AT + 4] = ids[places]
        self._index, self._letters, self._names = index, letters, []


def year_of_first_date(samples: Iterable[bytes], *, as_of: datetime, time_zone: str) -> int:
    """The year of the first date without one, if the last date is the newest that does not lie in the future of the file.

    The rule of `event_log.Calendar`; the current year where all dates have theirs. Samples of the log are enough, if the first
    and the last part of it are among them: a year does not pass between two.
    """
    limit = (as_of + _SLACK).astimezone(ZoneInfo(time_zone))
    calendar, last = Calendar(0), (1, 1)
    for number, sample in enumerate(samples):
        dates = _LEGACY.findall(sample)
        if number == 0 and not dates:
            return limit.year
        for month, day in dates:
            date = int(month), int(day)
            if 1 <= date[0] <= 12 and calendar.year_of(*date) == calendar.year:
                last = date
    return limit.year - (last > (limit.month, limit.day)) - calendar.year

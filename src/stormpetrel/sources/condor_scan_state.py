"""What the compiled scanner of event logs knows between two buffers: the clock, the jobs that run, the names it has seen.

Arrays of fixed size, so that a log of any length, and a hostile one, needs the same memory. They carry nothing to disk.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Ids = NDArray[np.int32]

NOWHERE: Final = -1
NEVER: Final = -(2**62)
MOST_JOBS: Final = 1 << 18  # jobs that run at once, and are paired with their end
MOST_NAMES: Final = 1 << 16  # different names per buffer
NAME_BYTES: Final = 8 << 20
# Jobs that were seen lately, (slots, JOB_FIELDS): key, when seen last (NEVER: the slot is free), begin of the run (NEVER: it does
# not run), bit n: an event n was seen and no 028 that repeats it, number of its last row since the reading began, and the ids of
# its four places. A job has one of sixteen slots; where all are taken, the one unseen for longest gives way.
KEY, SEEN_US, START_US, AWAITED, ROW, AT = 0, 1, 2, 3, 4, 5
JOB_FIELDS: Final = 9
_EPOCH: Final = datetime(1970, 1, 1)
_MICRO: Final = timedelta(microseconds=1)


class Clock(NamedTuple):
    """What makes a UTC time of the date in a header."""

    calendar: Ints  # (2,) year and month of the last date without a year; the month is 0 before the first
    breaks: Ints  # (stretches,) local µs from which an offset holds, the first far back
    offsets: Ints  # (stretches,) µs that the local clock is ahead of UTC
    stretch: Ints  # (1,) the one that was used last
    day: Ints  # (2,) the date of the last header as a number, and its midnight in local µs
    latest_us: Ints  # (1,) what is later lies in the future


class Strings(NamedTuple):
    """The different names that were seen: an id each. Bounded: where it is full, a new name is not known."""

    ids: Ids  # (table,) -1 where free
    start: Ints  # (ids + 1,) where each begins in `letters`
    letters: Bytes
    used: Ints  # (1,) how many


class Rows(NamedTuple):
    """The events that count, in the order of the log."""

    number: NDArray[np.int16]
    time_us: Ints
    places: Ids  # (rows, 4) ids, NOWHERE where nobody tells
    mark: NDArray[np.uint8]


def new_clock(zone: str, *, year: int, latest_us: int) -> Clock:
    """A clock of a time zone whose first date without a year is of `year`."""
    breaks, offsets = _stretches(zone)
    return Clock(np.array([year, 0]), breaks, offsets, np.zeros(1, dtype=np.int64), np.array([0, NEVER]), np.array([latest_us]))


def new_jobs(slots: int = MOST_JOBS) -> Ints:
    """An empty table; `slots` is a power of two."""
    table = np.full((slots, JOB_FIELDS), NEVER)
    table[:, AT : AT + 4] = NOWHERE
    return table


def new_strings(most: int = MOST_NAMES, letters: int = NAME_BYTES) -> Strings:
    """An empty list of names; `most` is a power of two."""
    return Strings(
        np.full(2 * most, -1, dtype=np.int32),
        np.zeros(most + 1, dtype=np.int64),
        np.empty(letters, dtype=np.uint8),
        np.zeros(1, dtype=np.int64),
    )


def new_rows(most: int) -> Rows:
    """Room for so many rows."""
    return Rows(
        np.empty(most, dtype=np.int16),
        np.empty(most, dtype=np.int64),
        np.empty((most, 4), dtype=np.int32),
        np.empty(most, dtype=np.uint8),
    )


def names_in(strings: Strings, first: int = 0) -> list[bytes]:
    """The names from the id `first` on."""
    edges = strings.start[first : int(strings.used[0]) + 1]
    letters = strings.letters[edges[0] : edges[-1]].tobytes()
    places = (edges - edges[0]).tolist()
    return [letters[begin:end] for begin, end in pairwise(places)]


@lru_cache(maxsize=8)
def _stretches(zone: str) -> tuple[Ints, Ints]:
    """From which local time on the local clock is how far ahead of UTC; an hour shown twice is read as its first pass."""
    place = ZoneInfo(zone)

    def ahead(moment: datetime) -> timedelta:
        return place.utcoffset(moment) or timedelta()

    moment, last = datetime(1980, 1, 1), datetime(2107, 1, 1)
    breaks, offsets = [NEVER], [ahead(moment) // _MICRO]
    while moment < last:
        following = moment + timedelta(days=1)
        if ahead(following) != ahead(moment):
            low, high = moment, following  # the change lies between them
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                low, high = (middle, high) if ahead(middle) == ahead(moment) else (low, middle)
            breaks.append((high.replace(microsecond=0) - _EPOCH) // _MICRO)
            offsets.append(ahead(following) // _MICRO)
        moment = following
    return np.array(breaks), np.array(offsets)

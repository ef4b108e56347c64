"""What the compiled scanner of event logs knows between two buffers: the clock, the jobs that run, the names it has seen.

Arrays of fixed size, so that a log of any length, and a hostile one, needs the same memory. They carry nothing to disk.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Lanes = NDArray[np.uint64]
Ints = NDArray[np.int64]

NOWHERE: Final = -1
NEVER: Final = -(2**62)
MOST_JOBS: Final = 1 << 18  # jobs that run at once, and are paired with their end
MOST_NAMES: Final = 1 << 16  # different names per buffer
NAME_BYTES: Final = 8 << 20

# Plain arrays, which are quicker to hand from function to function than tuples of them.
# The clock: year and month of the last date without a year (month 0 before the first); which stretch of the local time was used
# last; the date of the last header and its local midnight; what is later lies in the future; how many stretches there are, then
# from which local µs on each holds, then how far the local clock is ahead of UTC in each.
YEAR, MONTH, STRETCH, DATE, MIDNIGHT_US, LATEST_US, STRETCHES, BREAKS = 0, 1, 2, 3, 4, 5, 6, 7
# Jobs that were seen lately, (slots, JOB_FIELDS): key, when seen last (NEVER: the slot is free), begin of the run (NEVER: it does
# not run), bit n: an event n was seen and no 028 that repeats it, number of its last row since the reading began, and the ids of
# its four places. A job has one of sixteen slots; where all are taken, the one unseen for longest gives way.
KEY, SEEN_US, START_US, AWAITED, ROW, AT = 0, 1, 2, 3, 4, 5
JOB_FIELDS: Final = 9
# The index of names: how many, where each begins in the letters and where the last ends, then a hash table of ids (-1: free).
# Where there is no room for a new name, it is not known.
USED: Final = 0
# An event as it was read, (EVENT_SLOTS,): number, job, UTC µs, what an 028 tells of (-1: nothing), whether it ended badly; of
# each of its four places where the name begins and ends in the buffer, and how good the name is (-1: there is none).
NUMBER, CLUSTER, PROC, TIME_US, TRIGGER, ENDED_BADLY, BEGIN, END, RANK = 0, 1, 2, 3, 4, 5, 6, 10, 14
EVENT_SLOTS: Final = 18
MOST_EVENT_BYTES: Final = 4 << 20
# What is told of a buffer: events set aside, by reason; time of the first and the last one, and how many were read.
TRUNCATED, BAD_RECORD, BAD_TIME, NUL_BYTE, TOO_LONG, FUTURE, FIRST_US, LAST_US, READ, TALLIES = 1, 2, 3, 4, 5, 6, 8, 9, 10, 12
# A row per event that counts, in the order of the log: number, UTC µs, ids of its four places (NOWHERE: nobody tells), mark.
ROW_NUMBER, ROW_TIME_US, PLACES_AT, MARK = 0, 1, 2, 6
ROW_FIELDS: Final = 7
_EPOCH: Final = datetime(1970, 1, 1)
_MICRO: Final = timedelta(microseconds=1)


def new_clock(zone: str, *, year: int, latest_us: int) -> Ints:
    """A clock of a time zone whose first date without a year is of `year`."""
    breaks, offsets = _stretches(zone)
    return np.concatenate([[year, 0, 0, 0, NEVER, latest_us, breaks.size], breaks, offsets])


def new_jobs(slots: int = MOST_JOBS) -> Ints:
    """An empty table; `slots` is a power of two."""
    table = np.full((slots, JOB_FIELDS), NEVER)
    table[:, AT : AT + 4] = NOWHERE
    return table


def new_names(most: int = MOST_NAMES) -> Ints:
    """An empty index of names; `most` is a power of two."""
    return np.concatenate([np.zeros(most + 2, dtype=np.int64), np.full(2 * most + 1, -1)])


def new_letters() -> Bytes:
    """Room for the names."""
    return np.empty(NAME_BYTES, dtype=np.uint8)


def new_events(most: int) -> Ints:
    """Room for so many events."""
    return np.zeros((most, EVENT_SLOTS), dtype=np.int64)


def new_rows(most: int) -> Ints:
    """Room for so many rows."""
    return np.empty((most, ROW_FIELDS), dtype=np.int64)


def names_in(index: Ints, letters: Bytes, first: int = 0) -> list[bytes]:
    """The names from the id `first` on."""
    edges = index[1 + first : int(index[USED]) + 2]
    text = letters[edges[0] : edges[-1]].tobytes()
    places = (edges - edges[0]).tolist()
    return [text[begin:end] for begin, end in pairwise(places)]


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

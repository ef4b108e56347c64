"""The compiled core of the counting: what each event of a log says -> one row per event that counts.

`pair` goes through the events in the order of the log. It knows the jobs that run (a bounded table), so that an end has the node
of its start, and it tells an event 028 that repeats another event from one that stands alone. Names become numbers. Nothing is
allocated here. One file: numba's cache on disk looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit

from stormpetrel.sources.htcondor.scan_state import (
    AT,
    AWAITED,
    BEGIN,
    CLUSTER,
    END,
    ENDED_BADLY,
    KEY,
    MARK,
    NEVER,
    NOWHERE,
    NUMBER,
    PLACES_AT,
    PROC,
    RANK,
    ROW,
    ROW_NUMBER,
    ROW_TIME_US,
    SEEN_US,
    START_US,
    TIME_US,
    TRIGGER,
    USED,
    Bytes,
    Ints,
)  # fmt: skip  # isort: skip
from stormpetrel.sources.htcondor.vocabulary import AD_INFORMATION, ENDS_RUN, EXECUTE, HOST_IN_TEXT, SUBMIT, TERMINATED

_Function = TypeVar("_Function", bound=Callable[..., object])

_HOST_IN_TEXT: Final = tuple(HOST_IN_TEXT)
SITE, NODE = 0, 3  # as in PLACES
FAILED, FAST = 1, 2  # bits of a row's mark

_AT_SIGN: Final = 64
_LONGEST: Final = 1024  # bytes of a name that are looked at
_PROBES: Final = 16
_MOST_PROBES: Final = 64  # names made to collide must not slow us down
_SEVEN, _STIR = np.uint64(7), np.uint64(0x9E3779B97F4A7C15)


def _compiled(function: _Function) -> _Function:
    """Compile a function of this file, kept on disk; arrays are borrowed, so no references to them are counted."""
    options: dict[str, Any] = {"_nrt": False}  # that took more than half of the time
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy", **options)(function))


@_compiled
def _same(data: Bytes, at: int, stop: int, words: Bytes, first: int, last: int) -> bool:
    """Whether the text from `at` on (to before `stop`) begins with the words from `first` to before `last`."""
    if at + last - first > stop:
        return False
    for place in range(last - first):  # noqa: SIM110
        if data[at + place] != words[first + place]:
            return False
    return True


@_compiled
def intern(data: Bytes, at: int, stop: int, index: Ints, letters: Bytes) -> int:
    """The id of a name; a new one if it has none yet; NOWHERE for an empty name, or where there is no room."""
    stop = min(stop, at + _LONGEST)
    if stop <= at:
        return NOWHERE
    prime = np.uint64(1_099_511_628_211)
    even, odd = np.uint64(14_695_981_039_346_656_037), np.uint64(stop - at)  # FNV-1a in two lanes: half the waiting
    for place in range(at, stop - 1, 2):
        even = (even ^ np.uint64(data[place])) * prime
        odd = (odd ^ np.uint64(data[place + 1])) * prime
    code = (even ^ np.uint64(data[stop - 1])) * prime ^ (odd << _SEVEN)
    code = (code ^ (code >> np.uint64(32))) * _STIR  # short names differ in few bits only
    most = index.size // 3 - 1  # names; behind their beginnings is the table
    slot = int(code >> np.uint64(33)) & (2 * most - 1)
    for _ in range(_MOST_PROBES):
        known = index[2 + most + slot]
        if known < 0:
            return _added(data, at, stop, index, letters, 2 + most + slot)
        begin, end = index[1 + known], index[2 + known]
        if end - begin == stop - at and _same(data, at, stop, letters, begin, end):
            return int(known)
        slot = (slot + 1) & (2 * most - 1)
    return NOWHERE


@_compiled
def _added(data: Bytes, at: int, stop: int, index: Ints, letters: Bytes, slot: int) -> int:
    used = index[USED]
    begin = index[1 + used]
    if used >= index.size // 3 - 1 or begin + stop - at > letters.size:
        return NOWHERE
    for place in range(stop - at):
        letters[begin + place] = data[at + place]
    index[2 + used] = begin + stop - at
    index[slot] = used
    index[USED] = used + 1
    return int(used)


@_compiled
def _slot_of(jobs: Ints, event: Ints) -> int:
    """The place of a job in the table; an empty one if it is new."""
    key = (event[CLUSTER] << 24) + event[PROC]  # no two jobs have the same, unless a cluster has 16 million
    mask = jobs.shape[0] - 1
    code = key * 7_046_029_254_386_353_131
    first = (code ^ (code >> 29)) & mask
    oldest = first
    for probe in range(_PROBES):
        slot = (first + probe) & mask
        if jobs[slot, KEY] == key and jobs[slot, SEEN_US] != NEVER:
            jobs[slot, SEEN_US] = event[TIME_US]
            return int(slot)
        if jobs[slot, SEEN_US] < jobs[oldest, SEEN_US]:
            oldest = slot
        if jobs[slot, SEEN_US] == NEVER:
            break
    jobs[oldest, KEY], jobs[oldest, SEEN_US], jobs[oldest, START_US] = key, event[TIME_US], NEVER
    jobs[oldest, AWAITED], jobs[oldest, ROW] = 0, -1
    for place in range(4):
        jobs[oldest, AT + place] = NOWHERE
    return int(oldest)


@_compiled
def _named(data: Bytes, event: Ints, place: int, index: Ints, letters: Bytes) -> int:
    """The id of the event's place; of a slot only the host behind the last @ is kept."""
    if event[RANK + place] < 0:
        return NOWHERE
    at, stop = event[BEGIN + place], event[END + place]
    if place == NODE:
        letter = stop - 1
        while letter >= at and data[letter] != _AT_SIGN:
            letter -= 1
        at = max(at, letter + 1)
    return intern(data, at, stop, index, letters)


@_compiled
def _repeats(
    data: Bytes, event: Ints, slot: int, jobs: Ints, index: Ints, letters: Bytes, rows: Ints, base: int, count: int
) -> bool:
    """Whether an event 028 tells again of an event that has a row; what it adds goes there."""
    number = event[TRIGGER]
    bit = 1 << min(number, 62)
    if not jobs[slot, AWAITED] & bit:
        return False
    jobs[slot, AWAITED] &= ~bit
    row = jobs[slot, ROW] - base
    is_here = 0 <= row < count and rows[row, ROW_NUMBER] == number
    for place in range(4):
        if jobs[slot, AT + place] >= 0 or event[RANK + place] < 0:
            continue
        name = _named(data, event, place, index, letters)
        if place != NODE or jobs[slot, START_US] != NEVER:
            jobs[slot, AT + place] = name
        if is_here and rows[row, PLACES_AT + place] < 0:
            rows[row, PLACES_AT + place] = name
    return True


@_compiled
def _emit(
    data: Bytes, event: Ints, jobs: Ints, index: Ints, letters: Bytes, rows: Ints, base: int, count: int, fast_us: int
) -> int:
    """Make a row of a whole event, if it counts; returns how many rows there are then."""
    number, time_us, slot = event[NUMBER], event[TIME_US], _slot_of(jobs, event)
    if number == AD_INFORMATION and event[TRIGGER] >= 0:
        if _repeats(data, event, slot, jobs, index, letters, rows, base, count):
            return count
        number = event[TRIGGER]
    else:
        jobs[slot, AWAITED] |= 1 << min(number, 62)
    if number in (SUBMIT, EXECUTE):
        jobs[slot, START_US] = time_us if number == EXECUTE else NEVER
        jobs[slot, AT + NODE] = jobs[slot, AT + SITE] = NOWHERE
    for place in range(4):
        name = _named(data, event, place, index, letters)
        if name >= 0 and (place != NODE or event[NUMBER] not in _HOST_IN_TEXT):
            jobs[slot, AT + place] = name
        known = jobs[slot, AT + place]
        rows[count, PLACES_AT + place] = known if known >= 0 else name
    rows[count, ROW_NUMBER], rows[count, ROW_TIME_US], rows[count, MARK] = number, time_us, 0
    start_us = jobs[slot, START_US]
    if number == TERMINATED and event[ENDED_BADLY]:
        rows[count, MARK] = FAILED | (FAST if start_us != NEVER and 0 <= time_us - start_us <= fast_us else 0)
    if number in ENDS_RUN:
        jobs[slot, START_US] = NEVER
        jobs[slot, AT + NODE] = NOWHERE
    jobs[slot, ROW] = base + count
    return count + 1


@_compiled
def pair(
    data: Bytes, events: Ints, size: int, jobs: Ints, index: Ints, letters: Bytes, rows: Ints, base: int, fast_us: int
) -> int:
    """Make rows of the first `size` events, whose names stand in `data`; `base` rows came before. Returns how many there are."""
    count = int(np.int64(0))  # a plain 0 would be a type of its own, and `_emit` compiled twice
    for place in range(size):
        count = _emit(data, events[place], jobs, index, letters, rows, base, count, fast_us)
    return count

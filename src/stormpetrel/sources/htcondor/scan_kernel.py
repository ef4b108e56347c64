"""The compiled reader of event logs: bytes of a classic HTCondor event log -> what each event says.

`scan` walks over a buffer line by line and notes of each event what a count needs: number, job, time, how it ended, and where the
names of its places stand. What the events have to do with each other, `condor_pair_kernel` finds out. Nothing is allocated here.
One file: numba's cache on disk looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit

from stormpetrel.sources.htcondor.scan_state import (
    BAD_RECORD,
    BAD_TIME,
    BEGIN,
    BREAKS,
    CLUSTER,
    DATE,
    END,
    ENDED_BADLY,
    EVENT_SLOTS,
    FIRST_US,
    FUTURE,
    LAST_US,
    LATEST_US,
    MIDNIGHT_US,
    MONTH,
    MOST_EVENT_BYTES,
    NEVER,
    NUL_BYTE,
    NUMBER,
    PROC,
    RANK,
    READ,
    STRETCH,
    STRETCHES,
    TIME_US,
    TOO_LONG,
    TRIGGER,
    TRUNCATED,
    YEAR,
    Bytes,
    Ints,
    Lanes,
)  # fmt: skip  # isort: skip
from stormpetrel.sources.htcondor.vocabulary import (
    AD_INFORMATION,
    EXECUTE,
    HELD,
    PLACE_ATTRIBUTES,
    REMOTE_ERROR,
    SHADOW_EXCEPTION,
    SUBMIT,
    TERMINATED,
)

_Function = TypeVar("_Function", bound=Callable[..., object])

# Events whose lines are read; the others are known by their first line.
_READ_WHOLE: Final = (EXECUTE, TERMINATED, SHADOW_EXCEPTION, HELD, AD_INFORMATION)
SITE, HOST, GROUP, NODE = 0, 1, 2, 3  # as in PLACES

# What the attributes of an event 028 (or lines of the same form below an Execute) tell: name, role, and how good the name is
# (the name of a slot is better than the address of its daemon). In the order of the alphabet.
TRIGGER_ROLE, RETURN_ROLE, NORMALLY_ROLE, SIGNAL_ROLE = 4, 5, 6, 7
_PLACE_ROLES: Final = {"site": SITE, "submit_host": HOST, "group": GROUP, "node": NODE}
ATTRIBUTES: Final = tuple(
    sorted(
        [
            (name, _PLACE_ROLES[place], len(names) - at)
            for place, names in PLACE_ATTRIBUTES.items()
            for at, name in enumerate(names)
        ]
        + [("ReturnValue", RETURN_ROLE, 0), ("TerminatedBySignal", SIGNAL_ROLE, 0)]
        + [("TerminatedNormally", NORMALLY_ROLE, 0), ("TriggerEventTypeNumber", TRIGGER_ROLE, 0)]
    )
)
_LETTERS: Final = np.frombuffer("".join(name for name, _, _ in ATTRIBUTES).encode(), dtype=np.uint8)
_NAME_STARTS: Final = np.cumsum([0] + [len(name) for name, _, _ in ATTRIBUTES])
_ROLE_OF: Final = np.array([role for _, role, _ in ATTRIBUTES])
_RANK_OF: Final = np.array([rank for _, _, rank in ATTRIBUTES])
# Of each letter the names that begin with it: from this one to before that one.
_FIRST_WITH: Final = np.searchsorted([ord(name[0]) for name, _, _ in ATTRIBUTES], np.arange(257))
# The beginnings of lines that say something, one after the other in _WORDS.
_EXECUTING, _SUBMITTED, _RETURNED, _SIGNALLED, _ERROR, _STARTER, _WORDS_END = 0, 23, 48, 85, 118, 129, 140
_WORDS: Final = np.frombuffer(
    b"Job executing on host: Job submitted from host: (1) Normal termination (return value (0) Abnormal termination (signal "
    b"Error from starter on ",
    dtype=np.uint8,
)

_NEWLINE, _TAB, _RETURN, _SPACE, _QUOTE, _DOT, _ZERO, _NINE = 10, 9, 13, 32, 34, 46, 48, 57
_MINUS, _PLUS, _SLASH, _COLON, _OPEN, _CLOSE, _EQUALS, _AT_SIGN, _T, _Z = 45, 43, 47, 58, 40, 41, 61, 64, 84, 90
_FALSE: Final = (70, 102)  # how `false` begins
_ONES, _LOWS, _NEWLINES = np.uint64(0x0101010101010101), np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x0A0A0A0A0A0A0A0A)
_ONE, _SEVEN, _TOP_BYTE = np.uint64(1), np.uint64(7), np.uint64(56)
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_EARLIEST_US: Final = 315_532_800 * _SECOND_US  # 1980: what is older is damage
_MONTH_DAYS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _compiled(function: _Function) -> _Function:
    """Compile a function of this file, kept on disk; arrays are borrowed, so no references to them are counted."""
    options: dict[str, Any] = {"_nrt": False}  # that took more than half of the time
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy", **options)(function))


@_compiled
def _line_end(data: Bytes, words: Lanes, at: int) -> tuple[int, bool]:
    """Where the line ends, and whether it holds a NUL byte. Eight bytes at a time, and nearly without branches to guess."""
    has_nul = False
    place = at >> 3
    wanted = ~np.uint64(0) << np.uint64((at & 7) << 3)  # of the first word, the bytes from `at` on
    while True:
        word = words[place]
        line = word ^ _NEWLINES
        # The top bit of each byte that is NUL or newline: only zero stays below 0x80 when 0x7F is added to its low bits.
        matches = ~((((word & _LOWS) + _LOWS) | word) & (((line & _LOWS) + _LOWS) | line) | _LOWS) & wanted
        while matches:
            lowest = matches & (~matches + _ONE)
            stop = (place << 3) + int(((((lowest >> _SEVEN) - _ONE) & _ONES) * _ONES) >> _TOP_BYTE)
            if data[stop] == _NEWLINE:
                return stop, has_nul
            has_nul = True
            matches ^= lowest
        wanted = ~np.uint64(0)
        place += 1


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
def _whole(data: Bytes, at: int, most: int) -> tuple[int, int]:
    """A whole number of at most `most` digits, and where it ends; -1 where there is none."""
    sign = 1
    if data[at] == _MINUS:
        sign, at = -1, at + 1
    begin, value = at, 0
    while _ZERO <= data[at] <= _NINE and at - begin < most:
        value = value * 10 + data[at] - _ZERO
        at += 1
    return sign * value, at if at > begin else -1


@_compiled
def _two(data: Bytes, at: int) -> int:
    """Two digits as a number; below zero where they are none."""
    tens, units = np.int64(data[at]) - _ZERO, np.int64(data[at + 1]) - _ZERO
    return int(10 * tens + units) if 0 <= tens <= 9 and 0 <= units <= 9 else -10_000


@_compiled
def _job(data: Bytes, at: int, event: Ints) -> int:
    """`NNN (cluster.proc.sub) `: where what follows begins; -1 where the line does not begin so."""
    event[NUMBER] = 100 * (data[at] - _ZERO) + _two(data, at + 1)
    if event[NUMBER] < 0 or data[at + 3] != _SPACE or data[at + 4] != _OPEN:
        return -1
    event[CLUSTER], at = _whole(data, at + 5, 12)
    if at < 0 or data[at] != _DOT:
        return -1
    event[PROC], at = _whole(data, at + 1, 12)
    if at < 0 or data[at] != _DOT:
        return -1
    _, at = _whole(data, at + 1, 12)
    return at + 2 if at >= 0 and data[at] == _CLOSE and data[at + 1] == _SPACE else -1


@_compiled
def _year_of(clock: Ints, month: int) -> int:
    """The year of the next date without one: the rule of `event_log.Calendar`."""
    if clock[MONTH] == 1 and month == 12:
        return int(clock[YEAR] - 1)
    if month < clock[MONTH] - 1:
        clock[YEAR] += 1
    if month != clock[MONTH] - 1:
        clock[MONTH] = month
    return int(clock[YEAR])


@_compiled
def _midnight_us(year: int, month: int, day: int) -> int:
    """The beginning of a day of the calendar in µs since 1970; NEVER where there is no such day."""
    if not (1 <= month <= 12 and day >= 1 and year >= 1):
        return NEVER
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month - 1] + (leap and month == 2):
        return NEVER
    year -= month <= 2  # years that begin in March: the leap day is the last one
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return (year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468) * _DAY_US


@_compiled
def _to_utc(local_us: int, clock: Ints) -> int:
    """A time of the clock on the wall in UTC; the stretch between two changes of the clock is nearly always the last one used."""
    place, stretches = clock[STRETCH], clock[STRETCHES]
    while place > 0 and local_us < clock[BREAKS + place]:
        place -= 1
    while place + 1 < stretches and local_us >= clock[BREAKS + place + 1]:
        place += 1
    clock[STRETCH] = place
    return int(local_us - clock[BREAKS + stretches + place])


@_compiled
def _time(data: Bytes, at: int, clock: Ints) -> tuple[int, int]:
    """A date and time in either style: UTC µs (NEVER where it does not exist), and where it ends; -1 where there is none."""
    if data[at + 4] == _MINUS and data[at + 7] == _MINUS and (data[at + 10] == _SPACE or data[at + 10] == _T):
        year = 100 * _two(data, at) + _two(data, at + 2)
        month, day, at = _two(data, at + 5), _two(data, at + 8), at + 11
    elif data[at + 2] == _SLASH and data[at + 5] == _SPACE:
        month, day, at = _two(data, at), _two(data, at + 3), at + 6
        year = _year_of(clock, month) if 1 <= month <= 12 else 0
    else:
        return NEVER, -1
    hour, minute, second = _two(data, at), _two(data, at + 3), _two(data, at + 6)
    if min(year, month, day, hour, minute, second) < 0 or data[at + 2] != _COLON or data[at + 5] != _COLON:
        return NEVER, -1
    date = (year * 100 + month) * 100 + day
    if date != clock[DATE]:
        clock[DATE], clock[MIDNIGHT_US] = date, _midnight_us(year, month, day)
    micros, at = _fraction(data, at + 8)
    offset_s, at = _offset(data, at)
    if clock[MIDNIGHT_US] == NEVER or hour > 23 or minute > 59 or second > 59:
        return NEVER, at
    local = clock[MIDNIGHT_US] + (hour * 3600 + minute * 60 + second) * _SECOND_US + micros
    return (_to_utc(local, clock) if offset_s == NEVER else local - offset_s * _SECOND_US), at


@_compiled
def _fraction(data: Bytes, at: int) -> tuple[int, int]:
    """`.123` as µs."""
    if data[at] != _DOT:
        return 0, at
    at, value, unit = at + 1, 0, 100_000
    while _ZERO <= data[at] <= _NINE:
        value += (data[at] - _ZERO) * unit
        unit //= 10
        at += 1
    return value, at


@_compiled
def _offset(data: Bytes, at: int) -> tuple[int, int]:
    """`Z`, `+01:00` or `-0600` in seconds; NEVER where the header has none."""
    if data[at] == _Z:
        return 0, at + 1
    if data[at] != _PLUS and data[at] != _MINUS:
        return NEVER, at
    sign, hours, at = 1 if data[at] == _PLUS else -1, _two(data, at + 1), at + 3
    at += data[at] == _COLON
    minutes = _two(data, at)
    return (sign * (hours * 3600 + minutes * 60), at + 2) if hours >= 0 and minutes >= 0 else (NEVER, at)


@_compiled
def _place(at: int, stop: int, event: Ints, place: int, rank: int) -> None:
    """Note where a name of the event's place stands, unless a better one is known."""
    if rank >= event[RANK + place]:
        event[RANK + place], event[BEGIN + place], event[END + place] = rank, at, stop


@_compiled
def _attribute(data: Bytes, at: int, stop: int, event: Ints) -> None:
    """`Name = value`, or `SlotName: value` as an Execute has it."""
    for name in range(_FIRST_WITH[data[at]], _FIRST_WITH[data[at] + 1]):
        begin, end = _NAME_STARTS[name], _NAME_STARTS[name + 1]
        if not _same(data, at, stop, _LETTERS, begin, end):
            continue
        value = at + end - begin
        while value < stop and (data[value] == _SPACE or data[value] == _EQUALS or data[value] == _COLON):
            value += 1
        if value > at + end - begin:
            _take(data, value, stop, event, _ROLE_OF[name], _RANK_OF[name])
            return


@_compiled
def _take(data: Bytes, at: int, stop: int, event: Ints, role: int, rank: int) -> None:
    if role <= NODE:
        if data[at] == _QUOTE and data[stop - 1] == _QUOTE:
            _place(at + 1, stop - 1, event, role, rank)
        elif event[NUMBER] == EXECUTE:
            _place(at, stop, event, role, rank)
        return
    number, end = _whole(data, at, 12)
    if role == TRIGGER_ROLE:
        event[TRIGGER] = number if end == stop and 0 <= number <= 999 else -1
    elif role == NORMALLY_ROLE:
        event[ENDED_BADLY] |= data[at] in _FALSE
    elif end == stop:
        event[ENDED_BADLY] |= number != 0


@_compiled
def _error(data: Bytes, at: int, stop: int, event: Ints) -> None:
    """`Error from slot4@host: …` or `Error from starter on slot4@host: …`: the slot; what is no slot is no place."""
    if not _same(data, at, stop, _WORDS, _ERROR, _STARTER):
        return
    at += _STARTER - _ERROR
    if _same(data, at, stop, _WORDS, _STARTER, _WORDS_END):
        at += _WORDS_END - _STARTER
    end, is_slot = at, False
    while end < stop and data[end] > _SPACE and data[end] != _COLON:
        is_slot |= data[end] == _AT_SIGN
        end += 1
    if is_slot and end < stop and data[end] == _COLON:
        _place(at, end, event, NODE, 0)


@_compiled
def _title(data: Bytes, at: int, stop: int, event: Ints) -> None:
    """What stands behind the time in the first line."""
    if event[NUMBER] == SUBMIT and _same(data, at, stop, _WORDS, _SUBMITTED, _RETURNED):
        _place(at + _RETURNED - _SUBMITTED, stop, event, HOST, 0)
    elif event[NUMBER] == EXECUTE and _same(data, at, stop, _WORDS, _EXECUTING, _SUBMITTED):
        _place(at + _SUBMITTED - _EXECUTING, stop, event, NODE, 0)
    elif event[NUMBER] == REMOTE_ERROR:
        _error(data, at, stop, event)


@_compiled
def _body(data: Bytes, at: int, stop: int, event: Ints) -> None:
    """A line below the first one, of the events that say something there."""
    while at < stop and (data[at] == _TAB or data[at] == _SPACE):
        at += 1
    if event[NUMBER] == HELD or event[NUMBER] == SHADOW_EXCEPTION:
        _error(data, at, stop, event)
    elif event[NUMBER] != TERMINATED:
        _attribute(data, at, stop, event)
    elif data[at] == _OPEN:
        if _same(data, at, stop, _WORDS, _RETURNED, _SIGNALLED):
            value, _ = _whole(data, at + _SIGNALLED - _RETURNED, 12)
            event[ENDED_BADLY] = value != 0
        elif _same(data, at, stop, _WORDS, _SIGNALLED, _ERROR):
            event[ENDED_BADLY] = 1


@_compiled
def _header(data: Bytes, at: int, stop: int, event: Ints, clock: Ints) -> int:
    """Begin an event: 0, or why it will be set aside; -1 where the line does not begin one."""
    at = _job(data, at, event)
    if at < 0:
        return -1
    event[TIME_US], at = _time(data, at, clock)
    if at < 0 or at > stop:
        return -1
    event[TRIGGER], event[ENDED_BADLY] = -1, 0
    for place in range(4):
        event[RANK + place] = -1
    if at < stop and data[at] != _SPACE:
        return BAD_RECORD
    _title(data, at + 1, stop, event)
    return 0 if event[TIME_US] > _EARLIEST_US else BAD_TIME


@_compiled
def _is_end(data: Bytes, at: int, stop: int) -> bool:
    if stop - at < 3 or data[at + 1] != _DOT or data[at + 2] != _DOT:
        return False
    for place in range(at + 3, stop):  # noqa: SIM110
        if data[place] > _SPACE:
            return False
    return True


@_compiled
def _is_blank(data: Bytes, at: int, stop: int) -> bool:
    for place in range(at, stop):  # noqa: SIM110
        if data[place] > _SPACE or data[place] == 0:
            return False
    return True


@_compiled
def _is_kept(event: Ints, tally: Ints, latest_us: int) -> bool:
    """Whether a whole event is one of a job, and not of the future; what is told of the log itself (cluster -1) is not."""
    if event[TIME_US] > latest_us:
        tally[FUTURE] += 1
        return False
    tally[READ] += 1
    tally[FIRST_US] = min(tally[FIRST_US], event[TIME_US])
    tally[LAST_US] = max(tally[LAST_US], event[TIME_US])
    return bool(event[CLUSTER] >= 0 and event[PROC] >= 0)


@_compiled
def scan(  # noqa: C901
    data: Bytes, words: Lanes, size: int, problem: int, clock: Ints, events: Ints, tally: Ints, fresh: Ints
) -> tuple[int, int, int]:
    """Read whole events out of the first `size` bytes; behind them must be newlines, and room to look ahead.

    `words` are the same bytes, eight at a time; `fresh` is for its own use. `problem` is why the event that goes on at the
    beginning was given up (0: none does). Returns the number of events, how many bytes are settled (up to the end of the last
    one), and the problem of what follows them.
    """
    at = begun = settled = count = int(np.int64(0))  # a plain 0 would be a type of its own, and whatever takes it compiled twice
    is_open = False
    while count < events.shape[0]:
        stop, has_nul = _line_end(data, words, at)
        if stop >= size:
            break
        end = stop - 1 if stop > at and data[stop - 1] == _RETURN else stop
        if data[at] == _DOT and _is_end(data, at, end):
            if is_open and stop - begun > MOST_EVENT_BYTES:
                problem = TOO_LONG
            if problem:
                tally[problem] += 1
            elif is_open:
                count += _is_kept(events[count], tally, clock[LATEST_US])
            is_open, problem, settled = False, 0, stop + 1
        else:
            begins = _header(data, at, end, fresh, clock) if _ZERO <= data[at] <= _NINE else -1
            if begins >= 0:
                if is_open or problem:
                    tally[problem if problem else TRUNCATED] += 1
                    settled = at
                for slot in range(EVENT_SLOTS):
                    events[count, slot] = fresh[slot]
                is_open, problem, begun = True, begins, at
            elif is_open:
                if events[count, NUMBER] in _READ_WHOLE:
                    _body(data, at, end, events[count])
            elif not problem and not _is_blank(data, at, end):
                problem = BAD_RECORD
            if has_nul and not problem:
                problem = NUL_BYTE
        at = stop + 1
    return count, settled, problem if not is_open else 0

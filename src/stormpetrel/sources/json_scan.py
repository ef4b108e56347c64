"""The compiled reader of JSON records: bytes of a list of objects -> where the wanted fields of each stand, and their numbers.

`scan` walks over a buffer and notes of each object kind, place and number of its wanted fields. It accepts what is certainly
valid JSON and stops before the first object of which it is not sure: that one is for the decoder of Python. Nothing is allocated.
One file: numba's cache on disk looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stormpetrel.records.arrays import Ints

_Function = TypeVar("_Function", bound=Callable[..., object])

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]

ABSENT, NULL, TRUE, FALSE, INTEGER, NUMBER, TEXT, ESCAPED, OBJECT, ARRAY = range(10)  # kinds of a value
MORE, FULL, UNSURE = 0, 1, 2  # why `scan` stopped: at the end of the buffer, of its arrays, or before something odd
DEEPEST: Final = 64
_MOST_DIGITS: Final = 18
_MOST_READ: Final = 4000  # digits: Python refuses a whole number of some more
_EXACT_DIGITS: Final = 15  # of a number with a point: mantissa and power of ten are exact, so is their quotient
_TOO_SHORT, _ODD = -1, -2


# Letters of a string that need no second look: ASCII without control characters, quote and backslash.
_PLAIN: Final = np.array([32 <= letter < 128 and letter not in (34, 92) for letter in range(256)])


def _compiled(function: _Function) -> _Function:
    return cast(_Function, cast(Any, njit(cache=True, nogil=True, boundscheck=False))(function))


@_compiled
def _string_end(  # noqa: C901
    buffer: Bytes, at: int, size: int
) -> tuple[int, int]:
    """The place behind the string that begins at `at` (its first quote), and 0 where it is plain ASCII, 1 where it is not."""
    at += 1
    special = 0
    while at < size:
        ahead, end = np.uint64(at), np.uint64(size)  # without a sign, so that no index is checked for one
        while ahead < end and _PLAIN[buffer[ahead]]:
            ahead += np.uint64(1)
        at = np.int64(ahead)  # type: ignore[assignment]  # `int` would keep it without a sign
        if at >= size:
            break
        letter = buffer[at]
        if letter == 34:
            return at + 1, special
        if letter < 32:
            return _ODD, 0
        if letter >= 128:
            special = 1
        elif letter == 92:
            special = 1
            at += 1
            if at >= size:
                return _TOO_SHORT, 0
            escaped = buffer[at]
            if escaped == 117:  # \uXXXX
                if at + 4 >= size:
                    return _TOO_SHORT, 0
                for place in range(at + 1, at + 5):
                    digit = buffer[place]
                    if not (48 <= digit <= 57 or 65 <= digit <= 70 or 97 <= digit <= 102):
                        return _ODD, 0
                at += 4
            elif not (
                escaped == 34 or escaped == 92 or escaped == 47 or escaped == 98 or escaped == 102
                or escaped == 110 or escaped == 114 or escaped == 116
            ):  # fmt: skip
                return _ODD, 0
        at += 1
    return _TOO_SHORT, 0


@_compiled
def _number_end(  # noqa: C901
    buffer: Bytes, at: int, size: int, value: Ints
) -> tuple[int, int]:
    """The place behind a number and its kind; `value`: its digits as a whole number, and how many of them follow the point."""
    begin = at
    negative = buffer[at] == 45
    if negative:
        at += 1
    first = at
    digits, whole, behind = 0, 0, 0
    exact = True
    while at < size and 48 <= buffer[at] <= 57:
        if digits < _MOST_DIGITS:
            whole = whole * 10 + (buffer[at] - 48)
        else:
            exact = False
        digits += 1
        at += 1
    if at >= size:
        return _TOO_SHORT, 0
    if at == first or (buffer[first] == 48 and at > first + 1):
        return _ODD, 0
    kind = INTEGER
    if buffer[at] == 46:
        kind = NUMBER
        at += 1
        point = at
        while at < size and 48 <= buffer[at] <= 57:
            if digits < _MOST_DIGITS:
                whole = whole * 10 + (buffer[at] - 48)
                behind += 1
            else:
                exact = False
            digits += 1
            at += 1
        if at >= size:
            return _TOO_SHORT, 0
        if at == point:
            return _ODD, 0
        exact = exact and digits <= _EXACT_DIGITS
    if at < size and (buffer[at] == 101 or buffer[at] == 69):
        kind = NUMBER
        exact = False
        at += 1
        if at < size and (buffer[at] == 43 or buffer[at] == 45):
            at += 1
        point = at
        while at < size and 48 <= buffer[at] <= 57:
            at += 1
        if at >= size:
            return _TOO_SHORT, 0
        if at == point:
            return _ODD, 0
    if digits > _MOST_READ:
        return _ODD, 0
    if not exact:
        value[0], value[1] = 0, -1
        return at, NUMBER
    value[0], value[1] = -whole if negative else whole, behind
    if begin + 1 == at and negative:
        return _ODD, 0
    return at, kind


@_compiled
def _literal_end(buffer: Bytes, at: int, size: int) -> tuple[int, int]:
    if buffer[at] == 116:  # true
        if at + 4 >= size:
            return _TOO_SHORT, 0
        if buffer[at + 1] == 114 and buffer[at + 2] == 117 and buffer[at + 3] == 101:
            return at + 4, TRUE
    elif buffer[at] == 102:  # false
        if at + 5 >= size:
            return _TOO_SHORT, 0
        if buffer[at + 1] == 97 and buffer[at + 2] == 108 and buffer[at + 3] == 115 and buffer[at + 4] == 101:
            return at + 5, FALSE
    elif buffer[at] == 110:  # null
        if at + 4 >= size:
            return _TOO_SHORT, 0
        if buffer[at + 1] == 117 and buffer[at + 2] == 108 and buffer[at + 3] == 108:
            return at + 4, NULL
    return _ODD, 0


@_compiled
def _skip_space(buffer: Bytes, at: int, size: int) -> int:
    if at < size and buffer[at] > 32:
        return at
    place, end = np.uint64(at), np.uint64(size)
    while place < end and (buffer[place] == 32 or buffer[place] == 10 or buffer[place] == 13 or buffer[place] == 9):
        place += np.uint64(1)
    return np.int64(place)  # type: ignore[return-value]


@_compiled
def key_code(first: int, middle: int, last: int, length: int, parent: int) -> int:
    """Where the name of a field is looked up: a mixture of three of its letters, its length and what it belongs to."""
    return (first * 7 + middle * 131 + last * 8191 + length * 65537 + parent * 524287) * 2654435761 >> 16


@_compiled
def _field(buffer: Bytes, begin: int, end: int, parent: int, fold: int, slots: Ints, keys: Ints, letters: Bytes) -> int:
    """The number of the wanted field of this name below `parent`; -1 where nobody wants it."""
    length = end - begin
    if length == 0:
        return -1
    first, middle, last = int(buffer[begin]), int(buffer[begin + length // 2]), int(buffer[end - 1])
    if fold:
        first, middle, last = first | 32, middle | 32, last | 32
    slot = key_code(first, middle, last, length, parent) & (slots.shape[0] - 1)
    while slots[slot] >= 0:
        node = slots[slot]
        if keys[node, 0] == parent and keys[node, 2] == end - begin:
            at = keys[node, 1]
            same = True
            for place in range(begin, end):
                letter = buffer[place]
                if fold and 65 <= letter <= 90:
                    letter += 32
                if letter != letters[at]:
                    same = False
                    break
                at += 1
            if same:
                return int(node)
        slot = (slot + 1) & (slots.shape[0] - 1)
    return -1


@_compiled
def _object(  # noqa: C901
    buffer: Bytes, at: int, size: int, row: int, fold: int, slots: Ints, keys: Ints, letters: Bytes, kinds: Bytes, begins: Places,
    ends: Places, numbers: Ints, behind: Bytes, odd: Bytes, stack: Ints, value: Ints,
) -> int:  # fmt: skip
    """Read the object that begins at `at` into a row; the place behind it, or why it cannot be."""
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, at  # 0: an object, 1: a list; its field (-1: not wanted); where it begins
    at = _skip_space(buffer, at + 1, size)
    if at >= size:
        return _TOO_SHORT
    closing = buffer[at] == 125
    while True:
        if closing:  # the innermost container ends here
            at += 1
            node = stack[depth, 1]
            if node > 0:
                ends[row, node] = at
            depth -= 1
            if depth < 0:
                return at
        else:
            node = -1
            if stack[depth, 0] == 0:  # a key
                if buffer[at] != 34:
                    return _ODD
                after, special = _string_end(buffer, at, size)
                if after < 0:
                    return after
                parent = stack[depth, 1]
                if special and (fold or parent >= 0):
                    odd[row] = 1  # its name may be that of a wanted field, in other letters
                elif parent >= 0:
                    node = _field(buffer, at + 1, after - 1, parent, fold, slots, keys, letters)
                at = _skip_space(buffer, after, size)
                if at >= size:
                    return _TOO_SHORT
                if buffer[at] != 58:
                    return _ODD
                at = _skip_space(buffer, at + 1, size)
                if at >= size:
                    return _TOO_SHORT
            letter = buffer[at]
            if node > 0:
                if kinds[row, node]:
                    odd[row] = 1  # named twice
                begins[row, node] = at
            if letter == 123 or letter == 91:
                depth += 1
                if depth >= DEEPEST:
                    return _ODD
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = 0 if letter == 123 else 1, node, at
                if letter == 91:
                    stack[depth, 1] = -1  # nothing in a list is wanted by itself
                if node > 0:
                    kinds[row, node] = OBJECT if letter == 123 else ARRAY
                    if letter == 91:
                        stack[depth, 1] = -2 - node
                at = _skip_space(buffer, at + 1, size)
                if at >= size:
                    return _TOO_SHORT
                closing = buffer[at] == (125 if letter == 123 else 93)
                if closing and letter == 91 and stack[depth, 1] < -1:
                    stack[depth, 1] = -2 - stack[depth, 1]
                continue
            if letter == 34:
                after, special = _string_end(buffer, at, size)
                kind = ESCAPED if special else TEXT
            elif letter == 45 or 48 <= letter <= 57:
                after, kind = _number_end(buffer, at, size, value)
                if after >= 0 and node > 0:
                    numbers[row, node] = value[0]
                    behind[row, node] = 255 if value[1] < 0 else value[1]
            else:
                after, kind = _literal_end(buffer, at, size)
            if after < 0:
                return after
            at = after
            if node > 0:
                kinds[row, node], ends[row, node] = kind, at
        at = _skip_space(buffer, at, size)
        if at >= size:
            return _TOO_SHORT
        if buffer[at] == 44:
            at = _skip_space(buffer, at + 1, size)
            if at >= size:
                return _TOO_SHORT
            closing = False
            if buffer[at] == 125 or buffer[at] == 93:
                return _ODD
        elif buffer[at] == (125 if stack[depth, 0] == 0 else 93):
            closing = True
            if stack[depth, 1] < -1:
                stack[depth, 1] = -2 - stack[depth, 1]
        else:
            return _ODD


@_compiled
def scan(
    buffer: Bytes, at: int, size: int, fold: int, slots: Ints, keys: Ints, letters: Bytes, kinds: Bytes, begins: Places,
    ends: Places, numbers: Ints, behind: Bytes, odd: Bytes, stack: Ints, value: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Read objects, one after the other, with commas and white space between them: how many, up to where, and why no more."""
    rows = 0
    while True:
        while at < size and (buffer[at] == 44 or buffer[at] == 32 or buffer[at] == 10 or buffer[at] == 13 or buffer[at] == 9):
            at += 1
        if at >= size:
            return rows, at, MORE
        if rows >= kinds.shape[0]:
            return rows, at, FULL
        if buffer[at] != 123:
            return rows, at, UNSURE
        for node in range(kinds.shape[1]):
            kinds[rows, node] = ABSENT
        odd[rows] = 0
        after = _object(
            buffer, at, size, rows, fold, slots, keys, letters, kinds, begins, ends, numbers, behind, odd, stack, value
        )  # fmt: skip
        if after < 0:
            return rows, at, MORE if after == _TOO_SHORT else UNSURE
        kinds[rows, 0], begins[rows, 0], ends[rows, 0] = OBJECT, at, after
        rows += 1
        at = after


@_compiled
def intern(buffer: Bytes, begins: Places, ends: Places, used: NDArray[np.bool_], slots: Ints, ids: Places, firsts: Ints) -> int:
    """Number the distinct texts at these places by their first one: `ids` per place (-1: not used), `firsts` per text."""
    distinct = 0
    for number in range(begins.shape[0]):
        if not used[number]:
            ids[number] = -1
            continue
        begin, end = begins[number], ends[number]
        code = np.uint64(14695981039346656037)
        for place in range(begin, end):
            code = (code ^ np.uint64(buffer[place])) * np.uint64(1099511628211)
        slot = np.int64((code >> np.uint64(32)) & np.uint64(slots.shape[0] - 1))
        while True:
            known = slots[slot]
            if known < 0:
                slots[slot] = distinct
                firsts[distinct] = number
                ids[number] = distinct
                distinct += 1
                break
            other = firsts[known]
            same = ends[other] - begins[other] == end - begin
            if same:
                shift = begins[other] - begin
                for place in range(begin, end):
                    if buffer[place] != buffer[place + shift]:
                        same = False
                        break
            if same:
                ids[number] = known
                break
            slot = (slot + 1) & (slots.shape[0] - 1)
    return distinct

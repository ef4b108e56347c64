"""The compiled reader of matrices: the body of an answer to `metric[10s]` -> labels, times and values of all its samples.

bytes -> read_matrix -> SampleBlock, or None for whatever is not written just as Prometheus and VictoriaMetrics write it: that is
left to the reader of any JSON. 20,000 threads make 160,000 series and 9 MB a second; json needs a whole core for them, this an
eighth of one. Numbers come out as `float` makes them: those that it would round otherwise are given to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

from stormpetrel.records.traces import Seconds

_Function = TypeVar("_Function", bound=Callable[..., object])
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_RESULT: Final = b'"result":['
_HEAD: Final = 4096  # bytes within which the result begins
_MOST_ODD: Final = 4096  # numbers of an answer that are left to `float`
_METRIC: Final = np.frombuffer(b'{"metric":', dtype=np.uint8)
_VALUES: Final = np.frombuffer(b',"values":[', dtype=np.uint8)
_QUOTE, _COMMA, _DOT, _ZERO, _NINE, _MINUS, _BACKSLASH = 34, 44, 46, 48, 57, 45, 92
_OPEN, _CLOSE, _BEGIN, _END = 91, 93, 123, 125
_EXACT: Final = 1 << 53  # whole numbers up to here are floats, and
_TENS: Final = np.array([10.0**power for power in range(23)])  # so are these: one division rounds once


@dataclass(frozen=True, slots=True, eq=False)
class SampleBlock:
    """Samples of many series: those of series k are `first[k]` to `first[k + 1] - 1`."""

    metrics: list[bytes]  # the labels of each series as JSON; equal text, equal labels
    first: Places  # (series + 1,)
    time_s: Seconds  # (samples,)
    values: Seconds  # (samples,)

    @classmethod
    def of_series(cls, labels: Sequence[dict[str, str]], times: Sequence[Seconds], values: Sequence[Seconds]) -> SampleBlock:
        """Series that were read otherwise, as a block."""
        first = np.concatenate([[0], np.cumsum([time_s.size for time_s in times])]).astype(np.int64)
        nothing = [np.empty(0)]
        metrics = [json.dumps(label, sort_keys=True).encode() for label in labels]
        return cls(metrics, first, np.concatenate([*nothing, *times]), np.concatenate([*nothing, *values]))


def read_matrix(body: bytes) -> tuple[SampleBlock, bytes] | None:
    """The samples of an answer, and the answer without them, which says whether all is well; None where it has another form."""
    begin = body.find(_RESULT, 0, _HEAD)
    if begin < 0:
        return None
    begin += len(_RESULT)
    series, samples = len(body) // len('{"metric":{},"values":[]},') + 1, len(body) // len('[1,"2"],') + 1  # at most
    begins, ends, first = (np.zeros(series + 1, dtype=np.int64) for _ in range(3))  # room that is not used is never touched
    time_s, values = np.empty(samples), np.empty(samples)
    odd = np.zeros((_MOST_ODD, 3), dtype=np.int64)  # which sample, and where its value stands
    count, read, left, end = _scan(np.frombuffer(body, dtype=np.uint8), begin, begins, ends, first, time_s, values, odd)
    if end < 0:
        return None
    try:
        for sample, start, stop in odd[:left].tolist():
            values[sample] = float(body[start:stop])
    except ValueError:
        return None
    metrics = [body[start:stop] for start, stop in zip(begins[:count].tolist(), ends[:count].tolist(), strict=True)]
    return SampleBlock(metrics, first[: count + 1], time_s[:read], values[:read]), body[:begin] + body[end:]


def _compiled(function: _Function) -> _Function:
    options: dict[str, Any] = {"_nrt": False}  # arrays are borrowed: no references to them are counted
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy", **options)(function))


@_compiled
def _stands(data: Bytes, at: int, words: Bytes) -> bool:
    """Whether these words stand at a place."""
    if at + words.size > data.size:
        return False
    for place in range(words.size):  # noqa: SIM110
        if data[at + place] != words[place]:
            return False
    return True


@_compiled
def _object_end(data: Bytes, at: int) -> int:
    """Behind the object that begins at a place; -1 where it does not end."""
    depth, in_text = 0, False
    while at < data.size:
        letter = data[at]
        if in_text:
            if letter == _BACKSLASH:
                at += 1
            elif letter == _QUOTE:
                in_text = False
        elif letter == _QUOTE:
            in_text = True
        elif letter == _BEGIN:
            depth += 1
        elif letter == _END:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@_compiled
def _number(data: Bytes, at: int) -> tuple[float, int, bool]:
    """A plain decimal number, where it ends, and whether it is just what `float` would make of it."""
    minus = at < data.size and data[at] == _MINUS
    if minus:
        at += 1
    begin, whole, behind, point = at, 0, 0, False
    while at < data.size:
        letter = data[at]
        if _ZERO <= letter <= _NINE:
            if whole < _EXACT:
                whole = whole * 10 + (letter - _ZERO)
            if point:
                behind += 1
        elif letter == _DOT and not point:
            point = True
        else:
            break
        at += 1
    digits = at - begin - (1 if point else 0)
    plain = digits > 0 and whole < _EXACT and behind < _TENS.size
    if not plain:
        return 0.0, at, False
    value = float(whole) / _TENS[behind]
    return (-value if minus else value), at, True


@_compiled
def _sample(data: Bytes, at: int) -> tuple[float, float, int, int]:
    """Time and value of `[1700000000.123,"17.5"]`, where the value begins if it is left to `float` (else 0), and what is behind.

    Behind it is -1 for another form.
    """
    if at + 1 >= data.size or data[at] != _OPEN:
        return 0.0, 0.0, 0, -1
    moment, at, plain = _number(data, at + 1)
    if not plain or at + 1 >= data.size or data[at] != _COMMA or data[at + 1] != _QUOTE:
        return 0.0, 0.0, 0, -1
    start = at + 2
    value, at, plain = _number(data, start)
    if plain and at < data.size and data[at] == _QUOTE:
        start = 0
    else:
        while at < data.size and data[at] != _QUOTE:
            at += 1
    if at + 2 >= data.size or data[at + 1] != _CLOSE:
        return 0.0, 0.0, 0, -1
    return moment, value, start, at + 2


@_compiled
def _samples(data: Bytes, at: int, read: int, left: int, time_s: Seconds, values: Seconds, odd: Places) -> tuple[int, int, int]:
    """Samples and numbers left to `float` so far, and what is behind the list of samples; that is -1 for another form."""
    while read < time_s.size:
        time_s[read], values[read], start, at = _sample(data, at)
        if at < 0 or (start and left >= odd.shape[0]):
            return read, left, -1
        if start:
            odd[left, 0], odd[left, 1], odd[left, 2] = read, start, at - 2
            left += 1
        read += 1
        if data[at] == _CLOSE:
            return read, left, at + 1
        if data[at] != _COMMA:
            return read, left, -1
        at += 1
    return read, left, -1


@_compiled
def _scan(
    data: Bytes, at: int, begins: Places, ends: Places, first: Places, time_s: Seconds, values: Seconds, odd: Places
) -> tuple[int, int, int, int]:
    """Series, samples and numbers left to `float`, and where the list of results ends; that is -1 for another form."""
    count, read, left = 0, 0, 0
    if at < data.size and data[at] == _CLOSE:
        return 0, 0, 0, at
    while count + 1 < begins.size and _stands(data, at, _METRIC):
        begins[count] = at + _METRIC.size
        at = _object_end(data, begins[count])
        if at < 0 or data[begins[count]] != _BEGIN or not _stands(data, at, _VALUES):
            break
        ends[count] = at
        read, left, at = _samples(data, at + _VALUES.size, read, left, time_s, values, odd)
        if at < 0 or at + 1 >= data.size or data[at] != _END:
            break
        count += 1
        first[count] = read
        if data[at + 1] == _CLOSE:
            return count, read, left, at + 1
        if data[at + 1] != _COMMA:
            break
        at += 2
    return count, read, left, -1

"""The index of a column, for search and sort: its distinct words, and a whole number per row that sorts as the column does.

month of the overview -> ColumnIndex; words and keys are worked out at their first use, and kept as long as the month.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Final, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Keys = NDArray[np.int64]
LAST: Final = np.iinfo(np.int64).max  # the key of a missing value
WIDTH: Final = 8  # bytes of a text that go into one key
LEVELS: Final = 8  # keys of a text: what differs only after 64 more bytes than all have in common is as good as equal
_MOST_KEYS: Final = 12  # kept of a frame, the oldest go first: eight bytes per job each
# What is sorted by something else than itself: a task by the number of its array, then by its own.
STANDS_FOR: Final = {"job": ("job_id", "array_task"), "ref": ("job_id", "array_task")}


class ColumnIndex:
    """The columns of one frame that never changes."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame
        self.height = frame.height
        self._words: dict[str, _Words] = {}
        self._keys: dict[str, Keys] = {}
        self._lock = Lock()

    def matches(self, column: str, test: Callable[[pl.Series], pl.Series], *, missing: bool, folded: bool = False) -> Mask:
        """Return which rows have a word that passes a test, run once per distinct word; `folded`: on words in small letters."""
        words = self.words(column)
        passed = test(words.small if folded else words.words).fill_null(missing).to_numpy()
        return np.asarray(np.append(passed, missing)[words.codes], dtype=np.bool_)

    def keys(self, column: str, rows: Rows, begin: int = 0) -> Keys:
        """One number for each of these rows, in the order of the column; of a text in small letters, from byte `begin` on."""
        if self._frame.schema[column] == pl.String:
            words = self.words(column)
            return np.take(words.keys(begin), words.codes[rows])
        known = self._keys.get(column)
        if known is None:
            known = number_keys(self._frame[column])
            with self._lock:
                while len(self._keys) >= _MOST_KEYS:
                    self._keys.pop(next(iter(self._keys)))
                self._keys[column] = known
        return known[rows]

    def extent(self, column: str) -> tuple[list[bytes], int]:
        """The first and the last text in the order of their bytes (none where there are none), and the bytes of the longest."""
        words = self.words(column)
        return words.ends, words.longest

    def holds(self, condition: pl.Expr) -> Mask:
        """Return for which rows a condition on columns that are no texts holds."""
        return np.asarray(self._frame.select(condition.alias("holds")).to_series().to_numpy(), np.bool_)

    def words(self, column: str) -> _Words:
        """The distinct words of a text column."""
        if column not in self._words:
            self._words[column] = _Words(self._frame[column])
        return self._words[column]


class _Words:
    """The distinct words of a column, and which one each row has: the number of words for none."""

    def __init__(self, column: pl.Series) -> None:
        self.words = column.unique().drop_nulls()
        table = pl.DataFrame({"word": self.words, "code": pl.int_range(len(self.words), dtype=pl.Int32, eager=True)})
        codes = column.to_frame("word").join(table, on="word", how="left", maintain_order="left")["code"]
        self.codes = codes.fill_null(len(self.words)).to_numpy()
        self._keys: dict[int, Keys] = {}

    @cached_property
    def number(self) -> dict[str, int]:
        """The code of each word."""
        return {word: code for code, word in enumerate(self.words)}

    @cached_property
    def small(self) -> pl.Series:
        """The words in small letters."""
        return self.words.str.to_lowercase()

    @cached_property
    def ends(self) -> list[bytes]:
        """The first and the last word in the order of their bytes; nothing where there are none."""
        return [str(word).encode() for word in (self.small.min(), self.small.max()) if word is not None]

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest word."""
        return int(self.small.str.len_bytes().max() or 0)  # type: ignore[arg-type]

    def keys(self, begin: int) -> Keys:
        """A number for each word, in the order of its bytes from `begin` on; the last one stands for none."""
        if begin not in self._keys:
            self._keys[begin] = np.append(text_keys(self.small, begin), LAST)
        return self._keys[begin]


def text_keys(small: pl.Series, begin: int) -> Keys:
    """Texts in small letters as whole numbers, in the order of their bytes from `begin` on; anything where one is missing."""
    padded = small.fill_null("").str.pad_end(begin + WIDTH, "\0").cast(pl.Binary)
    number = padded.bin.slice(begin, WIDTH).bin.reinterpret(dtype=pl.UInt64, endianness="big")
    signed = (number.to_numpy() ^ np.uint64(1 << 63)).view(np.int64)  # in the same order
    return np.maximum(signed, -LAST)  # backwards, the smallest would be that of none


def number_keys(values: pl.Series) -> Keys:
    """Numbers, times and truths as whole numbers of the same order."""
    if values.dtype.is_float():
        bits = values.cast(pl.Float64).fill_nan(None)
        plain = bits.fill_null(0.0).to_numpy().view(np.int64)
        keys = plain ^ ((plain >> 63) & LAST)  # below zero the bits of a float run backwards
        return np.where(bits.is_null().to_numpy(), LAST, keys)
    return values.to_physical().cast(pl.Int64).fill_null(LAST).to_numpy()


def page_of(rows: Rows, keys: list[Callable[[Rows], Keys]], offset: int, limit: int) -> Rows:
    """Rows `offset` to `offset + limit` of the sorted table, without sorting it: about three passes whatever the page.

    The two keys at the ends of the page are selected in linear time; only what lies between is sorted, and what is equal to an
    end is sorted by the next key. Where no key is left the order of the rows decides, so that pages never overlap.
    """
    if limit <= 0 or offset >= len(rows):
        return rows[:0]
    if not keys:
        return rows[offset : offset + limit]
    values, rest = keys[0](rows), keys[1:]
    last = min(offset + limit, len(rows)) - 1
    selected = np.partition(values, (offset, last))
    low, high = selected[offset], selected[last]
    below = int(np.count_nonzero(values < low))
    if low == high:
        return page_of(rows[values == low], rest, offset - below, limit)
    between = rows[(values > low) & (values < high)]
    first = page_of(rows[values == low], rest, offset - below, limit)
    inner = between[np.lexsort([key(between) for key in reversed(keys)])] if len(between) else between
    left = limit - len(first) - len(inner)
    return np.concatenate([first, inner, page_of(rows[values == high], rest, 0, left)])


class MonthIndex(Protocol):
    """What search and sort want of a month: in memory a `ColumnIndex`, on disk a `StoredMonth`."""

    @property
    def height(self) -> int:
        """How many rows it has."""

    def matches(self, column: str, test: Callable[[pl.Series], pl.Series], *, missing: bool, folded: bool = False) -> Mask:
        """Which rows have a word that passes a test."""

    def holds(self, condition: pl.Expr) -> Mask:
        """For which rows a condition holds."""

    def keys(self, column: str, rows: Rows, begin: int = 0) -> Keys:
        """One number for each of these rows, in the order of the column."""

    def extent(self, column: str) -> tuple[list[bytes], int]:
        """The first and the last text, and the bytes of the longest."""


class SortKey:
    """One sort key of a table of several frames, one below the other; missing values come last both ways."""

    def __init__(self, indices: Sequence[MonthIndex], column: str, begin: int, *, descending: bool) -> None:
        self._indices, self._column, self._begin, self._descending = indices, column, begin, descending

    def __call__(self, rows: Rows) -> Keys:
        """The keys of some rows, whose numbers rise."""
        starts = np.cumsum([0, *(index.height for index in self._indices)])
        bounds = np.searchsorted(rows, starts)
        parts = [
            index.keys(self._column, rows[low:high] - start, self._begin)
            for index, start, low, high in zip(self._indices, starts[:-1], bounds[:-1], bounds[1:], strict=True)
            if high > low
        ]
        keys = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return np.where(keys == LAST, LAST, ~keys) if self._descending else keys


def sort_keys(indices: Sequence[MonthIndex], column: str, *, is_text: bool, descending: bool) -> list[Callable[[Rows], Keys]]:
    """The keys that a column is sorted by: one for numbers, for texts one for each eight bytes after those that all have."""
    if not is_text:
        return [SortKey(indices, column, 0, descending=descending)]
    extents = [index.extent(column) for index in indices]
    ends = [end for first_and_last, _ in extents for end in first_and_last] or [b""]
    shared = _in_common(min(ends), max(ends))
    end = min(max((longest for _, longest in extents), default=0), shared + WIDTH * LEVELS)
    return [SortKey(indices, column, begin, descending=descending) for begin in range(shared, max(end, shared + 1), WIDTH)]


def _in_common(first: bytes, last: bytes) -> int:
    """How many bytes two words begin with alike; whatever lies between them in order begins so, too."""
    return next(
        (place for place, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other),
        min(len(first), len(last)),
    )

"""JSON documents that hold a long list of records -> blocks of records by columns, and one at a time what cannot be read so.

LineFile -> record_blocks -> JsonBlock: kinds, numbers and distinct texts of the wanted fields of some thousand records. From the
first record on that is damaged, the rest of the file is read by `json_records`, which refuses records one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.records.arrays import Flags, Ints
from stormpetrel.records.jobs import TEXT_MAP
from stormpetrel.sources.json_records import MAX_RECORD, Record, RecordReader
from stormpetrel.sources.json_scan import (
    ABSENT,
    DEEPEST,
    ESCAPED,
    FULL,
    INTEGER,
    MORE,
    NULL,
    NUMBER,
    TEXT,
    Bytes,
    Places,
    intern,
    key_code,
    scan,
)
from stormpetrel.sources.lines import LineFile, Refused

ROWS: Final = 10_000  # of a block at most
_PIECE_BYTES: Final = 32 * 1024 * 1024  # some thousand records: each column of a block has its price
_LIST: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[")
_OBJECT: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?=\{)")
Numbers = NDArray[np.float64]


class WantedFields:
    """The fields that are wanted of each record, by path (`time.limit.number`); with `fold` names of fields have no case."""

    def __init__(self, paths: Sequence[str], *, fold: bool = False) -> None:
        self.fold = int(fold)
        self.at: dict[str, int] = {"": 0}
        parents, names = [-1], [b""]
        for path in paths:
            for end in [place for place, letter in enumerate(path) if letter == "."] + [len(path)]:
                if path[:end] not in self.at:
                    self.at[path[:end]] = len(names)
                    parent, _, name = path[:end].rpartition(".")
                    parents.append(self.at[parent])
                    names.append((name.lower() if fold else name).encode())
        begins = np.cumsum([0, *map(len, names)])[:-1]
        self.keys: Ints = np.array(list(zip(parents, begins, map(len, names), strict=True)), dtype=np.int64)
        self.letters: Bytes = np.frombuffer(b"".join(names) + b"\0", dtype=np.uint8)
        self.slots: Ints = np.full(1 << (4 * len(names)).bit_length(), -1, dtype=np.int64)
        for node, (above, key) in enumerate(zip(parents, names, strict=True)):
            if node:
                self._enter(node, above, key)

    def _enter(self, node: int, parent: int, name: bytes) -> None:
        first, middle, last = (letter | 32 if self.fold else letter for letter in (name[0], name[len(name) // 2], name[-1]))
        slot = key_code(first, middle, last, len(name), parent) & (self.slots.size - 1)
        while self.slots[slot] >= 0:
            slot = (slot + 1) & (self.slots.size - 1)
        self.slots[slot] = node


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """Where a scan puts what it notes: one row per record, one column per wanted field."""

    kinds: Bytes
    begins: Places
    ends: Places
    numbers: Ints
    behind: Bytes
    odd: Bytes

    @classmethod
    def of(cls, rows: int, fields: WantedFields) -> _Arrays:
        shape = (rows, len(fields.at))
        return cls(
            np.zeros(shape, np.uint8),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.uint8),
            np.zeros(rows, np.uint8),
        )

    def all(self) -> tuple[Bytes, Places, Places, Ints, Bytes, Bytes]:
        return self.kinds, self.begins, self.ends, self.numbers, self.behind, self.odd


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """A column by its distinct values: of each record the place of its value (-1: the field is not there), and the values."""

    ids: Places
    values: list[Any]

    def map(self, read: Callable[[Any], Any], dtype: Any = None) -> pl.Series:
        """The column of what `read` makes of each value; a field that is not there is None to it."""
        results = [read(value) for value in [*self.values, None]]  # the last is that of -1
        return pl.Series(results, dtype=dtype, strict=True).gather(np.where(self.ids < 0, len(results) - 1, self.ids))


class JsonBlock:
    """Some thousand records of a file, by columns. `odd` marks those that are for the decoder of Python."""

    def __init__(self, buffer: Bytes, fields: WantedFields, arrays: _Arrays, rows: int) -> None:
        self._buffer, self._fields, self._arrays, self.rows = buffer, fields, arrays, rows
        self.odd: Flags = arrays.odd[:rows] != 0

    def kind(self, path: str) -> Bytes:
        """What stands in a field, by the kinds of `json_scan`."""
        return self._arrays.kinds[: self.rows, self._fields.at[path]]

    def integer(self, path: str) -> tuple[Ints, Flags]:
        """The whole numbers of a field, and where there is one; null and nothing are none, all else is odd."""
        kind = self.kind(path)
        there = kind == INTEGER
        self.odd |= ~there & (kind != ABSENT) & (kind != NULL)
        return self._arrays.numbers[: self.rows, self._fields.at[path]], there

    def number(self, path: str) -> tuple[Numbers, Flags]:
        """The numbers of a field, with a point or without; one with more than 15 digits and a point is odd."""
        kind, at = self.kind(path), self._fields.at[path]
        behind = self._arrays.behind[: self.rows, at]
        there = (kind == INTEGER) | ((kind == NUMBER) & (behind != 255))
        self.odd |= ~there & (kind != ABSENT) & (kind != NULL)
        return self._arrays.numbers[: self.rows, at] / 10.0 ** np.where(there, behind, 0), there

    def distinct(self, path: str) -> Distinct:
        """The values of a field, each distinct one decoded once; null is a value."""
        column, places = self._fields.at[path], self._intern(path)
        data, begins, ends = self._buffer.data, self._arrays.begins[:, column], self._arrays.ends[:, column]
        plain = self._arrays.kinds[places.values, column] == TEXT if places.values else []
        values = [
            str(data[begins[at] + 1 : ends[at] - 1], "ascii") if is_plain else json.loads(bytes(data[begins[at] : ends[at]]))
            for at, is_plain in zip(places.values, plain, strict=True)
        ]
        return Distinct(places.ids, values)

    def texts(self, path: str) -> Distinct:
        """The same of a field that must be text, or nothing."""
        kind = self.kind(path)
        self.odd |= (kind != TEXT) & (kind != ESCAPED) & (kind != ABSENT) & (kind != NULL)
        column = self.distinct(path)
        return Distinct(column.ids, [value if isinstance(value, str) else None for value in column.values])

    def shown(self, path: str) -> Distinct:
        """The values of a field as Python would print them; None of lists, objects and null."""
        column = self._fields.at[path]
        places = self._intern(path)
        data, begins, ends = self._buffer.data, self._arrays.begins[:, column], self._arrays.ends[:, column]
        values: list[str | None] = []
        for at in places.values:
            raw, kind = bytes(data[begins[at] : ends[at]]), self._arrays.kinds[at, column]
            if kind == TEXT:
                values.append(raw[1:-1].decode())
            elif kind == INTEGER or (kind == NUMBER and raw.isdigit()):
                values.append("0" if raw == b"-0" else raw.decode())
            else:
                value = json.loads(raw)
                values.append(
                    str(value).lower()
                    if isinstance(value, bool)
                    else str(value)
                    if isinstance(value, str | int | float)
                    else None
                )
        return Distinct(places.ids, values)

    def _intern(self, path: str) -> Distinct:
        """Of each record the place of its value among the distinct ones, and of these the rows that have them first."""
        column = self._fields.at[path]
        begins = np.ascontiguousarray(self._arrays.begins[: self.rows, column])
        ends = np.ascontiguousarray(self._arrays.ends[: self.rows, column])
        ids, firsts = np.empty(self.rows, np.int32), np.empty(self.rows, np.int64)
        slots = np.full(1 << (2 * self.rows + 1).bit_length(), -1, dtype=np.int64)
        count = intern(self._buffer, begins, ends, self.kind(path) != ABSENT, slots, ids, firsts)
        return Distinct(ids, firsts[:count].tolist())

    def text_of(self, row: int) -> str:
        """A record as it stands in the file."""
        return bytes(self._buffer.data[self._arrays.begins[row, 0] : self._arrays.ends[row, 0]]).decode()

    def record(self, row: int) -> Record:
        """A record as Python decodes it."""
        value: Record = json.loads(self.text_of(row))
        return value


def maps_of(columns: Sequence[tuple[str, Distinct]]) -> tuple[pl.Series, Flags]:
    """Columns of texts as one column of maps, entries in the order of the columns; and where there is no entry (null there)."""
    rows = columns[0][1].ids.size
    there, places, texts = np.zeros((rows, len(columns)), np.bool_), np.zeros((rows, len(columns)), np.int64), list[str]()
    for number, (_, column) in enumerate(columns):
        filled = np.array([bool(value) for value in column.values] + [False])
        there[:, number] = filled[column.ids]
        places[:, number] = column.ids + len(texts)
        texts += [value or "" for value in column.values]
    row, name = np.nonzero(there)
    entries = pl.DataFrame(
        {
            "row": pl.Series(row, dtype=pl.Int64),
            "key": pl.Series([name for name, _ in columns], dtype=pl.String).gather(name),
            "value": pl.Series(texts, dtype=pl.String).gather(places[row, name]),
        }
    )
    grouped = entries.group_by("row", maintain_order=True).agg(pl.struct("key", "value").alias("entries"))
    maps = pl.DataFrame({"row": pl.Series(range(rows), dtype=pl.Int64)}).join(
        grouped, on="row", how="left", maintain_order="left"
    )
    return maps["entries"].cast(TEXT_MAP), np.asarray(~there.any(axis=1), np.bool_)


def masked(values: Any, there: Flags, dtype: Any) -> pl.Series:
    """An array as a column, null where nothing is there."""
    return (
        pl.DataFrame({"values": pl.Series(values), "there": pl.Series(there)})
        .select(pl.when("there").then(pl.col("values").cast(dtype, strict=False)))
        .to_series()
    )


@dataclass(frozen=True, slots=True, eq=False)
class NumberedBlock:
    """A block, the number of its first record in the file, and how many bytes had been read by then."""

    block: JsonBlock
    first: int
    done: int


def record_blocks(
    file: LineFile, fields: WantedFields, *, key: str | None, is_record: Callable[[Record], bool]
) -> Iterator[NumberedBlock | tuple[int, Record | Refused, int]]:
    """Read the records of a file: by blocks as long as they are sound, then one by one as `records_in` does."""
    reader = RecordReader(file, is_record, key, _PIECE_BYTES)
    pending, at = reader.next_piece() or b"", 0
    begin = _LIST.match(pending) or (key and re.search(rb'"%b"\s*:\s*\[' % key.encode(), pending)) or _OBJECT.match(pending)
    if not begin:
        reader.go_on_with(pending)
        reader.skip_to_list()
        yield from reader.records()
        return
    at, is_ascii = begin.end(), pending.isascii()
    stack, value = np.zeros((DEEPEST, 3), np.int64), np.zeros(2, np.int64)
    while True:
        buffer = np.frombuffer(pending, dtype=np.uint8)
        arrays = _Arrays.of(ROWS, fields)
        rows, end, why = scan(
            buffer, at, buffer.size, fields.fold, fields.slots, fields.keys, fields.letters, *arrays.all(), stack, value
        )
        if rows and not (is_ascii or _is_utf8(pending, at, end)):
            break
        if rows:
            yield NumberedBlock(JsonBlock(buffer, fields, arrays, rows), reader.number + 1, reader.done)
            reader.count_good(rows)
        at = end
        if why == FULL:
            continue
        if why != MORE or len(pending) - at > MAX_RECORD:
            break
        piece = reader.next_piece()
        if piece is None:
            break
        pending, at = pending[at:] + piece, 0
        is_ascii = pending.isascii()
    reader.go_on_with(pending[at:])
    yield from reader.records()


def _is_utf8(data: bytes, begin: int, end: int) -> bool:
    try:
        return "\ufffd" not in str(memoryview(data)[begin:end], "utf-8")  # `json_records` takes that for damage
    except UnicodeDecodeError:
        return False

"""What a Parquet file will need once it is read, told from its own tables of contents before a decoder sees it.

path -> check_parquet: SourceFormatError where a small file says that it holds far more than it can.

The format: pages, each behind a header with its size as it lies there and as it will be in memory; a footer that says where the
pages of each column begin and how many rows there are; the length of the footer; `PAR1`. Headers and footer are Thrift, compact
protocol. Both sizes are checked, since a decoder believes the one in the page.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import SourceFormatError

_MAGIC: Final = b"PAR1"
_FREELY_BYTES: Final = 64 * 1024 * 1024  # any file may unpack to so much
_MOST_UNPACKED: Final = 100  # times its size
_FREELY_CELLS: Final = 20_000_000
_CELLS_PER_BYTE: Final = 50  # runs of equal values take no space in a file, but each row takes some in memory
_MOST_PAGES: Final = 1_000_000
_DEEPEST: Final = 16

Struct = dict[int, Any]  # field number: value


def check_parquet(path: Path) -> None:
    """Refuse a file whose rows or pages are out of all proportion to its size, or which does not hold what its footer says."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 12:
                raise ValueError("it is too short")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                rows, columns, unpacked = _contents(data, size)
    except FileNotFoundError:
        raise SourceFormatError(f"There is no file {path}.", hint="Check the path.") from None
    except (ValueError, IndexError, KeyError, TypeError, OSError, RecursionError) as error:
        raise SourceFormatError(
            f"{path} is no Parquet file: {str(error)[:200]}.", hint="It may be cut off: copy it again."
        ) from error
    if rows * columns > max(_FREELY_CELLS, _CELLS_PER_BYTE * size) or unpacked > max(_FREELY_BYTES, _MOST_UNPACKED * size):
        raise SourceFormatError(
            f"{path} has {size:,} bytes and claims {rows:,} rows of {columns:,} columns, {unpacked:,} bytes in all: no log does.",
            hint="Look at it; if it is sound, write it again without compression, or as CSV.",
        )


def _contents(data: mmap.mmap, size: int) -> tuple[int, int, int]:
    """Rows, columns, and how many bytes all pages have once they are unpacked."""
    if data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise ValueError("it does not begin and end as one")
    length = int.from_bytes(data[size - 8 : size - 4], "little")
    if length > size - 12:
        raise ValueError("its footer is longer than the file")
    footer, _ = _struct(_Bytes(data, size - 8 - length, size - 8))
    chunks = [column[3] for group in footer[4] for column in group[1]]  # RowGroup.columns, ColumnChunk.meta_data
    columns = len(chunks) // max(1, len(footer[4]))
    declared = sum(max(0, chunk[6]) for chunk in chunks)  # ColumnMetaData.total_uncompressed_size
    actual = sum(_page_sizes(data, chunks))
    return max(0, footer[3]), columns, max(declared, actual)


def _page_sizes(data: mmap.mmap, chunks: list[Struct]) -> Iterator[int]:
    """The unpacked size of each page, as its own header tells it."""
    pages = 0
    for chunk in chunks:
        start = min(chunk[9], chunk.get(11) or chunk[9])  # the first data page, or the dictionary before it
        end = start + chunk[7]
        if start < 4 or not start <= end <= len(data):
            raise ValueError("a column lies outside of the file")
        while start < end:
            header, start = _struct(_Bytes(data, start, end))
            if header[2] < 0 or header[3] < 0:
                raise ValueError("a page has less than no bytes")
            yield header[2]
            start += header[3]
            pages += 1
            if pages > _MOST_PAGES:
                raise ValueError("it has too many pages")


class _Bytes:
    """A place in the file, from which numbers are read."""

    def __init__(self, data: mmap.mmap, position: int, end: int) -> None:
        self.data, self.position, self.end = data, position, end

    def take(self, count: int) -> bytes:
        if count < 0 or self.position + count > self.end:
            raise ValueError("it breaks off")
        self.position += count
        return self.data[self.position - count : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many digits")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def _struct(source: _Bytes, depth: int = 0) -> tuple[Struct, int]:
    """A struct of Thrift's compact protocol, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    fields: Struct = {}
    number = 0
    while head := source.byte():
        number = number + (head >> 4) if head >> 4 else source.zigzag()
        fields[number] = _value(source, head & 0x0F, depth)
    return fields, source.position


def _value(source: _Bytes, kind: int, depth: int) -> Any:
    match kind:
        case 1 | 2:  # true, false
            return kind == 1
        case 3:
            return source.byte()
        case 4 | 5 | 6:
            return source.zigzag()
        case 7:
            return source.take(8)
        case 8:
            return source.take(source.varint())
        case 9 | 10:
            return _list(source, depth)
        case 12:
            return _struct(source, depth + 1)[0]
    raise ValueError(f"it has a value of an unknown kind ({kind})")


def _list(source: _Bytes, depth: int) -> list[Any]:
    head = source.byte()
    count = head >> 4 if head >> 4 < 15 else source.varint()
    if count > source.end - source.position:
        raise ValueError("a list is longer than the file")
    kind = head & 0x0F
    if kind in (1, 2):  # in a list each truth value has a byte of its own
        return [source.byte() == 1 for _ in range(count)]
    return [_value(source, kind, depth + 1) for _ in range(count)]

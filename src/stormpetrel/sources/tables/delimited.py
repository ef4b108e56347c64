"""Delimited text -> frames of strings: fast where a block is sound, line by line where it is not.

block -> parse_block -> (frame with `line`, refused lines, records read). Shared by sacct text and CSV.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lines import MAX_LINE_BYTES, Block, Refused, count_byte, is_sound, shown, sound_lines

# What the reader puts in place of a delimiter of more than one byte; the first that the block does not contain.
_STAND_INS: Final = (b"\x1f", b"\x1e", b"\x1d", b"\x1c", b"\x02", b"\x03")
JOB_ID: Final = re.compile(rb"^\d+[\d_+.\[\]%,\-a-zA-Z]*$")
_MAX_PIECES: Final = 200
_MAX_COLUMNS: Final = 2_000  # sacct has some hundred


@dataclass(frozen=True, slots=True)
class Layout:
    """How the lines of one file are built."""

    names: tuple[str, ...]
    delimiter: bytes
    has_header: bool
    trailing: bool = False  # each line ends with a delimiter (`sacct --parsable`)
    quoted: bool = False  # fields may stand in double quotes (CSV)
    free_text: frozenset[str] = frozenset()  # fields in which a newline may stand as it is
    newline: bytes = b""  # what stands for a newline inside a field, where `one_line_records` has put it

    def __post_init__(self) -> None:
        if len(self.names) > _MAX_COLUMNS:
            raise SourceFormatError(
                f"The header names {len(self.names):,} columns; at most {_MAX_COLUMNS:,} are read.", hint="Check the file."
            )

    @property
    def width(self) -> int:
        """Delimiters plus one in a sound line."""
        return len(self.names) + self.trailing


def parse_block(block: Block, layout: Layout) -> tuple[pl.DataFrame, list[Refused], int]:
    """The sound lines of a block as a frame of strings with `line`; what was refused; how many records were read."""
    refused = list(block.refused)
    if not block.data:
        return _empty(layout), refused, len(refused)
    lines = block.lines
    frame = _parse_fast(block.data, lines, layout)
    if frame is None:
        frame, refused, read = _parse_carefully(block, layout, refused)
    else:
        frame = frame.with_columns(line=pl.int_range(block.first_line, block.first_line + lines, dtype=pl.Int64))
        read = lines + len(refused)
    if layout.newline and layout.newline in block.data:
        frame = frame.with_columns(pl.col(pl.String).str.replace_all(layout.newline.decode(), "\n", literal=True))
    return frame, refused, read


def one_line_records(blocks: Iterator[Block], layout: Layout) -> Iterator[Block]:
    """The same records, each on one line, for a delimiter that nobody can have put into a field.

    A record is complete when it has all its delimiters; a newline before that is part of a field, and `layout.newline` is put in
    its place. The last field must be one in which no newline can be. Lines of the new blocks count records.
    """
    rest, number, done = b"", 1, 0
    for block in blocks:
        done = block.bytes_done
        lines, rest = _join_lines(rest + block.data, layout)
        if len(rest) > MAX_LINE_BYTES:  # no record is that long: whatever this is, it will not become one
            lines, rest = [*lines, rest.replace(b"\n", layout.newline)], b""
        yield Block(b"".join(line + b"\n" for line in lines), number, len(lines), done, block.refused)
        number += len(lines)
    if rest:
        lines = rest.rstrip(b"\n").split(b"\n")
        yield Block(b"".join(line + b"\n" for line in lines), number, len(lines), done)


def _join_lines(data: bytes, layout: Layout) -> tuple[list[bytes], bytes]:
    """Whole records, a line each, and the beginning of one that is not complete yet."""
    wanted = layout.width - 1
    records: list[bytes] = []
    pieces: list[bytes] = []
    count = 0
    for line in data.split(b"\n")[:-1]:
        more = line.count(layout.delimiter)
        if pieces and count + more > wanted:  # what began before this line was no record: it is refused by itself
            records += pieces
            pieces, count = [], 0
        pieces.append(line)
        count += more
        if count >= wanted:
            records.append(layout.newline.join(pieces))
            pieces, count = [], 0
    return records, b"".join(piece + b"\n" for piece in pieces)


def _parse_fast(data: bytes, lines: int, layout: Layout) -> pl.DataFrame | None:
    """The whole block in one go, if it can be told that every line has the right number of fields; else None.

    A line with too many fields makes the CSV reader fail; if none has too many and the delimiters add up, none has too few.
    """
    separator = layout.delimiter
    if layout.quoted and b'"' in data:
        return None
    separators = count_byte(data, separator) if len(separator) == 1 else data.count(separator)
    if separators != lines * (layout.width - 1) or not is_sound(data):
        return None
    if len(separator) > 1:
        separator = next((byte for byte in _STAND_INS if byte not in data), b"")
        if not separator:
            return None
        data = data.replace(layout.delimiter, separator)
    return _read_strings(data, separator, layout, lines)


def _read_strings(data: bytes, separator: bytes, layout: Layout, lines: int) -> pl.DataFrame | None:
    names = [*layout.names, "_trailing"] if layout.trailing else list(layout.names)
    if len(names) == 1:
        return pl.DataFrame({names[0]: data.decode().split("\n")[:-1]})
    try:
        frame = pl.read_csv(
            io.BytesIO(data),
            has_header=False,
            separator=separator.decode(),
            quote_char=None,
            schema=dict.fromkeys(names, pl.String),
            truncate_ragged_lines=False,
        )
    except pl.exceptions.PolarsError:
        return None
    if frame.height != lines:
        return None
    return frame.drop("_trailing", strict=False)


def _parse_carefully(block: Block, layout: Layout, refused: list[Refused]) -> tuple[pl.DataFrame, list[Refused], int]:
    """Line by line: what cannot be a record is refused with its reason, the rest is read as one."""
    sound, bad = sound_lines(block)
    records, ragged = _records_of(sound, layout)
    refused = [*refused, *bad, *ragged]
    read = len(records) + len(refused)
    if not records:
        return _empty(layout), refused, read
    columns = list(zip(*(record for _, record in records), strict=True))
    frame = pl.DataFrame(
        {name: pl.Series(column, dtype=pl.String).replace("", None) for name, column in zip(layout.names, columns, strict=False)}
    )
    return frame.with_columns(line=pl.Series([number for number, _ in records], dtype=pl.Int64)), refused, read


def _records_of(lines: list[tuple[int, bytes]], layout: Layout) -> tuple[list[tuple[int, list[str]]], list[Refused]]:
    records: list[tuple[int, list[str]]] = []
    refused: list[Refused] = []
    position = 0
    while position < len(lines):
        number, line = lines[position]
        cells = _split(line, layout)
        if len(cells) == layout.width:
            records.append((number, cells))
            position += 1
            continue
        pieces = _pieces_of_one_record(lines, position, layout)
        if pieces:
            whole = b"\n".join(piece for _, piece in lines[position : position + pieces])
            records.append((number, whole.decode().split(layout.delimiter.decode())))
            position += pieces
            continue
        reason = f"the line has {len(cells)} columns, not {layout.width}"
        refused.append((number, "wrong_column_count", reason, shown(line)))
        position += 1
    return records, refused


def _split(line: bytes, layout: Layout) -> list[str]:
    text = line.decode()
    if layout.quoted and '"' in text:
        try:
            return next(csv.reader([text], delimiter=layout.delimiter.decode(), strict=True))
        except csv.Error:
            return [text]
    return text.split(layout.delimiter.decode())


def _pieces_of_one_record(lines: list[tuple[int, bytes]], position: int, layout: Layout) -> int:
    """How many lines one record covers whose free text holds newlines; 0 if these lines are no such record.

    Strict on purpose, so that two damaged neighbours never make one false record: the first piece must begin with a job id,
    each must break off inside a free-text field, none but the first may begin with a job id, and the last must end the record.
    """
    count = 0
    for pieces in range(1, min(_MAX_PIECES, len(lines) - position) + 1):
        piece = lines[position + pieces - 1][1]
        begins = bool(JOB_ID.match(piece.split(layout.delimiter, 1)[0]))
        if begins != (pieces == 1):
            return 0
        count += piece.count(layout.delimiter)
        if count >= layout.width - 1:
            return pieces if count == layout.width - 1 and pieces > 1 else 0
        if layout.names[count] not in layout.free_text:
            return 0
    return 0


def _empty(layout: Layout) -> pl.DataFrame:
    return pl.DataFrame(schema={**dict.fromkeys(layout.names, pl.String), "line": pl.Int64})

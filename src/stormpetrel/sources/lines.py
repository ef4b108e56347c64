"""Files as blocks of whole lines: plain, gzip or standard input, of any length, with damage set aside.

path -> blocks -> (lines that can be read, rejects). Compressed files that break off give what could be read of them.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import IO, Final

import numpy as np

from stormpetrel.errors import SourceError, SourceFormatError

BLOCK_BYTES: Final = 16 * 1024 * 1024  # small enough that the allocator reuses its memory: a third off reading
MAX_LINE_BYTES: Final = 1024 * 1024  # a job record is a few hundred bytes; what is longer is damage or an attack
_GZIP_MAGIC: Final = b"\x1f\x8b"
# How other compressed files begin, and what unpacks them: none of it is read here.
_OTHER_MAGIC: Final = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
_LONGEST_MAGIC: Final = 6
_COMPRESSED_BYTES: Final = 1024 * 1024
_SHOWN_BYTES: Final = 1024  # of a refused line, this much is kept in quarantine
# What a small file may unpack to. Job logs shrink to a fifth or a twentieth; what shrinks to a hundredth is no log.
_FREELY_UNPACKED_BYTES: Final = 64 * 1024 * 1024
_MOST_UNPACKED: Final = 100
# A block has at most so many lines, since each costs more than its bytes; records are longer than a few bytes.
MAX_BLOCK_LINES: Final = 131_072
_SHORTEST_ON_AVERAGE: Final = 8

Refused = tuple[int, str, str, str]  # line, rule, reason, raw


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines (the last one ends in a newline), the number of the first, and what was refused before it was a line."""

    data: bytes
    first_line: int
    lines: int
    bytes_done: int
    refused: tuple[Refused, ...] = ()


class LineFile:
    """A file, or standard input (`-`), that is read once from its beginning, in blocks of whole lines."""

    def __init__(self, path: Path | str, *, block_bytes: int = BLOCK_BYTES) -> None:
        self.is_stdin = str(path) == "-"
        self.path = Path(path)
        self.block_bytes = block_bytes
        self.is_stream = self.is_stdin  # can be read once only
        if self.is_stdin:
            self.size_bytes, self.as_of = 0, datetime.now(UTC)
            return
        try:
            stat = self.path.stat()
        except OSError as error:
            raise cannot_read(self.path, error) from error
        if self.path.is_dir():
            raise SourceError(f"{self.path} is a folder.", hint="Name the files in it, as in FOLDER/*.")
        self.is_stream = not S_ISREG(stat.st_mode)
        self.size_bytes = 0 if self.is_stream else stat.st_size
        self.as_of = datetime.now(UTC) if self.is_stream else datetime.fromtimestamp(stat.st_mtime_ns // 1000 / 1e6, UTC)

    @property
    def name(self) -> str:
        """How the file is called in messages."""
        return "standard input" if self.is_stdin else os.fsencode(self.path).decode("utf-8", "backslashreplace")

    def head(self, size: int = 65536) -> bytes:
        """The beginning of the content, decompressed, without moving anything; empty for what can be read once only."""
        if self.is_stream:
            return b""
        content = b""
        try:
            for piece, _ in self.pieces(size):
                content += piece
                if len(content) >= size:
                    break
        except BrokenOffError:
            pass
        return content[:size]

    def blocks(self) -> Iterator[Block]:
        """The content in blocks of whole lines.

        A line longer than MAX_LINE_BYTES is refused as it streams by, never held. Where a compressed file breaks off, the
        unfinished last line is refused and everything before it is good.
        """
        cutter, position = _Cutter(), 0
        try:
            for piece, position in self.pieces(self.block_bytes):
                yield from cutter.feed(piece, position)
        except BrokenOffError as error:
            yield from cutter.broken_off(str(error), position)
        else:
            yield from cutter.finish(position)

    def pieces(self, size: int) -> Iterator[tuple[bytes, int]]:
        """Pieces of about `size` bytes, each with how many bytes of the file have been read for it."""
        try:
            raw = sys.stdin.buffer if self.is_stdin else self.path.open("rb")
        except OSError as error:
            raise cannot_read(self.path, error) from error
        with nullcontext() if self.is_stdin else raw:
            position = (lambda: 0) if self.is_stream else raw.tell
            first = raw.read(_LONGEST_MAGIC)
            if packed := next((how for magic, how in _OTHER_MAGIC.items() if first.startswith(magic)), None):
                raise SourceFormatError(
                    f"{self.name} is packed with {packed[0]}; only gzip is unpacked here.",
                    hint=f"Unpack it first: {packed[1]} {self.name} > FILE, and read that file.",
                )
            if first.startswith(_GZIP_MAGIC):
                for piece in self._not_too_tight(_gunzip(raw, first, size)):
                    yield piece, position()
                return
            while piece := first + raw.read(size):
                first = b""
                yield piece, position()

    def _not_too_tight(self, unpacked: Iterator[tuple[bytes, int]]) -> Iterator[bytes]:
        """The pieces of a compressed file, as long as they are in proportion to what was read for them."""
        total = 0
        for piece, compressed in unpacked:
            total += len(piece)
            if total > max(_FREELY_UNPACKED_BYTES, _MOST_UNPACKED * compressed):
                raise SourceFormatError(
                    f"{self.name} unpacks to more than {_MOST_UNPACKED} times its size; a log does not.",
                    hint="Look at it; if it is sound, unpack it with gunzip and read the plain file.",
                )
            yield piece


class BrokenOffError(Exception):
    """A compressed file ended or went wrong before its end."""


def _gunzip(raw: IO[bytes], first: bytes, size: int) -> Iterator[tuple[bytes, int]]:
    """Decompress member after member, at most `size` bytes at a time, each piece with how many compressed bytes were read.

    All that is good comes before the error.

    (GzipFile would lose what it decompressed in the same call before it noticed the damage.)
    """
    inflater = zlib.decompressobj(wbits=31)
    held, waiting, compressed = bytearray(), first, len(first)
    while True:
        if not waiting:
            waiting = raw.read(_COMPRESSED_BYTES)
            compressed += len(waiting)
        if not waiting:
            break
        try:
            held += inflater.decompress(waiting, size)
        except zlib.error as error:
            yield bytes(held), compressed
            raise BrokenOffError(str(error)) from error
        waiting = inflater.unconsumed_tail
        if inflater.eof:
            waiting = inflater.unused_data.lstrip(b"\0")  # padding between members is allowed
            inflater = zlib.decompressobj(wbits=31)
            if not waiting:
                waiting = raw.read(_COMPRESSED_BYTES)
                compressed += len(waiting)
                waiting = waiting.lstrip(b"\0")
            if waiting[: len(_GZIP_MAGIC)] != _GZIP_MAGIC[: len(waiting)] or not waiting:  # the end, or what gzip ignores as well
                yield bytes(held), compressed
                return
        if len(held) >= size:
            yield bytes(held), compressed
            held.clear()
    yield bytes(held), compressed
    raise BrokenOffError("end of file before the end of the compressed data")


class _Cutter:
    """Cuts a stream of pieces at line ends, with bounded memory."""

    def __init__(self) -> None:
        self.tail = b""  # the unfinished line at the end of the last piece
        self.line = 1
        self.dropping = 0  # length so far of a line that is too long to keep
        self.long_head = ""
        self.refused: list[Refused] = []

    def feed(self, piece: bytes, position: int) -> Iterator[Block]:
        if self.dropping:
            end = piece.find(b"\n")
            if end < 0:
                self.dropping += len(piece)
                return
            self._refuse_long(self.dropping + end)
            piece = piece[end + 1 :]
        end = piece.rfind(b"\n") + 1
        if end:
            whole = b"".join((self.tail, memoryview(piece)[:end]))  # the one copy there is
            self.tail = piece[end:]
            yield from self._block(whole, position)
        else:
            self.tail += piece
        if len(self.tail) > MAX_LINE_BYTES:
            self.long_head = shown(self.tail)
            self.dropping = len(self.tail)
            self.tail = b""

    def finish(self, position: int) -> Iterator[Block]:
        if self.dropping:
            self._refuse_long(self.dropping)
        yield from self._block(self.tail + b"\n" if self.tail else b"", position)

    def broken_off(self, why: str, position: int) -> Iterator[Block]:
        reason = f"the compressed file breaks off here: {why}"
        self.refused.append((self.line, "truncated_file", reason, shown(self.tail)))
        yield from self._block(b"", position)

    def _block(self, data: bytes, position: int) -> Iterator[Block]:
        lines = count_byte(data, b"\n")
        if lines > MAX_BLOCK_LINES:
            ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))[MAX_BLOCK_LINES - 1 :: MAX_BLOCK_LINES] + 1
            for start, end in pairwise([0, *ends.tolist()]):
                yield from self._one_block(data[start:end], MAX_BLOCK_LINES, position)
            data, lines = data[int(ends[-1]) :], lines - MAX_BLOCK_LINES * len(ends)
        yield from self._one_block(data, lines, position)

    def _one_block(self, data: bytes, lines: int, position: int) -> Iterator[Block]:
        first = self.line
        self.line += lines
        if lines == MAX_BLOCK_LINES and len(data) < _SHORTEST_ON_AVERAGE * lines:
            if data.strip():
                reason = f"{lines:,} lines that are shorter than {_SHORTEST_ON_AVERAGE} bytes on average: no log has such"
                self.refused.append((first, "lines_too_short", reason, shown(data[:100])))
            data, lines = b"", 0
        refused = tuple(self.refused)
        self.refused.clear()
        if data or refused:
            yield Block(data, first, lines, position, refused)

    def _refuse_long(self, length: int) -> None:
        reason = f"the line is {length:,} bytes long; at most {MAX_LINE_BYTES:,} are read"
        self.refused.append((self.line, "line_too_long", reason, self.long_head))
        self.line += 1
        self.dropping = 0


def sound_lines(block: Block) -> tuple[list[tuple[int, bytes]], list[Refused]]:
    """The lines of a block with their numbers, and those refused: too long, NUL bytes, invalid UTF-8. Blank ones vanish."""
    good: list[tuple[int, bytes]] = []
    refused: list[Refused] = []
    for number, line in enumerate(block.data.split(b"\n")[:-1], start=block.first_line):
        text = line.rstrip(b"\r")
        if not text.strip(b" \t\x0c"):
            continue
        problem = line_problem(text)
        if problem:
            refused.append((number, *problem, shown(text)))
        else:
            good.append((number, text))
    return good, refused


def line_problem(line: bytes) -> tuple[str, str] | None:
    """The rule a line breaks before anything is known of its format, and the reason; None for a sound line."""
    if len(line) > MAX_LINE_BYTES:
        return "line_too_long", f"the line is {len(line):,} bytes long; at most {MAX_LINE_BYTES:,} are read"
    if b"\0" in line:
        return "nul_byte", "the line holds NUL bytes"
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return "invalid_utf8", f"the line is not valid UTF-8 at byte {error.start}"
    return None


def count_byte(data: bytes, byte: bytes) -> int:
    """How often a byte occurs; where it is frequent, several times as fast as bytes.count."""
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == byte[0]))


def is_sound(data: bytes) -> bool:
    """Whether every line of a block passes `line_problem` and ends in a plain newline, told without looking at each line."""
    if b"\0" in data or b"\r" in data:
        return False
    half = MAX_LINE_BYTES // 2  # a line that is too long spans at least one whole half-window without a newline
    if any(data.find(b"\n", start, start + half) < 0 for start in range(0, len(data) - half, half)):
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(raw: bytes) -> str:
    """The beginning of a refused line as text that can be stored and printed: control characters and bad bytes escaped."""
    text = raw[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() or letter == "\t" else f"\\x{ord(letter):02x}" for letter in text)


def cannot_read(path: Path, error: OSError) -> SourceError:
    """The one sentence for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"There is no file {path}.", hint="Check the path.")
    return SourceFormatError(f"{path} cannot be read: {error.strerror or error}.", hint="Check its permissions.")

"""JSON documents that hold a long list of records -> the records, one at a time, damaged ones set aside.

The list is the document itself, the value of one key of it, or one record per line; it is never held as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lines import BrokenOffError, LineFile, Refused, shown

_PIECE_BYTES: Final = 4 * 1024 * 1024
MAX_RECORD: Final = 16 * 1024 * 1024
_SPACE: Final = re.compile(r"[\s,]*")
# Looking for the next sound record behind a damaged one is guesswork. A file may cost so many guesses, and so much text that is
# read for them, and more for each record that is sound; beyond that it is not damaged but something else.
_GUESSES: Final = 20_000
_GUESSES_PER_RECORD: Final = 100
_GUESSED_TEXT: Final = 256 * 1024 * 1024
_FIRST_GUESS: Final = 64 * 1024  # characters of a guess that are decoded at first: nearly all records are shorter
_BEGINNING: Final = re.compile(r"(?:[^\s:]|\n)\s*\{")  # an object that is no value of another one's key, or begins a line

Record = dict[str, Any]


def records_in(
    file: LineFile, *, key: str | None, is_record: Callable[[Record], bool]
) -> Iterator[tuple[int, Record | Refused, int]]:
    """The records of a file as (number, record or refusal, bytes read so far).

    After a record that is no JSON, reading goes on at the next place where one begins that `is_record` accepts.
    """
    reader = RecordReader(file, is_record, key)
    reader.skip_to_list()
    yield from reader.records()


class RecordReader:
    """A window of text that slides over the file."""

    def __init__(
        self, file: LineFile, is_record: Callable[[Record], bool], key: str | None, piece_bytes: int | None = None
    ) -> None:
        self._key = re.compile(rf'"{re.escape(key)}"\s*:\s*\[') if key else None
        self._pieces = file.pieces(piece_bytes or _PIECE_BYTES)
        self._is_record = is_record
        self._decoder = json.JSONDecoder()
        self._rest = b""
        self.text = ""
        self.done = 0
        self.broken = ""
        self.number = 0
        self._name = file.name
        self._good = self._guesses = self._guessed_text = 0

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        piece = self.next_piece()
        if piece is None:
            return False
        self._take(piece)
        return True

    def _take(self, piece: bytes) -> None:
        raw = self._rest + piece
        # Not cut inside a character: what is no UTF-8 at all becomes a mark that no record can hold.
        cut = len(raw)
        while cut > len(raw) - 4 and cut and raw[cut - 1] & 0xC0 == 0x80:
            cut -= 1
        if cut and raw[cut - 1] >= 0xC0:
            cut -= 1
        else:
            cut = len(raw)
        self._rest = raw[cut:]
        self.text += raw[:cut].decode("utf-8", "replace").replace("\ufffd", "\0")

    def next_piece(self) -> bytes | None:
        """The next bytes of the file as they are; None at its end."""
        try:
            piece, self.done = next(self._pieces)
        except StopIteration:
            return None
        except BrokenOffError as error:
            self.broken = f": {error}"
            return None
        return piece

    def go_on_with(self, rest: bytes) -> None:
        """Go on here, before the pieces that were not read yet."""
        self._rest = rest
        if rest:
            self._take(b"")

    def count_good(self, records: int) -> None:
        """Count records that were read elsewhere."""
        self.number += records
        self._good += records

    def skip_to_list(self) -> None:
        """Drop what comes before the list; where there is none, the text is taken as one record after another."""
        if not self.text and not self.more():
            return
        self.text = self.text.lstrip("\ufeff \t\r\n")
        if self.text.startswith("["):
            self.text = self.text[1:]
            return
        if self._key and (key_end := self._find_key(0)):
            self.text = self.text[key_end:]

    def _find_key(self, position: int) -> int:
        """Where the list begins that the key names, after a position; 0 if there is none."""
        assert self._key is not None
        while not (match := self._key.search(self.text, position)):
            if len(self.text) - position > MAX_RECORD or not self.more():
                return 0
        return match.end()

    def _is_stray(self, position: int) -> bool:
        """Whether records go on behind a bracket that should have been the end of their list."""
        return self.text[position : position + 1] in ("{", "]")

    def _after_list(self, position: int) -> int:
        """Where the next list begins, of documents that were put one after the other; 0 at the end of the last."""
        if self._key:
            return self._find_key(position)
        return position + 1 if self.text[position : position + 1] == "[" else 0

    def records(self) -> Iterator[tuple[int, Record | Refused, int]]:
        """The records from here on, each with its number, or why it was refused."""
        position = 0
        while (position := self._next_start(position)) < len(self.text):
            if self.text[position] == "]":
                position = self._next_start(position + 1)
                if self._is_stray(position):
                    yield self._refuse("stray_bracket", "a ']' stands between two records", "]")
                elif not (position := self._after_list(position)):
                    break
                continue
            try:
                value, end = self._decoder.raw_decode(self.text, position)
            except (ValueError, RecursionError) as error:
                if len(self.text) - position < MAX_RECORD and self._grow(position):
                    position = 0
                    continue
                # From its beginning on: a decoder's error counts all lines before it, which adds up.
                self.text = self.text[position:]
                refusal, position = self._skip_damage(0, str(error))
                yield refusal
                continue
            if end >= len(self.text) - 1 and not isinstance(value, dict) and self._grow(position):
                position = 0  # a number cut in two looks like a whole one
                continue
            yield self._judge(value, self.text[position:end])
            position = end
            if position > _PIECE_BYTES:
                self.text, position = self.text[position:], 0
        if self.broken:
            yield self._refuse("truncated_file", f"the file breaks off{self.broken}", "")

    def _judge(self, value: object, raw: str) -> tuple[int, Record | Refused, int]:
        if not isinstance(value, dict) or not self._is_record(value) or "\0" in raw:
            return self._refuse("not_a_record", "this is no record of a job", raw)
        self.number += 1
        self._good += 1
        return self.number, value, self.done

    def _next_start(self, position: int) -> int:
        while True:
            match = _SPACE.match(self.text, position)
            position = match.end() if match else position
            if position < len(self.text) or not self._grow(position):
                return position if position < len(self.text) else len(self.text)
            position = 0

    def _grow(self, position: int) -> bool:
        """Read on, dropping what lies before the position; False at the end, with nothing dropped."""
        if not self.more():
            return False
        self.text = self.text[position:]
        return True

    def _skip_damage(self, start: int, why: str) -> tuple[tuple[int, Refused, int], int]:
        """Refuse what stands here, and find where the next record begins."""
        for candidate in _BEGINNING.finditer(self.text, start + 1):
            end = candidate.end() - 1
            value = self._guess(end)
            if isinstance(value, dict) and self._is_record(value):
                return self._refuse("invalid_json", f"this is no JSON: {why}", self.text[start:end]), end
        end = len(self.text)
        return self._refuse("truncated_record", f"this is no JSON: {why}", self.text[start:end]), end

    def _guess(self, position: int) -> object:
        """What stands at a place where a record may begin; None if it is no JSON.

        Decoded in a copy of what follows, at first of a short piece: a decoder's error counts all the lines before it.
        """
        length = _FIRST_GUESS
        while True:
            self._guesses += 1
            piece = self.text[position : position + length]
            try:
                return self._decoder.raw_decode(piece)[0]
            except ValueError:
                pass  # perhaps because it is cut off: once more with more of it
            except RecursionError:
                return None
            finally:
                self._guessed_text += len(piece)
                self._check_guesses()
            if len(piece) < length or length >= MAX_RECORD:
                return None
            length *= 16

    def _check_guesses(self) -> None:
        if self._guesses > _GUESSES + _GUESSES_PER_RECORD * self._good or self._guessed_text > _GUESSED_TEXT:
            raise SourceFormatError(
                f"{self._name} is damaged in too many places: {self._good:,} records could be read, the rest was not looked at.",
                hint="Check that it is JSON of the format that was named, and write it again; what could be read is kept.",
            )

    def _refuse(self, rule: str, reason: str, raw: str) -> tuple[int, Refused, int]:
        self.number += 1
        return self.number, (self.number, rule, reason[:200], shown(raw[:4096].encode())), self.done

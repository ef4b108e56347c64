"""What every job source keeps to: chunks of raw records, and one function that makes a job frame of them.

A source yields `Chunk`s. The store drops the records it already knows *before* they are translated, which is what makes a
second ingest of the same file cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.jobs import JOB_SCHEMA, VALUES, conform, field_mask, job_frame
from stormpetrel.records.quality import no_rejects
from stormpetrel.records.quality import rejects as rejects_of
from stormpetrel.records.text_maps import TEXT_MAP
from stormpetrel.records.unread import DECISIVE, UNREAD, no_unread, safe_text
from stormpetrel.sources.lines import BLOCK_BYTES, LineFile

Translation = tuple[pl.DataFrame, pl.DataFrame]  # (job frame with `record`, `line` and `unread`, rejects)
Translate = Callable[[pl.DataFrame, "pl.DataFrame | None"], Translation]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of a source.

    `records` holds one row per job record: `record` (a number, unique in the chunk), `line` (where it stood) and whatever
    raw columns the source has. `steps` holds the rows that will be folded into a job, by its `record`. `meaning` is whatever
    else decides what the records say (names of columns, time zone, header): the same text under another one is another record.
    """

    records: pl.DataFrame
    translate: Translate
    read: int
    meaning: str = ""
    rejects: pl.DataFrame = field(default_factory=no_rejects)
    steps: pl.DataFrame | None = None
    folded: int = 0
    bytes_done: int = 0


class JobSource(Protocol):
    """A log or a server that job records can be read from."""

    name: str  # for people: the file or address
    format: str  # `sacct`, `swf`, …
    as_of: datetime  # when these records were true, as far as the source can say
    size_bytes: int  # 0 where unknown; for the progress bar
    notes: list[str]  # what a person should know about how it was read
    cursor: Cursor | None  # of a live source: committed with its last rows

    def fields(self) -> frozenset[str]:
        """The value columns this source provides, known once its header has been read."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """Read on, a chunk at a time."""
        ...


class FileSource:
    """What every source that reads a file has: the file, its name, its time."""

    def __init__(self, path: Path | str, block_bytes: int | None = None) -> None:
        self._file = LineFile(path, block_bytes=block_bytes or BLOCK_BYTES)
        self.name, self.as_of, self.size_bytes = self._file.name, self._file.as_of, self._file.size_bytes
        self.notes: list[str] = []
        self.cursor: Cursor | None = None


class LiveSource:
    """What every source that asks a server has: what was asked, when, and the cursor that says it has been read."""

    def __init__(self, name: str, cursor: Cursor | None) -> None:
        self.name = name
        self.as_of = datetime.now(UTC)
        self.size_bytes = 0
        self.notes: list[str] = []
        self.cursor: Cursor | None = cursor
        self.rows_read: int | None = None  # records in the answer, once it has been read to its end; only windows of time count
        self._columns: frozenset[str] = frozenset()

    def fields(self) -> frozenset[str]:
        """The job columns that the server's version fills; known once it has answered."""
        return self._columns


# A file whose records are nearly all refused is not what it was taken for; going on would only fill the quarantine.
_REFUSED_AT_MOST: Final = 100_000
_REFUSED_PER_GOOD: Final = 20


def hopeful_chunks(source: JobSource) -> Iterator[Chunk]:
    """The chunks of a source, until it is clear that it is not what it was taken for; then SourceFormatError."""
    good = refused = 0
    for chunk in source.chunks():
        good += chunk.records.height
        refused += chunk.rejects.height
        yield chunk
        if refused > _REFUSED_AT_MOST + _REFUSED_PER_GOOD * good:
            raise SourceFormatError(
                f"{source.name}: {refused:,} records were refused and {good:,} could be read; the rest was not looked at.",
                hint="Check the format (--format) and the file; what could be read is kept.",
            )


def mask_of(source: JobSource) -> int:
    """The source's columns as a bit mask."""
    return field_mask(source.fields() | {"source"})


def chunk_of_jobs(
    rows: list[dict[str, object]], lines: list[int], *, read: int, rejects: pl.DataFrame, folded: int = 0, bytes_done: int = 0
) -> Chunk:
    """A chunk for sources that build job rows one by one (JSON, PBS, HTCondor): nothing is left to translate but types.

    A row may have `unread`: the texts of the columns that could not be read.
    """
    frame, lines, unread, refused = _typed(rows, lines, [row.pop(UNREAD, None) or None for row in rows])
    frame = frame.with_columns(
        pl.Series("record", range(frame.height), dtype=pl.UInt32),
        pl.Series("line", lines, dtype=pl.Int64),
        pl.Series(UNREAD, unread, dtype=TEXT_MAP),
    )
    rejects = pl.concat([rejects, refused])
    return Chunk(records=frame, translate=_already_typed, read=read, rejects=rejects, folded=folded, bytes_done=bytes_done)


def _typed(
    rows: list[dict[str, object]], lines: list[int], unread: list[object]
) -> tuple[pl.DataFrame, list[int], list[object], pl.DataFrame]:
    """The rows as a frame; where a value does not fit its column, the rows one by one, so that only that value is lost."""
    try:
        return job_frame(rows), lines, unread, no_rejects()
    except _DOES_NOT_FIT:
        good, places, texts, bad = list[pl.DataFrame](), list[int](), list[object](), list[tuple[int, str, str, str]]()
    for row, line, noted in zip(rows, lines, unread, strict=True):
        fitting, odd = _fitting(row)
        decisive = next((name for name in odd if name in DECISIVE), None)
        if decisive:
            bad.append((line, "bad_value", f"{decisive} cannot be read: {odd[decisive][:60]}", repr(row)[:4096]))
            continue
        good.append(job_frame([fitting]))
        places.append(line)
        texts.append({**(noted if isinstance(noted, dict) else {}), **odd} or None)
    return pl.concat([job_frame([]), *good]), places, texts, rejects_of(bad)


def _fitting(row: dict[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """The values of a row that fit their columns, and the texts of the others."""
    odd = {name: safe_text(row[name]) for name in JOB_SCHEMA if name in row and not _fits(row[name], name)}
    return {name: value for name, value in row.items() if name not in odd}, odd


def _fits(value: object, name: str) -> bool:
    try:
        pl.Series([value], dtype=JOB_SCHEMA[name])
    except _DOES_NOT_FIT:
        return False
    return True


_DOES_NOT_FIT = (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError)


def _already_typed(records: pl.DataFrame, _steps: pl.DataFrame | None) -> Translation:
    return records, no_rejects()


def with_schema(frame: pl.DataFrame) -> pl.DataFrame:
    """A translated frame with all the columns of the schema; `record`, `line` and `unread` kept beside them."""
    unread = frame[UNREAD] if UNREAD in frame.columns else no_unread(frame.height)
    return pl.concat([conform(frame), frame.select("record", "line", unread)], how="horizontal")


ALL_VALUE_COLUMNS = frozenset(VALUES)

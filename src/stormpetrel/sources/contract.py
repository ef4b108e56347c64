"""The contracts of sources: jobs, counts of events, background of a cluster, outages.

**Jobs.** JobSource -> chunks -> Chunk of raw records, and one function that types them as a job frame. The store drops the
records that it already knows *before* they are translated, which makes a second ingest of the same file cheap. `FileSource` and
`LiveSource` are what sources of files and of servers share.

**Events.** EventSource -> spans -> CountedSpan -> the store. A span holds what a source knows of a stretch of time: the counts,
the coverage (a marker for each bucket that it has seen whole), and what is missing with its reason.

::

    class Somewhere:                                     # EventSource
        def __init__(self, ...) -> None:
            self.source, self.notes = "elastic:fifebatch-*", []

        def spans(self, cursor, now):
            read_to = cursor(self.source)                # None at the first run
            for start, end in ...:                       # oldest first; both at the edge of a bucket
                counts = count_events(events, source=self.source, bucket_s=3600, most_places=100)
                marks = covered(self.source, start, seen_to, 3600, counts)
                yield CountedSpan(start, end, pl.concat([counts, marks]), cursor=Cursor(self.source, position))

A span that is not `additive` is *all* that the source says of [start, end): the store puts it in place of what it said before.
Buckets without a mark leave alone what was seen whole before. An `additive` span (a log that is read on) holds only events that
no earlier span held; it must have a cursor, and is added once, however often it is brought. A source that fails raises
SourceUnavailableError between two spans: what was taken in stays, and the store records the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import Missing
from stormpetrel.records.jobs import JOB_SCHEMA, TEXT_MAP, conform, field_mask, job_frame
from stormpetrel.records.outages import Outage
from stormpetrel.records.quality import no_rejects
from stormpetrel.records.quality import rejects as rejects_of
from stormpetrel.records.unread import DECISIVE, UNREAD, no_unread, safe_text
from stormpetrel.sources.lines import BLOCK_BYTES, LineFile

Translation = tuple[pl.DataFrame, pl.DataFrame]  # (job frame with `record`, `line` and `unread`, rejects)
Translate = Callable[[pl.DataFrame, "pl.DataFrame | None"], Translation]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of a source.

    `records` holds one row per job record: `record` (a number, unique in the chunk), `line` (where it stood) and whatever
    raw columns the source has. `steps` holds the rows that will be merged into a job, by its `record`. `meaning` is whatever
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
    """What every source that reads a server has: what was requested, when, and the cursor that stands for it."""

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


def chunk_of_columns(jobs: pl.DataFrame, lines: Sequence[int], others: Chunk, *, read: int, bytes_done: int = 0) -> Chunk:
    """A chunk for sources that build job rows by columns, with those of another that were built one by one in their places."""
    typed = conform(jobs).with_columns(
        pl.Series("record", [0], dtype=pl.UInt32).new_from_index(0, jobs.height),
        pl.Series("line", lines, dtype=pl.Int64),
        no_unread(jobs.height),
    )
    records = typed if others.records.is_empty() else pl.concat([typed, others.records]).sort("line", maintain_order=True)
    numbered = records.with_columns(pl.Series("record", range(records.height), dtype=pl.UInt32))
    return Chunk(records=numbered, translate=_already_typed, read=read, rejects=others.rejects, bytes_done=bytes_done)


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
    """A translated frame with all the columns of the schema; `record`, `line` and `unread` kept next to them."""
    unread = frame[UNREAD] if UNREAD in frame.columns else no_unread(frame.height)
    return pl.concat([conform(frame), frame.select("record", "line", unread)], how="horizontal")


@dataclass(frozen=True, slots=True, eq=False)
class CountedSpan:
    """What a source knows of the time from `start` to before `end` (UTC)."""

    start: datetime
    end: datetime
    counts: pl.DataFrame  # COUNT_SCHEMA, marks included
    cursor: Cursor | None = None
    additive: bool = False
    quarantined: dict[str, int] = field(default_factory=dict)  # events that were not counted, by reason: future, bad_time, …
    missing: list[Missing] = field(default_factory=list)  # stretches that were not seen, with the reason in words
    done: float = 0.0  # share of the whole reading, for the progress bar; 0 where nobody knows


class EventSource(Protocol):
    """A server, a log or a file that counts of events come from."""

    source: str  # its name in COUNT_SCHEMA, such as `elastic:fifebatch-*`
    notes: list[str]  # what a person should know about how it was read

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """Read on from the cursor up to what is over and settled at `now`, oldest first."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BackgroundSpan:
    """What a server says of the background from `start` to before `end` (UTC)."""

    start: datetime
    end: datetime
    values: pl.DataFrame  # BACKGROUND_SCHEMA
    cursor: Cursor | None = None


class BackgroundSource(Protocol):
    """A server that queued jobs, slots, utilisation and the like come from."""

    source: str  # graphite, prometheus
    notes: list[str]

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[BackgroundSpan]:
        """Read on from the cursor up to what is over and settled at `now`, oldest first."""
        ...


class OutageSource(Protocol):
    """Somebody who names outages and maintenance: Grafana, a calendar, a file."""

    source: str  # grafana, file:NAME
    notes: list[str]

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """All that this source says of the time from `start` to `end`."""
        ...

"""Reading whole logs without a site: files -> one job frame, each job once, and what was refused.

For `jobs evaluate FILE` and its kin. A site's ingest does more: it keeps what it read, and remembers what was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.jobs import JOB_SCHEMA, KEY
from stormpetrel.records.quality import check
from stormpetrel.records.unread import UnreadCounts, settle
from stormpetrel.sources.contract import hopeful_chunks
from stormpetrel.sources.formats import ReadOptions, open_source


@dataclass(frozen=True, slots=True)
class ReadLog:
    """The jobs of some files, in the order of submission, and how many records were refused by which rule."""

    jobs: pl.DataFrame
    refused: dict[str, int]
    notes: tuple[str, ...]


def read_log(
    paths: Sequence[str],
    format_name: str | None,
    options: ReadOptions,
    *,
    progress: Callable[[int, int], None] = lambda _done, _count: None,
) -> ReadLog:
    """Read files to their end; of several records of one job the last one counts."""
    frames: list[pl.DataFrame] = []
    refused: Counter[str] = Counter()
    notes: list[str] = []
    unread = UnreadCounts()
    count = 0
    now = datetime.now(UTC)
    for path in paths:
        source = open_source(path, format_name, options)
        for chunk in hopeful_chunks(source):
            refused.update(chunk.rejects["rule"].to_list())
            if chunk.records.height:
                translated, bad = chunk.translate(chunk.records, chunk.steps)
                good, odd, _ = check(translated, now=now)
                good, odd_values = settle(good)
                unread.merge(odd_values)
                refused.update(bad["rule"].to_list() + odd["rule"].to_list())
                frames.append(good.select(list(JOB_SCHEMA)))
                count += good.height
            progress(chunk.bytes_done, count)
        notes += source.notes
    if not count:
        reasons = f" ({', '.join(f'{n} × {rule}' for rule, n in refused.most_common(3))})" if refused else ""
        raise SourceFormatError(
            f"No job could be read from {', '.join(paths)}{reasons}.", hint="Name the format with --format, or check the file."
        )
    notes += [
        f"{column} cannot be read in {rows:,} of {unread.filled[column]:,} records ({unread.examples[column][0]})"
        for column, rows in sorted(unread.counts.items())
    ]
    jobs = pl.concat(frames).unique(subset=list(KEY), keep="last", maintain_order=True)
    return ReadLog(jobs.sort("submit_time", maintain_order=True), dict(refused), tuple(notes))

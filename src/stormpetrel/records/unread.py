"""Values that cannot be read: only identity, submit time and state can refuse a record; any other odd value costs itself alone.

A source gives its rows with a column `unread` (job column -> text it could not read) -> settle -> the rows with those texts in
`extra` under `unread.<column>`, and UnreadCounts. The value itself is null. `set_aside` does the same to values that could be
read and cannot be true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from stormpetrel.records.jobs import TEXT_MAP, as_map, joined, no_map

UNREAD: Final = "unread"
PREFIX: Final = "unread."  # of the keys in `extra`
LONGEST: Final = 200  # characters of a text that are kept
EXAMPLES: Final = 3
# What refuses a record where it cannot be read: the key of the job table, and the state.
DECISIVE: Final = frozenset({"cluster", "job_id", "array_task", "submit_time", "restart", "state"})
_NOT_SHOWN: Final = r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]"  # control characters, and those that change the direction of a line


@dataclass(slots=True)
class UnreadCounts:
    """How many values of each job column could not be read, out of how many that were filled, with samples."""

    counts: dict[str, int] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)  # of every column: values that were read, and those that were not
    examples: dict[str, list[str]] = field(default_factory=dict)

    def merge(self, other: UnreadCounts) -> None:
        """Add the counts of another chunk, keeping three examples of each column."""
        for mine, theirs in ((self.counts, other.counts), (self.filled, other.filled)):
            for column, count in theirs.items():
                mine[column] = mine.get(column, 0) + count
        for column, examples in other.examples.items():
            self.examples[column] = [*self.examples.get(column, []), *examples][:EXAMPLES]


def safe_text(text: object) -> str:
    """A text that could not be read as it is kept: of one line, without control characters, of bounded length."""
    whole = str(text)[:LONGEST].encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in whole)


def safe_texts(texts: pl.Series) -> pl.Series:
    """The same of a whole column."""
    return texts.str.slice(0, LONGEST).str.replace_all(_NOT_SHOWN, "?")


def set_aside(jobs: pl.DataFrame, odd: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """The rows without the values of those columns that are odd (column -> where); what they said is noted as unread."""
    flags = jobs.select(where.fill_null(False).alias(column) for column, where in odd.items())
    hit = [column for column in flags.columns if flags[column].any()]
    if not hit:
        return jobs
    texts = {column: _only(jobs[column].cast(pl.String), flags[column]) for column in hit}
    noted = as_map(texts)
    known = jobs[UNREAD] if UNREAD in jobs.columns else no_map(jobs.height)
    return jobs.with_columns(
        *(pl.when(~flags[column]).then(pl.col(column)).alias(column) for column in hit), joined(known, noted).alias(UNREAD)
    )


def settle(jobs: pl.DataFrame) -> tuple[pl.DataFrame, UnreadCounts]:
    """The rows with the texts of `unread` in `extra`, and how many there are of each column.

    A text is dropped where the column is known all the same, out of another field of the record.
    """
    counts = UnreadCounts()
    texts = _texts(jobs)
    for column, text in texts.items():
        rows = pl.DataFrame({"line": jobs["line"], "job": jobs["job_id"], "text": text}).drop_nulls("text")
        counts.counts[column] = rows.height
        counts.examples[column] = [f"line {line}: job {job}, {text}" for line, job, text in rows.head(EXAMPLES).iter_rows()]
    for values in jobs.get_columns():
        if filled := len(values) - values.null_count() + counts.counts.get(values.name, 0):
            counts.filled[values.name] = filled
    if texts:
        noted = as_map({f"{PREFIX}{column}": text for column, text in texts.items()})
        jobs = jobs.with_columns(joined(jobs["extra"], noted).alias("extra"))
    return jobs, counts


def _texts(jobs: pl.DataFrame) -> dict[str, pl.Series]:
    """What could not be read, by column, where the column is null for it."""
    if UNREAD not in jobs.columns or jobs[UNREAD].null_count() == jobs.height:
        return {}
    maps = jobs[UNREAD]
    names = maps.drop_nulls().map.keys().explode().unique().sort().drop_nulls()
    texts = {}
    for name in names:
        text = safe_texts(maps.map.get(name))
        if name in jobs.columns:
            text = _only(text, jobs[name].is_null())
        if text.null_count() < len(text):
            texts[name] = text
    return texts


def _only(text: pl.Series, where: pl.Series) -> pl.Series:
    return text.zip_with(where, pl.Series([None], dtype=pl.String).new_from_index(0, len(text)))


def no_unread(height: int) -> pl.Series:
    """A column `unread` that says nothing."""
    return pl.Series(UNREAD, [None], dtype=TEXT_MAP).new_from_index(0, height)

"""Reading a table that others write to: month by month, and in spite of a compaction that takes files away meanwhile.

Table -> files_by_month -> read_rows -> frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import polars as pl

from stormpetrel.records.jobs import KEY
from stormpetrel.store.tables import Table

Answer = TypeVar("Answer")
Files = Mapping[str, frozenset[Path]]
_FILE_GONE: Final = (OSError, pl.exceptions.PolarsError)


def again(read: Callable[[], Answer]) -> Answer:
    """Read; once more where a compaction has removed a file from under the first try."""
    try:
        return read()
    except _FILE_GONE:
        return read()


def files_by_month(table: Table) -> Files:
    """Return the data files of each month (`2026-11`); a file carries its partition in its path."""
    months: dict[str, set[Path]] = {}
    for path in table.files():
        months.setdefault(path.parent.name.removeprefix("month="), set()).add(path)
    return {month: frozenset(files) for month, files in months.items()}


def read_rows(table: Table, chosen: pl.DataFrame, known: Files) -> pl.DataFrame:
    """Return the rows of a table that have the key of one of the chosen rows: only their months are read, only their ids kept.

    `known` are the files as they were at the last refresh; the table is listed anew only where these are gone.
    """
    wanted = chosen.select(KEY)
    months = wanted["submit_time"].dt.strftime("%Y-%m").unique().sort()
    ids = pl.col("job_id").is_in(wanted["job_id"].unique().implode())

    def read(files: Files) -> pl.DataFrame:
        paths: Iterable[Path] = (path for month in months for path in sorted(files.get(month, frozenset())))
        return table.scan(list(paths)).filter(ids).collect().join(wanted, on=list(KEY), how="semi", nulls_equal=True)

    try:
        return read(known)
    except _FILE_GONE:
        return again(lambda: read(files_by_month(table)))

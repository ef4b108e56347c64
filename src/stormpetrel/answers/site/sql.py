"""A site's tables in SQL: for who manages the site, since a query sees everything that the tables hold.

Site + Viewer + SqlQuestion -> query_tables -> SqlAnswer; list_tables -> the same, of names and columns. Nothing can be changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.schemas.administration import SqlAnswer
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.errors import UsageError
from stormpetrel.store.sql_tables import sql_tables

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.administration import SqlQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_QUESTION: Final = re.compile(r"\s*(\(|select\b|with\b|from\b|show\b|explain\b|values\b)", re.IGNORECASE)
_READERS: Final = re.compile(r"\b(read|scan)_\w+", re.IGNORECASE)
# Columns of the site's tables that SQL takes for something else unless they stand in quotes; a test holds this to be all.
_UNQUOTED: Final = re.compile(r"\b(user)\b(?!\s*\()", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")


def query_tables(site: Site, viewer: Viewer, question: SqlQuestion) -> SqlAnswer:
    """Return the rows of a query; UsageError for anything but a question to the site's tables."""
    viewer.require(MANAGE)
    if not _QUESTION.match(question.query):
        raise UsageError("Only SELECT and WITH queries are allowed.", hint="Nothing was changed.")
    refuse_outside(question.query, files=question.files)
    most = question.limit
    rows = _rows(question.query, sql_tables(site), None if most is None else most + 1)
    shown = rows if most is None else rows.head(most)
    return SqlAnswer(columns=rows.columns, rows=shown.to_dicts(), is_cut=rows.height > shown.height)


def list_tables(site: Site, viewer: Viewer) -> SqlAnswer:
    """Return the tables that can be asked, each with its columns."""
    viewer.require(MANAGE)
    rows = [{"table": name, "columns": ", ".join(frame.collect_schema().names())} for name, frame in sql_tables(site).items()]
    return SqlAnswer(columns=["table", "columns"], rows=rows)


def refuse_outside(query: str, *, files: bool) -> None:
    """UsageError for a query that would read files without leave, or reach another machine.

    Polars has functions that read files and addresses (`read_csv`, `read_parquet`, …) as soon as the query is parsed. There
    is no way to switch them off, and guessing where a string or a comment ends is how such checks are got around: their names
    may stand nowhere in the query.
    """
    reader = _READERS.search(query)
    if reader is None:
        return
    if not files:
        raise UsageError(
            f"The query names {reader[0]}, which reads files, and only the site's tables are asked.",
            hint="Add --files to let it read files with your rights.",
        )
    if "://" in query:
        raise UsageError("A query reads files of this machine only, no addresses.", hint="Fetch the file first.")


def _rows(query: str, tables: dict[str, pl.LazyFrame], most: int | None) -> pl.DataFrame:
    """The rows of a query, at most so many."""
    try:
        rows = pl.SQLContext(tables, eager=False).execute(query)
        return (rows.head(most) if most else rows).collect()
    except (pl.exceptions.PolarsError, ValueError, TypeError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "unsupported function" in first and (match := _UNQUOTED.search(_QUOTED.sub("", query))) is not None:
            raise UsageError(
                f"That query does not work: {match[0]} is a word of SQL itself, and wants quotes where it is a column.",
                hint="""Write "user", and the whole query in single quotes: sql 'select "user", state from jobs'.""",
            ) from error
        raise UsageError(f"That query does not work: {first}.", hint=f"Tables: {', '.join(tables)}.") from error

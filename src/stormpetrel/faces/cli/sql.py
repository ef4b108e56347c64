"""`stormpetrel sql`: ask the tables."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


_SHOWN_ROWS = 1000
_READERS = re.compile(r"\b(read|scan)_\w+", re.IGNORECASE)
# Columns of the site's tables that SQL takes for something else unless they stand in quotes; a test holds this to be all.
_UNQUOTED = re.compile(r"\b(user)\b(?!\s*\()", re.IGNORECASE)
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_NARROWEST = 8  # a column of a table needs about this many characters to say anything


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help='A query, such as "select state, count(*) n from jobs group by state".')] = "",
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and their columns.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Rows at most; 1000 for people, all for --json.", show_default=False)
    ] = None,
    files: Annotated[
        bool, typer.Option("--files", help="Let the query read files, too: read_csv('…'), read_parquet('…').")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask the site's tables (jobs, predictions, quarantine, …; --tables lists them) in SQL; nothing can be changed this way."""
    if tables == bool(query):
        raise UsageError("Give a query, or --tables.", hint='Such as: stormpetrel sql "select count(*) n from jobs"')
    if query:
        _check(query, files=files)
    most = limit or (None if as_json else _SHOWN_ROWS)
    chosen: Context = context.obj
    with chosen.open_site() as site:
        from stormpetrel.store.sql_tables import sql_tables

        known = sql_tables(site)
        rows = _answer(query, known, most + 1 if most else None) if query else _listed(known)
    cut = most is not None and rows.height > most
    rows = rows.head(most) if most else rows
    if as_json:
        print_json([_plain_row(row) for row in rows.iter_rows(named=True)])
    else:
        _print_rows(rows)
    if cut:
        typer.echo(f"(the first {most:,} rows; --limit N shows more)", err=True)


def _check(query: str, *, files: bool) -> None:
    """UsageError for anything but a question to the site's tables."""
    if not re.match(r"\s*(\(|select\b|with\b|from\b|show\b|explain\b|values\b)", query, re.IGNORECASE):
        raise UsageError("Only questions can be asked: a query begins with SELECT or WITH.", hint="Nothing was changed.")
    refuse_outside(query, files=files)


def _answer(query: str, tables: dict[str, pl.LazyFrame], most: int | None) -> pl.DataFrame:
    """The rows of a query, at most so many."""
    import polars as pl

    try:
        found = pl.SQLContext(tables, eager=False).execute(query)
        return (found.head(most) if most else found).collect()
    except (pl.exceptions.PolarsError, ValueError, TypeError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "unsupported function" in first and (word := _UNQUOTED.search(_QUOTED.sub("", query))) is not None:
            raise UsageError(
                f"That query does not work: {word[0]} is a word of SQL itself, and wants quotes where it is a column.",
                hint="""Write "user", and the whole query in single quotes: sql 'select "user", state from jobs'.""",
            ) from error
        raise UsageError(f"That query does not work: {first}.", hint=f"Tables: {', '.join(tables)}.") from error


def _listed(tables: dict[str, pl.LazyFrame]) -> pl.DataFrame:
    """The tables, each with its columns."""
    import polars as pl

    rows = [(name, ", ".join(frame.collect_schema().names())) for name, frame in tables.items()]
    return pl.DataFrame(rows, schema=["table", "columns"], orient="row")


def refuse_outside(query: str, *, files: bool) -> None:
    """UsageError for a query that would read files without leave, or reach another machine.

    Polars has functions that read files and addresses (`read_csv`, `read_parquet`, …) as soon as the query is looked at. There
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


def _plain_row(row: dict[str, object]) -> dict[str, object]:
    return {name: _plain_value(value) for name, value in row.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _print_rows(rows: pl.DataFrame) -> None:
    """A table where people look and it fits, a record per block where it does not, tab-separated text in a pipe."""
    out = console()
    cells = [["" if value is None else plain(str(value)) for value in row] for row in rows.iter_rows()]
    names = [plain(name) for name in rows.columns]
    if not sys.stdout.isatty():
        for line in (names, *cells):
            typer.echo("\t".join(line))
    elif len(names) * _NARROWEST > out.width:
        for row in cells:
            out.print("\n".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True) if cell) + "\n")
    else:
        _print_table(out, names, cells)


def _print_table(out: Console, names: list[str], cells: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)

"""`stormpetrel sql`: query the tables of a site."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stormpetrel.answers.schemas.administration import SqlAnswer, SqlQuestion
from stormpetrel.answers.site.sql import list_tables, query_tables
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import open_site

_SHOWN_ROWS = 1000
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
    """Query the site's tables (jobs, predictions, quarantine, …; --tables lists them) in SQL; nothing can be changed."""
    if tables == bool(query):
        raise UsageError("Give a query, or --tables.", hint='Such as: stormpetrel sql "select count(*) n from jobs"')
    most = limit or (None if as_json else _SHOWN_ROWS)
    with open_site(context) as site:
        answer = (
            list_tables(site, LOCAL) if tables else query_tables(site, LOCAL, SqlQuestion(query=query, limit=most, files=files))
        )
    emit(answer.model_dump(mode="json")["rows"] if as_json else None, lambda out: _print_rows(out, answer), as_json=as_json)
    if answer.is_cut:
        typer.echo(f"(the first {most:,} rows; --limit N shows more)", err=True)


def _print_rows(out: Console, answer: SqlAnswer) -> None:
    """Print a table to a terminal that is wide enough, a record per block to a narrower one, tab-separated text to a pipe."""
    cells = [["" if value is None else plain(str(value)) for value in row] for row in map(dict.values, answer.rows)]
    names = [plain(name) for name in answer.columns]
    if not sys.stdout.isatty():
        for line in (names, *cells):
            typer.echo("\t".join(line))
    elif len(names) * _NARROWEST > out.width:
        for row in cells:
            out.print("\n".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True) if cell) + "\n")
    else:
        _print_table(out, names, cells)


def _print_table(out: Console, names: list[str], cells: list[list[str]]) -> None:
    table = Table()
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)

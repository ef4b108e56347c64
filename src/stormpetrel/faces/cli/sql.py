"""`stormpetrel sql`: ask the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.answers.schemas.sql import SqlAnswer

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
    """Ask the site's tables (jobs, predictions, quarantine, …; --tables lists them) in SQL; nothing can be changed this way."""
    if tables == bool(query):
        raise UsageError("Give a query, or --tables.", hint='Such as: stormpetrel sql "select count(*) n from jobs"')
    from stormpetrel.answers.schemas.sql import SqlQuestion
    from stormpetrel.answers.site.sql import ask_tables, list_tables
    from stormpetrel.answers.viewer import LOCAL

    most = limit or (None if as_json else _SHOWN_ROWS)
    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = (
            list_tables(site, LOCAL) if tables else ask_tables(site, LOCAL, SqlQuestion(query=query, limit=most, files=files))
        )
    if as_json:
        print_json(answer.model_dump(mode="json")["rows"])
    else:
        _print_rows(answer)
    if answer.is_cut:
        typer.echo(f"(the first {most:,} rows; --limit N shows more)", err=True)


def _print_rows(answer: SqlAnswer) -> None:
    """A table where people look and it fits, a record per block where it does not, tab-separated text in a pipe."""
    out = console()
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
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)

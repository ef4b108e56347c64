"""`stormpetrel sql`: ask the tables."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help='A query, such as "select state, count(*) n from jobs group by state".')],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to print at most.")] = 1000,
    as_json: Json = False,
) -> None:
    """Ask the site's tables (jobs, quarantine) in SQL; nothing can be changed this way."""
    import polars as pl

    chosen: Context = context.obj
    with chosen.open_site() as site:
        tables = {"jobs": site.jobs.table.scan(), "quarantine": site.quarantine.read()}
        try:
            found = pl.SQLContext(tables, eager=False).execute(query)
            rows = found.head(limit).collect()
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            first = str(error).strip().splitlines()[0]
            raise UsageError(f"That query does not work: {first}.", hint=f"Tables: {', '.join(tables)}.") from error
    if as_json:
        print_json([_plain_row(row) for row in rows.iter_rows(named=True)])
        return
    _print_table(rows)


def _plain_row(row: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, str | int | float | bool | None) else str(value) for name, value in row.items()}


def _print_table(rows: object) -> None:
    import polars as pl
    from rich.table import Table
    from rich.text import Text

    assert isinstance(rows, pl.DataFrame)
    table = Table()
    for name in rows.columns:
        table.add_column(Text(plain(name)))
    for row in rows.iter_rows():
        table.add_row(*(Text("" if value is None else plain(str(value))) for value in row))
    console().print(table)

"""`stormpetrel store`: compact, prune, back up and restore the data of a site, and delete users from it.

`stormpetrel sql`: query the tables of a site.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stormpetrel.answers.schemas.administration import Restoration, SqlAnswer, SqlQuestion
from stormpetrel.answers.site.administration import (
    back_up,
    compact_tables,
    delete_old_jobs,
    forget_user,
    list_tables,
    query_tables,
    restore_site,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import named_folder, open_site
from stormpetrel.records.units import format_size
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import to_be_forgotten

_SHOWN_ROWS = 1000
_NARROWEST = 8  # a column of a table needs about this many characters to say anything


def compact(context: typer.Context, as_json: Json = False) -> None:
    """Merge small files and delete those unused for a week."""
    with open_site(context, to_write=True) as site:
        tables = compact_tables(site, LOCAL).tables
    lines = (
        f"{entry.table}: {entry.files_before} files became {entry.files_after}; {entry.removed} old files deleted"
        for entry in tables
    )
    emit([table.model_dump() for table in tables], "\n".join(lines), as_json=as_json)


def retain(
    context: typer.Context,
    days: Annotated[
        int | None,
        typer.Option("--days", min=1, max=36_500, help="Days to keep; store.keep_days if left out.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete jobs submitted, and events counted, longer ago than is to be kept."""
    with open_site(context, to_write=True) as site:
        receipt = delete_old_jobs(site, LOCAL, days=days)
    emit(receipt, f"{receipt.deleted:,} jobs were deleted.", as_json=as_json)


def backup(
    context: typer.Context, target: Annotated[Path, typer.Argument(help="A new file, such as site.tar.")], as_json: Json = False
) -> None:
    """Write the whole site to one file."""
    with open_site(context) as site:
        receipt = back_up(site, LOCAL, target)
    size = format_size(receipt.bytes)
    text = f"{target}: {size}. It holds the site's key and its users' names: keep it as you keep the site."
    emit(receipt, text, as_json=as_json)


def restore(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="A file that `store backup` wrote.")],
    state_url: Annotated[
        str, typer.Option("--state-url", help="Put the state into this PostgreSQL: postgresql://…", show_default=False)
    ] = "",
    state_dir: Annotated[
        str, typer.Option("--state-dir", help="Put the state into this folder, on a local disk.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Create a new site (the folder of --site) from a backup; its state goes into the same folder."""
    folder = named_folder(context)
    if folder is None:
        raise UsageError("No folder to restore to.", hint="Add --site NEWDIR before the command.")
    receipt = restore_site(folder, LOCAL, source, Restoration(state_url=state_url, state_dir=state_dir))
    lines = [f"{folder}: restored, {receipt.jobs:,} jobs."]
    if receipt.outside:
        lines.append(
            "Its settings name these; none was run, opened or queried. Check them before you start anything on the site:"
        )
    lines += (f"  {entry.kind:8} {entry.name} = {plain(entry.value)}" for entry in receipt.outside)
    emit(receipt, "\n".join(lines), as_json=as_json)


def forget(
    context: typer.Context,
    user: Annotated[str, typer.Argument(help="The user name at the scheduler.")],
    past_only: Annotated[
        bool, typer.Option("--past-only", help="Delete existing data, but accept new jobs of this user.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete everything about a user, and refuse new records; asks before."""
    with open_site(context, to_write=True) as site:
        if not yes and not _confirmed(site, user, past_only=past_only):
            typer.echo("Nothing was deleted.", err=True)
            raise typer.Exit(1)
        receipt = forget_user(site, LOCAL, user, past_only=past_only)
    lines = (
        f"{receipt.deleted:,} jobs of {plain(user)} were deleted, from the tables and from the disk.",
        "Counts of events hold no users; an account of that name is now among the others.",
        "Earlier backups still contain them." + ("" if past_only else " New jobs of this user will be refused."),
    )
    emit(receipt, "\n".join(lines), as_json=as_json)


def _confirmed(site: Site, user: str, *, past_only: bool) -> bool:
    """Show what would be deleted, and ask whether to go on."""
    if not _can_ask():
        raise UsageError(
            "`store forget` deletes for good and asks before, and there is no terminal to ask at.",
            hint="Add --yes; nothing was deleted.",
        )
    future = "" if past_only else " New jobs of this user will be refused."
    typer.echo(f"Of {plain(user)} there is {to_be_forgotten(site, user)}. It will be deleted for good.{future}", err=True)
    return typer.confirm("Go on?", default=False, err=True)


def _can_ask() -> bool:
    return sys.stdin.isatty()


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

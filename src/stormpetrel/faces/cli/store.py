"""`stormpetrel store`: compact, prune, back up and restore the data of a site, and delete users from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stormpetrel.answers.schemas.administration import Restoration
from stormpetrel.answers.site.upkeep import back_up, compact_tables, delete_old_jobs, forget_user, restore_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import named_folder, open_site
from stormpetrel.records.units import format_size
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import to_be_forgotten


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

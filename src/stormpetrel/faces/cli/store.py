"""`stormpetrel store`: look after the site's memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

app = typer.Typer(help="Look after the site's memory.", no_args_is_help=True, rich_markup_mode=None)


@app.command("compact")
def compact(context: typer.Context, as_json: Json = False) -> None:
    """Merge small files and delete those unused for a week."""
    from stormpetrel.answers.site.upkeep import compact_tables
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        tables = compact_tables(site, LOCAL).tables
    if as_json:
        print_json([table.model_dump() for table in tables])
        return
    for entry in tables:
        typer.echo(f"{entry.table}: {entry.files_before} files became {entry.files_after}; {entry.removed} old files deleted")


@app.command("retain")
def retain(
    context: typer.Context,
    days: Annotated[
        int | None,
        typer.Option("--days", min=1, max=36_500, help="Days to keep; store.keep_days if left out.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete jobs submitted, and events counted, longer ago than is to be kept."""
    from stormpetrel.answers.site.upkeep import delete_old_jobs
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = delete_old_jobs(site, LOCAL, days=days)
    if as_json:
        print_json(receipt)
    else:
        typer.echo(f"{receipt.deleted:,} jobs were deleted.")


@app.command("backup")
def backup(
    context: typer.Context, target: Annotated[Path, typer.Argument(help="A new file, such as site.tar.")], as_json: Json = False
) -> None:
    """Write the whole site to one file."""
    from stormpetrel.answers.site.upkeep import back_up
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.records.sizes import size_words

    chosen: Context = context.obj
    with chosen.open_site() as site:
        receipt = back_up(site, LOCAL, target)
    if as_json:
        print_json(receipt)
    else:
        words = size_words(receipt.bytes)
        typer.echo(f"{target}: {words}. It holds the site's key and its users' names: keep it as you keep the site.")


@app.command("restore")
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
    """Make a new site (the folder of --site) out of a backup; its state goes into the same folder."""
    from stormpetrel.answers.schemas.setup import Restoration
    from stormpetrel.answers.site.setup import restore_site
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    if chosen.site_folder is None:
        raise UsageError("Nothing says where to restore to.", hint="Add --site NEWDIR before the command.")
    receipt = restore_site(chosen.site_folder, LOCAL, source, Restoration(state_url=state_url, state_dir=state_dir))
    if as_json:
        print_json(receipt)
        return
    typer.echo(f"{chosen.site_folder}: restored, {receipt.jobs:,} jobs.")
    if receipt.outside:
        typer.echo("Its settings name these; none was run, opened or asked. Look at them before you start anything on the site:")
    for entry in receipt.outside:
        typer.echo(f"  {entry.kind:8} {entry.name} = {plain(entry.value)}")


@app.command("forget")
def forget(
    context: typer.Context,
    user: Annotated[str, typer.Argument(help="The user as the scheduler names him or her.")],
    past_only: Annotated[
        bool, typer.Option("--past-only", help="Delete what is there, but take in new jobs of this user.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete everything about a user, and take in nothing more; asks before."""
    from stormpetrel.answers.site.upkeep import forget_user
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        if not yes and not _confirmed(site, user, past_only=past_only):
            typer.echo("Nothing was deleted.", err=True)
            raise typer.Exit(1)
        receipt = forget_user(site, LOCAL, user, past_only=past_only)
    if as_json:
        print_json(receipt)
        return
    typer.echo(f"{receipt.deleted:,} jobs of {plain(user)} were deleted, from the tables and from the disk.")
    typer.echo("Counts of events hold no users; an account of that name is now among the others.")
    typer.echo("Backups made before still hold them." + ("" if past_only else " New jobs of this user will be refused."))


def _confirmed(site: Site, user: str, *, past_only: bool) -> bool:
    """Say what would be deleted, and ask."""
    from stormpetrel.store.forgetting import to_be_forgotten

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

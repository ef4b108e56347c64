"""The site that a command works on: --site, STORMPETREL_SITE, or the folder that we stand in.

typer.Context -> open_site -> Site.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import typer

from stormpetrel.config import SITE_FILE
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.output import plain
from stormpetrel.store import site as sites
from stormpetrel.store.filesystem import owner_other_than_us, refuse_writable_by_everybody, who_else_can_write


def open_site(context: typer.Context, *, to_write: bool = False) -> sites.Site:
    """Open the site of a command; with `to_write` one that can only be read is refused before any work is done."""
    site = sites.open_site(site_folder(context))
    if to_write and site.read_only:
        with site:
            site.require_writable()
    return site


def names_a_site(context: typer.Context) -> bool:
    """Whether --site names a site, or we stand in one."""
    return named_folder(context) is not None or Path(SITE_FILE).is_file()


def named_folder(context: typer.Context) -> Path | None:
    """Return the folder that --site or STORMPETREL_SITE names, whether it is a site or not."""
    chosen: Context = context.obj
    return chosen.site_folder


def site_folder(context: typer.Context) -> Path:
    """Return the folder of the site, which need not open."""
    if (folder := named_folder(context)) is not None:
        _warn_of_owner(folder)
        return folder
    if Path(SITE_FILE).is_file():  # we stand in one
        refuse_site_of_others(Path())
        return Path()
    raise UsageError(
        "No site was named.",
        hint="Add --site DIR or set STORMPETREL_SITE; to create a site: stormpetrel init DIR. Users name their service: "
        "STORMPETREL_SERVICE, or /etc/stormpetrel/client.toml.",
    )


def _warn_of_owner(folder: Path) -> None:
    """A site that was named is opened whoever it belongs to: warn where another user decides what we run."""
    refuse_writable_by_everybody(folder, SITE_FILE)
    if owner := owner_other_than_us(folder, SITE_FILE):
        typer.echo(f"note: {folder} belongs to {plain(owner)}, whose {SITE_FILE} decides what is run with your rights.", err=True)


def refuse_site_of_others(folder: Path) -> None:
    """Refuse a site that nobody named, and that just lies where we run, if somebody else can write it."""
    if others := who_else_can_write(folder, SITE_FILE):
        where = folder.resolve()
        raise UsageError(
            f"The {SITE_FILE} in {plain(str(where))} is not obeyed: {plain(others)}.",
            hint=f"If you trust it, name the site: stormpetrel --site {plain(shlex.quote(str(where)))} …",
        )


def parse_site_time(text: str | None, zone: str, option: str) -> datetime | None:
    """Return a time of the command line as UTC; it is in the site's zone unless it has one of its own."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a time.", hint="Write it as 2026-01-31T14:00.") from None


def parse_day(text: str, option: str) -> datetime:
    """Return a day or an ISO time of the command line as UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a day or time.", hint="Write it as 2023-01-01 or 2023-01-01T12:00.") from None

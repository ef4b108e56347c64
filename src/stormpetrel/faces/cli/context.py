"""What every command shares: which site, how to print, how to show progress."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from stormpetrel.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.store.site import Site

Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", min=1, max=256, help="Seeds, models or cuts at a time; more than one: each in a process of one thread."
    ),
]
LogOdds = Annotated[bool, typer.Option("--log-odds", help="Tell effects in log-odds, not in points of risk.")]


@dataclass(frozen=True, slots=True)
class Context:
    """The options before the command."""

    site_folder: Path | None
    debug: bool

    def open_site(self, *, to_write: bool = False) -> Site:
        """The site that the command works on; `to_write` refuses one that can only be read before any work is done."""
        from stormpetrel.store.site import open_site

        site = open_site(self.folder())
        if to_write and site.read_only:
            with site:
                site.require_writable()
        return site

    def folder(self) -> Path:
        """The folder of that site, which need not open."""
        from stormpetrel.config import SITE_FILE

        if self.site_folder is not None:
            _look_at(self.site_folder)
            return self.site_folder
        if Path(SITE_FILE).is_file():  # we stand in one
            refuse_site_of_others(Path())
            return Path()
        raise UsageError(
            "No site was named.", hint="Add --site DIR or set STORMPETREL_SITE; to make a site: stormpetrel init DIR"
        )


def _look_at(folder: Path) -> None:
    """A site that was named is opened whoever it belongs to: say so where its owner decides what we run."""
    from stormpetrel.config import SITE_FILE
    from stormpetrel.store.ownership import owner_other_than_us, refuse_writable_by_everybody

    refuse_writable_by_everybody(folder, SITE_FILE)
    if owner := owner_other_than_us(folder, SITE_FILE):
        typer.echo(f"note: {folder} belongs to {plain(owner)}, whose {SITE_FILE} decides what is run with your rights.", err=True)


def refuse_site_of_others(folder: Path) -> None:
    """Nobody asked for a site that just lies where we look: it is obeyed only where no one else can write it."""
    from stormpetrel.config import SITE_FILE
    from stormpetrel.store.ownership import who_else_can_write

    if others := who_else_can_write(folder, SITE_FILE):
        where = folder.resolve()
        raise UsageError(
            f"The {SITE_FILE} in {plain(str(where))} is not obeyed: {plain(others)}.",
            hint=f"If you trust it, name the site: stormpetrel --site {plain(shlex.quote(str(where)))} …",
        )


def console(*, error: bool = False) -> Console:
    """Where people read; what comes from logs is printed as text, never as markup."""
    from rich.console import Console

    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value or an answer for other programs; a number that is none becomes null in an answer."""
    dump = getattr(value, "model_dump_json", None)
    typer.echo(json.dumps(value, ensure_ascii=False) if dump is None else dump(by_alias=True))


def site_moment(text: str | None, zone: str, option: str) -> datetime | None:
    """A time of the command line as UTC; in the site's zone unless it has one of its own."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a time.", hint="Write it as 2026-01-31T14:00.") from None


def plain(text: str) -> str:
    """Text from a log, safe for a terminal: control characters and escapes are shown, not obeyed."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar over bytes with a count of records beside it; silent where nobody watches."""
    if not shown or not sys.stderr.isatty():
        yield lambda _done, _count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task(plain(title), total=total or None, records=0)
        yield lambda done, count: bar.update(task, completed=done, records=count)

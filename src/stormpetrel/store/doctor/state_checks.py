"""Checks of what a site knows of itself: whether its state is there and as old as its tables, and its registry of models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from stormpetrel.config import load_settings
from stormpetrel.store.agreement import REPAIR, disagreement
from stormpetrel.store.doctor.findings import Finding
from stormpetrel.store.read_only import STATE_FILE
from stormpetrel.store.site import Site, state_folder

_SLACK: Final = timedelta(minutes=10)  # a site's state and its tables are made one after the other
_RESTORE: Final = "Stop watch and serve, and restore the site from a backup; without one: stormpetrel doctor --repair"
_LOST: Final = "Which models are in use, tokens, views, and who is forgotten are not in it."
_SHOWN: Final = 3


def missing_state(folder: Path) -> Iterator[Finding]:
    """Whether tables lie there without their state; said before the site is opened, which would make a new one."""
    settings = load_settings(folder)
    path = state_folder(folder, settings) / STATE_FILE
    tables = folder / "tables" / "jobs" / "_delta_log"
    if not settings.store.state_url and tables.is_dir() and not path.exists():
        yield Finding("problem", "state", f"{path} is missing, and there are tables. {_LOST}", _RESTORE)


def check_state(site: Site) -> Iterator[Finding]:
    """Whether state and tables were left behind together, and which of them is older."""
    created, born = site.state.created(), tables_born(site)
    wrong = disagreement(site)
    if wrong:
        yield Finding("problem", "state", wrong, REPAIR)
    elif created is None:
        blank = site.state.is_blank() and site.jobs.table.version() > 0
        if blank:
            what = f"the state store is blank, and the tables hold jobs. {_LOST}"
            yield Finding("warning", "state", what, _RESTORE)
        else:
            yield Finding("ok", "state", "belongs to the tables")
    elif born is not None and created > born + _SLACK:
        # One that merely took the place of a lost one is refused when the site is opened: this one was given its place.
        what = (
            f"belongs to the tables; rebuilt or restored {created:%Y-%m-%d %H:%M} UTC, they were made {born:%Y-%m-%d %H:%M} UTC"
        )
        yield Finding("ok", "state", what)
    else:
        yield Finding("ok", "state", f"belongs to the tables; made {created:%Y-%m-%d %H:%M} UTC, as they were")


def tables_born(site: Site) -> datetime | None:
    """When the oldest table of a site was made."""
    there = [table.open().metadata().created_time for table in site.tables if table.exists()]
    times = [datetime.fromtimestamp(time / 1000, UTC) for time in there if time]
    return min(times, default=None)


def check_registry(site: Site) -> Iterator[Finding]:
    """Folders of models that are not entered, and entries whose folder is gone."""
    entered = {(entry.name, entry.version): entry for entry in site.models.versions()}
    there = site.models.folders()
    for key, entry in entered.items():
        if key not in there:
            used = ", which is in use," if entry.current else ""
            what = f"{entry.name} version {entry.version}{used} has no folder: {site.models.folder_of(*key)} is missing."
            hint = f"Take it from a backup: tar -xf BACKUP -C {site.folder} {_inside(site, key)}; or train again."
            yield Finding("problem" if entry.current else "warning", "models", what, hint)
    unknown = sorted(key for key in there if key not in entered)
    if unknown:
        names = ", ".join(f"{name} version {version}" for name, version in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        what = f"the registry does not know {names}{more}, whose {'folder lies' if len(unknown) == 1 else 'folders lie'} there."
        if entered:
            hint = "A training that died has left it behind, or one is under way; stormpetrel nightly deletes what is old."
            yield Finding("warning", "models", what, hint)
        else:
            yield Finding("problem", "models", f"{what} It knows no model at all.", _RESTORE)
    if not unknown and there.keys() == entered.keys():
        yield Finding("ok", "models", f"{len(entered)} versions, each with its folder" if entered else "none yet")


def _inside(site: Site, key: tuple[str, int]) -> str:
    return str(site.models.folder_of(*key).relative_to(site.folder))

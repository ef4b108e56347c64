"""Checks of what a site knows of itself: whether its state belongs to its tables, and its registry to the folders of models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stormpetrel.records.checks import Finding
from stormpetrel.store.agreement import REPAIR, disagreement
from stormpetrel.store.site import Site

_SHOWN: Final = 3


def check_state(site: Site) -> Iterator[Finding]:
    """Whether state and tables were left behind together; one that is missing, or of another site, keeps a site from opening."""
    wrong = disagreement(site)
    if wrong:
        yield Finding("problem", "state", wrong, REPAIR)
    else:
        yield Finding("ok", "state", "belongs to the tables")


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
            yield Finding("problem", "models", f"{what} It knows no model at all.", REPAIR)
    if not unknown and there.keys() == entered.keys():
        yield Finding("ok", "models", f"{len(entered)} versions, each with its folder" if entered else "none yet")


def _inside(site: Site, key: tuple[str, int]) -> str:
    return str(site.models.folder_of(*key).relative_to(site.folder))

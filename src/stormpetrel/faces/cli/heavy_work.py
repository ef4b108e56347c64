"""Where the heavy work of a command runs: as --engine says, else as engine.place of the site.

typer.Context, --engine, --workers -> engine_of -> Engine.
"""

from __future__ import annotations

from pathlib import Path

import typer

from stormpetrel.config import SITE_FILE, EngineSection, load_settings
from stormpetrel.engine import Engine, engine_at
from stormpetrel.faces.cli.site import named_folder
from stormpetrel.store.filesystem import who_else_can_write


def engine_of(
    context: typer.Context, place: str | None, workers: int | None, *, default: int = 1, shared: Path | None = None
) -> Engine:
    """The engine of a command; `default` workers where it runs on this machine and neither option nor setting says how many."""
    section = EngineSection() if place is not None else _section(context)
    return engine_at(place or section.place, workers or section.workers or None, default=default, shared=shared)


def _section(context: typer.Context) -> EngineSection:
    """What the site says that was named or that we stand in; the defaults where there is none, or none that we obey."""
    named = named_folder(context)
    folder = named or Path()
    if not (folder / SITE_FILE).is_file() or (named is None and who_else_can_write(folder, SITE_FILE)):
        return EngineSection()
    return load_settings(folder).engine

"""`stormpetrel nightly`: what is to be done once a day, by the watch or by cron."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import steps_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.registry import NightlyReceipt


def nightly(context: typer.Context, as_json: Json = False) -> None:
    """Train again and use the new model if it is better; then delete what is too old, and compact the tables."""
    from stormpetrel.answers.site.registry import run_night
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, steps_shown(quiet=as_json) as progress:
        night = run_night(site, LOCAL, progress=progress)
    if as_json:
        print_json(night)
        return
    out = console()
    out.print(plain(_training_words(night)))
    if night.events:
        out.print(f"Events: {plain(night.events.rstrip('.'))}.")
    for line in night.outdated:
        out.print(f"{plain(line.rstrip('.'))}.")
    if night.keep_days:
        out.print(f"{night.deleted_jobs:,} jobs older than {night.keep_days:,} days were deleted.")
    if night.deleted_trainings:
        out.print(f"Old trainings were deleted: {plain(', '.join(night.deleted_trainings))}.")
    files = [f"{entry.table} {entry.files_before} → {entry.files_after}" for entry in night.compacted]
    out.print(f"Files of the tables: {plain(', '.join(files))}.")


def _training_words(night: NightlyReceipt) -> str:
    why, training, previous = night.why.rstrip("."), night.training, night.previous
    if night.promoted:
        return f"{training} is in use now{f' in place of {previous}' if previous else ''}: {why}."
    if training:
        return f"{previous} stays in use. {training} is kept, not in use: {why}."
    return f"{previous + ' stays in use' if previous else 'There is no model in use'}; {why}."

"""`stormpetrel nightly`: what is to be done once a day, by the watch or by cron."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import steps_shown


def nightly(context: typer.Context, as_json: Json = False) -> None:
    """Train again and use the new model if it is better; then delete what is too old, and compact the tables."""
    from stormpetrel.lifecycle.event_retraining import retrain_events
    from stormpetrel.lifecycle.outdated import retrain_outdated
    from stormpetrel.lifecycle.retraining import retrain
    from stormpetrel.store.upkeep import compact, retain

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, steps_shown(quiet=as_json) as progress:
        retrained = retrain(site, now=site.now(), progress=progress)
        events = retrain_events(site, now=site.now(), progress=lambda _share, words: progress(f"events: {words}"))
        outdated = retrain_outdated(site, progress=progress)
        progress("upkeep")
        keep_days = site.settings.store.keep_days
        deleted = retain(site, keep_days) if keep_days else 0
        pruned = site.models.prune()
        compacted = compact(site)
    if as_json:
        done = {"deleted_jobs": deleted, "deleted_trainings": pruned, "compacted": [asdict(entry) for entry in compacted]}
        print_json({**retrained.as_dict(), "events": events, "outdated": outdated, **done})
        return
    out = console()
    out.print(plain(_told(retrained.as_dict())))
    if events:
        out.print(f"Events: {plain(events.rstrip('.'))}.")
    for line in outdated:
        out.print(f"{plain(line.rstrip('.'))}.")
    if keep_days:
        out.print(f"{deleted:,} jobs older than {keep_days:,} days were deleted.")
    if pruned:
        out.print(f"Old trainings were deleted: {plain(', '.join(pruned))}.")
    files = [f"{entry.table} {entry.files_before} → {entry.files_after}" for entry in compacted]
    out.print(f"Files of the tables: {plain(', '.join(files))}.")


def _told(retrained: dict[str, Any]) -> str:
    why, training, previous = retrained["why"].rstrip("."), retrained["training"], retrained["previous"]
    if retrained["promoted"]:
        return f"{training} is in use now{f' in place of {previous}' if previous else ''}: {why}."
    if training:
        return f"{previous} stays in use. {training} is kept, not in use: {why}."
    return f"{previous + ' stays in use' if previous else 'There is no model in use'}; {why}."

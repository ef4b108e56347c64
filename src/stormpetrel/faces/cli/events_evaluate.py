"""`stormpetrel events evaluate`: how good the alarm of the grid would have been, beside simple ones; needs no site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import Plot, progress_shown

if TYPE_CHECKING:
    from stormpetrel.rehearse.event_recordings import Recording
    from stormpetrel.rehearse.event_study import Recipe

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Job logs, folders of them, or a table of counts; a simulated grid if left out.",
        show_default=False,
        metavar="[PATH]...",
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Of the files: as for `ingest jobs`, or counts; found if left out.", show_default=False),
]
Zone = Annotated[str, typer.Option("--time-zone", help="By whose clock people worked there, such as Europe/Paris.")]
Outages = Annotated[
    Path | None,
    typer.Option(
        "--outages", help="CSV or iCalendar of the outages of a table of counts, in place of injected ones.", show_default=False
    ),
]
PlugIns = Annotated[
    list[str] | None,
    typer.Option("--outage", help="An outage of your own, MODULE:FUNCTION (repeatable).", show_default=False),
]
Models = Annotated[
    str, typer.Option("--models", help="Models and baselines, separated by commas; all if left out.", show_default=False)
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How often, each time with other outages.")]
Hours = Annotated[int, typer.Option("--hours", min=1, max=100_000, help="Length of a simulated grid.")]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="Seeds at a time, each in a process of one thread.")]


def evaluate(
    paths: Paths = None,
    format_name: Format = None,
    zone: Zone = "UTC",
    outages: Outages = None,
    plug_ins: PlugIns = None,
    models: Models = "",
    seeds: Seeds = 10,
    hours: Hours = 4368,
    workers: Workers = 2,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Judge the models of the grid and the baselines on a simulated grid, or on recorded counts with outages injected."""
    from stormpetrel.events.evaluation import ALL_NAMES
    from stormpetrel.events.evaluation_summary import merged, summary
    from stormpetrel.rehearse.event_study import StudyPlan, run_study

    _check_zone(zone)
    named = tuple(word.strip() for word in models.split(",") if word.strip())
    with progress_shown(quiet=as_json) as progress:
        progress(0.0, "reading counts" if paths else "simulating")
        recordings = _recordings(paths, format_name, zone, outages)
        recipes = _recipes(recordings, tuple(plug_ins or ()), hours)
        plan = StudyPlan(recipes, tuple(range(seeds)), named, workers=min(workers, seeds * len(recipes)))
        runs = [run for some in run_study(plan, progress=progress) for run in some]
    notes = [f"{one.name}: {note}" for one in recordings for note in one.notes]
    answer = {**summary(merged([], runs), order=ALL_NAMES), "notes": notes}
    if plot:
        _draw(plot, answer)
    if as_json:
        print_json(answer)
        return
    _show(answer, plot)


def _recordings(paths: Sequence[Path] | None, format_name: str | None, zone: str, outages: Path | None) -> list[Recording]:
    if not paths:
        if outages:
            raise UsageError("--outages names the outages of a recording.", hint="Name the table of counts that they belong to.")
        return []
    from stormpetrel.rehearse.event_recordings import read_recording, recordings_in

    return [read_recording(path, format_name, zone=zone, outages=outages) for path in recordings_in(paths)]


def _recipes(recordings: Sequence[Recording], plug_ins: tuple[str, ...], hours: int) -> tuple[Recipe, ...]:
    """How to make each data set; of a simulated grid where nothing was recorded."""
    from stormpetrel.rehearse.event_study import Recipe

    if not recordings:
        return (Recipe(hours=hours, plug_ins=plug_ins),)
    return tuple(Recipe(one.name, one.series, has_labels=one.has_labels, plug_ins=plug_ins) for one in recordings)


def _check_zone(zone: str) -> None:
    from zoneinfo import available_timezones

    if zone not in available_timezones():
        raise UsageError(f"{zone!r} is not a time zone.", hint="Write it as Europe/Berlin.")


def _show(answer: dict[str, Any], plot: Path | None) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.event_quality_tables import failures, outages_table, quality_table

    out = console()
    for name, found in answer["datasets"].items():
        show_table(out, quality_table(name, found))
        show_table(out, outages_table(name, found))
        for line in failures(name, found):
            out.print(f"note: {plain(line)}")
    for line in answer["notes"]:
        out.print(f"note: {plain(line)}")
    if plot:
        out.print(f"{plain(str(plot))}: the figures, to be opened in a browser")


def _draw(path: Path, answer: dict[str, Any]) -> None:
    from stormpetrel.faces.report.blocks import Drawing, Section
    from stormpetrel.faces.report.event_quality_tables import outages_table, quality_table
    from stormpetrel.faces.report.page import write_page
    from stormpetrel.figures.event_quality import model_comparison, recall_by_outage

    sections = [
        Section(
            name,
            "Models and baselines on the same outages.",
            (
                Drawing(model_comparison(name, found)),
                quality_table(name, found),
                Drawing(recall_by_outage(name, found), height=560),
                outages_table(name, found),
            ),
        )
        for name, found in answer["datasets"].items()
    ]
    write_page(path, "The alarm of the grid", sections)

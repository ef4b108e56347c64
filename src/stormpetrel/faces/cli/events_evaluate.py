"""`stormpetrel events evaluate`: how good the alarm of the grid would have been, beside simple ones; needs no site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli.context import Json, Workers, console, plain, print_json
from stormpetrel.faces.cli.trace_input import Plot, progress_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import EventStudy

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
    from stormpetrel.answers.schemas.events import EventStudyQuestion
    from stormpetrel.answers.studies.event_study import study_events

    question = EventStudyQuestion(
        paths=paths or [],
        format=format_name,
        zone=zone,
        outages=outages,
        plug_ins=plug_ins or [],
        models=[word.strip() for word in models.split(",") if word.strip()],
        seeds=seeds,
        hours=hours,
        workers=workers,
    )
    with progress_shown(quiet=as_json) as progress:
        study = study_events(question, progress=progress)
    if plot:
        _draw(plot, study)
    if as_json:
        print_json(study.model_dump(mode="json"))
        return
    _show(study, plot)


def _show(study: EventStudy, plot: Path | None) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.event_quality_tables import failures, outages_table, quality_table

    out = console()
    for name, dataset in study.datasets.items():
        show_table(out, quality_table(name, dataset))
        show_table(out, outages_table(name, dataset))
        for line in failures(name, dataset):
            out.print(f"note: {plain(line)}")
    for line in study.notes:
        out.print(f"note: {plain(line)}")
    if plot:
        out.print(f"{plain(str(plot))}: the figures, to be opened in a browser")


def _draw(path: Path, study: EventStudy) -> None:
    from stormpetrel.faces.report.blocks import Drawing, Section
    from stormpetrel.faces.report.event_quality_tables import outages_table, quality_table
    from stormpetrel.faces.report.page import write_page
    from stormpetrel.figures.event_quality import model_comparison, recall_by_outage

    sections = [
        Section(
            name,
            "Models and baselines on the same outages.",
            (
                Drawing(model_comparison(name, dataset)),
                quality_table(name, dataset),
                Drawing(recall_by_outage(name, dataset), height=560),
                outages_table(name, dataset),
            ),
        )
        for name, dataset in study.datasets.items()
    ]
    write_page(path, "The alarm of the grid", sections)

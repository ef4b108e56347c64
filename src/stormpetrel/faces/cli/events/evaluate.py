"""`stormpetrel events evaluate`: how good the alarm of the cluster would have been, compared with simple rules; needs no site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.events import EventStudy, EventStudyQuestion
from stormpetrel.answers.studies.event_study import study_events
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Json, KeepResults, Plot, Workers
from stormpetrel.faces.cli.output import emit, plain, show_table
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.report.blocks import Drawing, Section
from stormpetrel.faces.report.events_section import failures, outages_table, quality_table
from stormpetrel.faces.report.page import write_page
from stormpetrel.figures.event_quality import model_comparison, recall_by_outage

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Job logs, folders of them, or a table of counts; a simulated cluster if left out.",
        show_default=False,
        metavar="[PATH]...",
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Of the files: as for `ingest jobs`, or counts; detected if left out.", show_default=False),
]
Zone = Annotated[str, typer.Option("--time-zone", help="Time zone of the log's users, such as Europe/Paris.")]
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
Hours = Annotated[int, typer.Option("--hours", min=1, max=100_000, help="Length of a simulated cluster's past.")]


def evaluate(
    context: typer.Context,
    paths: Paths = None,
    format_name: Format = None,
    zone: Zone = "UTC",
    outages: Outages = None,
    plug_ins: PlugIns = None,
    models: Models = "",
    seeds: Seeds = 10,
    hours: Hours = 4368,
    workers: Workers = None,
    engine: EngineName = None,
    keep: KeepResults = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Evaluate event models and baselines on a simulated cluster, or on recorded counts with outages injected."""
    question = EventStudyQuestion(
        paths=paths or [],
        format=format_name,
        zone=zone,
        outages=outages,
        plug_ins=plug_ins or [],
        models=[name.strip() for name in models.split(",") if name.strip()],
        seeds=seeds,
        hours=hours,
        keep=keep,
    )
    with share_spinner(quiet=as_json) as progress:
        study = study_events(question, progress=progress, engine=engine_of(context, engine, workers, default=2))
    emit(
        study.model_dump(mode="json"),
        lambda out: _print_study(out, study),
        as_json=as_json,
        plot=plot,
        draw=lambda path: _draw(path, study),
    )


def _print_study(out: Console, study: EventStudy) -> None:
    for name, dataset in study.datasets.items():
        show_table(out, quality_table(name, dataset))
        show_table(out, outages_table(name, dataset))
        for line in failures(name, dataset):
            out.print(f"note: {plain(line)}")
    for line in study.notes:
        out.print(f"note: {plain(line)}")


def _draw(path: Path, study: EventStudy) -> None:
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
    write_page(path, "The alarm of the cluster", sections)

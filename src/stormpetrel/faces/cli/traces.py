"""`stormpetrel traces`: what threads, jobs and nodes are doing, and whether it is normal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli import traces_evaluate, traces_sampling
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import (
    Device,
    Epochs,
    Plot,
    Seed,
    architectures_of,
    autoencoder_settings,
    progress_shown,
)

if TYPE_CHECKING:
    from stormpetrel.answers.nodes.traces import ScoredWindows
    from stormpetrel.answers.schemas.traces import TraceModelAnswer
    from stormpetrel.faces.report.blocks import Block, Table

app = typer.Typer(
    help="What CPU threads, jobs and nodes are doing, and whether it is normal.", no_args_is_help=True, rich_markup_mode=None
)
Top = Annotated[int, typer.Option("--top", min=1, help="How many to show.")]


@app.command("train")
def train(
    context: typer.Context,
    campaigns: Annotated[
        list[Path] | None,
        typer.Option("--campaigns", help="Learn from these campaigns (repeatable), not from the site.", show_default=False),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option("--architecture", help="vanilla, node_gnn or job_gnn; traces.model if left out.", show_default=False),
    ] = None,
    epochs: Epochs = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a model on the windows of the site and make it current."""
    from stormpetrel.answers.site.training import train_traces
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.lifecycle.trace_models import LATE_SHARE
    from stormpetrel.traces.promise import Promise

    chosen: Context = context.obj
    kind = architectures_of(architecture)[0] if architecture else None
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        settings = autoencoder_settings(epochs, seed)
        entry = train_traces(site, LOCAL, kind, campaigns=campaigns, settings=settings, device=device, progress=progress)
    if as_json:
        print_json(entry)
        return
    out, about = console(), entry.about
    windows_words = (
        f"{about['windows']['train']:,} windows of {about['window_s']:g} s, stopped by {about['windows']['validation']:,}"
    )
    out.print(f"{plain(entry.name)} version {entry.version}: {windows_words}; error {about['validation_error']:.5f}")
    out.print(Promise.of_about(about).words())
    if about.get("from") == "time" and not Promise.of_about(about).is_kept:
        out.print(f"The last {LATE_SHARE:.0%} of the time that the site has windows of is kept aside.")
    if about["bad_io"] is None:
        out.print("No Bad IO window is known, so that `traces diagnose` has nothing to measure from.")
    out.print("Next: stormpetrel traces score")


@app.command("score")
def score(context: typer.Context, top: Top = 10, as_json: Json = False) -> None:
    """Score the windows that the current model has not seen, and name the most abnormal nodes, threads and jobs.

    A site that has trained no model scores with the shipped encoder, which knows simulated jobs only.
    """
    from stormpetrel.answers.nodes.traces import score_traces
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.faces.report.trace_tables import abnormal_tables

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        receipt = score_traces(site, LOCAL, top=top, progress=progress)
    if as_json:
        print_json(receipt)
        return
    out = console()
    out.print(f"{receipt.scored:,} windows scored by {plain(receipt.title)}, {receipt.flagged:,} of them flagged")
    out.print(receipt.promise.sentence)
    if receipt.other_length:
        out.print(f"{receipt.other_length:,} windows are of another length or step than the model sees, and were left out.")
    if not receipt.nodes:
        out.print("There is nothing to show yet. Take in traces: stormpetrel ingest traces --live")
        return
    _show(abnormal_tables(receipt), receipt)
    out.print("Next: stormpetrel traces diagnose, or the page Nodes and traces of stormpetrel serve")


@app.command("map")
def show_map(context: typer.Context, plot: Plot = None, as_json: Json = False) -> None:
    """Say where the windows of each job type lie on the map of the model."""
    from stormpetrel.answers.nodes.traces import trace_map
    from stormpetrel.faces.report.trace_tables import map_table

    windows = _scored(context)
    answer = trace_map(windows, with_points=as_json)
    table = map_table(answer.job_types)
    if plot:
        from stormpetrel.faces.report.blocks import Drawing
        from stormpetrel.figures import trace_models

        chart = trace_models.trace_map(windows.points, axes=trace_models.map_axes(answer.explained))
        _draw(plot, "Map of windows", (Drawing(chart, height=620), table))
    if as_json:
        print_json(answer)
        return
    _show([table], answer)
    _close(plot)


@app.command("diagnose")
def show_diagnosis(context: typer.Context, top: Top = 20, plot: Plot = None, as_json: Json = False) -> None:
    """Name the jobs and threads that lie near Bad IO, with their distance and their largest iowait."""
    from stormpetrel.answers.nodes.traces import trace_diagnosis
    from stormpetrel.faces.report.trace_figures import diagnosis_drawing
    from stormpetrel.faces.report.trace_tables import suspects_table

    windows = _scored(context)
    answer = trace_diagnosis(windows)
    table = suspects_table(answer, top=top)
    if plot:
        drawing = diagnosis_drawing(windows.points, near=answer.radius, high=answer.high_iowait)
        _draw(plot, "Windows near Bad IO", (drawing, table))
    if as_json:
        print_json(answer)
        return
    _show([table], answer)
    _close(plot)


app.command("evaluate")(traces_evaluate.evaluate)
app.command("sampling")(traces_sampling.sampling)


def _scored(context: typer.Context) -> ScoredWindows:
    from stormpetrel.answers.nodes.traces import scored_windows
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        return scored_windows(site, LOCAL)


def _show(tables: Iterable[Table], answer: TraceModelAnswer) -> None:
    from stormpetrel.faces.cli.tables import show_table

    for table in tables:
        show_table(console(), table)
    if answer.shipped:
        console().print(
            "These are scores of the shipped encoder, which has learnt simulated jobs, not this site's."
            " Train one on what is normal here: stormpetrel traces train"
        )


def _close(plot: Path | None) -> None:
    if plot:
        console().print(f"{plain(str(plot))}: the figures, to be opened in a browser")


def _draw(path: Path, title: str, blocks: tuple[Block, ...]) -> None:
    from stormpetrel.faces.report.blocks import Section
    from stormpetrel.faces.report.page import write_page

    write_page(path, title, [Section(title, "", blocks)])

"""`stormpetrel traces`: what threads, jobs and nodes are doing, and whether it is normal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import ModelError
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
    read_traces,
)

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.faces.report.blocks import Block, Table
    from stormpetrel.lifecycle.trace_models import LearningWindows, TraceModel
    from stormpetrel.store.site import Site

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
    from stormpetrel.lifecycle.trace_models import LATE_SHARE, train_trace_model
    from stormpetrel.traces.promise import Promise

    chosen: Context = context.obj
    kind = architectures_of(architecture)[0] if architecture else None
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        progress(0.0, "reading windows")
        windows = _windows_of(campaigns, site) if campaigns else None
        settings = autoencoder_settings(epochs, seed)
        entry = train_trace_model(site, kind, windows=windows, settings=settings, device=device, progress=progress)
    if as_json:
        print_json({"name": entry.name, "version": entry.version, "created": entry.created, **entry.about})
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
    from stormpetrel.faces.report.trace_tables import abnormal, abnormal_table
    from stormpetrel.faces.report.traces_section import newest_scores
    from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        model = load_trace_model(site)
        done = score_new_windows(site, model, progress=progress)
        points = newest_scores(site, model)
    worst = {by: abnormal(points, by, top=top) for by in ("node", "thread", "job")}
    if as_json:
        counted = {"scored": done.scored, "flagged": done.flagged, "other_length": done.other_length, "commits": done.commits}
        told = _told(model)
        promise = {"threshold": done.promise.threshold, "promise": done.promise.as_dict()}
        print_json({**told, **promise, **counted, **{f"{by}s": found.to_dicts() for by, found in worst.items()}})
        return
    out = console()
    out.print(f"{done.scored:,} windows scored by {plain(model.title)}, {done.flagged:,} of them flagged")
    out.print(done.promise.words())
    if done.other_length:
        out.print(f"{done.other_length:,} windows are of another length or step than the model sees, and were left out.")
    if not points.height:
        out.print("There is nothing to show yet. Take in traces: stormpetrel ingest traces --live")
        return
    _show(abnormal_table(found, by) for by, found in worst.items())
    _say_whose(model)
    out.print("Next: stormpetrel traces diagnose, or the page Nodes and traces of stormpetrel serve")


@app.command("map")
def show_map(context: typer.Context, plot: Plot = None, as_json: Json = False) -> None:
    """Say where the windows of each job type lie on the map of the model."""
    model, points = _scored(context)
    from stormpetrel.faces.report.trace_figures import axes_words
    from stormpetrel.faces.report.trace_tables import job_types, map_table

    table = map_table(points)
    if plot:
        from stormpetrel.faces.report.blocks import Drawing
        from stormpetrel.figures.trace_models import trace_map

        _draw(plot, "Map of windows", (Drawing(trace_map(points, axes=axes_words(model.map)), height=620), table))
    if as_json:
        shown = points.select("node", "cpu", "window_start", "job_id", "job_type", "x", "y", "score", "flagged")
        print_json({**_told(model), "job_types": job_types(points).to_dicts(), "points": _rows(shown)})
        return
    _show([table])
    _say_whose(model)
    _close(plot)


@app.command("diagnose")
def show_diagnosis(context: typer.Context, top: Top = 20, plot: Plot = None, as_json: Json = False) -> None:
    """Name the jobs and threads that lie near Bad IO, with their distance and their largest iowait."""
    model, points = _scored(context)
    if model.bad_io is None:
        raise ModelError(
            "The model knows no Bad IO windows: there is no centre to measure a distance from.",
            hint="Take in a campaign with Bad IO jobs, or train with --campaigns PATH: stormpetrel traces train",
        )
    from stormpetrel.faces.report.trace_figures import diagnosed, diagnosis_drawing
    from stormpetrel.faces.report.trace_tables import suspects_table

    found = diagnosed(points, model.bad_io)
    table = suspects_table(found, top=top)
    if plot:
        _draw(plot, "Windows near Bad IO", (diagnosis_drawing(points, model.bad_io), table))
    if as_json:
        told = {name: getattr(found, name) for name in ("windows", "near", "radius", "high_iowait", "rank_correlation")}
        print_json({**_told(model), **told, "suspects": [asdict(one) for one in found.suspects]})
        return
    _show([table])
    _say_whose(model)
    _close(plot)


app.command("evaluate")(traces_evaluate.evaluate)
app.command("sampling")(traces_sampling.sampling)


def _windows_of(campaigns: list[Path], site: Site) -> LearningWindows:
    """Windows of campaign files, with the test campaigns left alone."""
    from stormpetrel.lifecycle.trace_models import campaign_windows

    return campaign_windows(read_traces(campaigns, simulated=False), window_s=site.settings.traces.window_s)


def _scored(context: typer.Context) -> tuple[TraceModel, pl.DataFrame]:
    """The model in use and what it has said so far."""
    from stormpetrel.faces.report.traces_section import newest_scores
    from stormpetrel.lifecycle.trace_models import load_trace_model

    chosen: Context = context.obj
    with chosen.open_site() as site:
        model = load_trace_model(site)
        points = newest_scores(site, model)
    if not points.height:
        raise ModelError(f"No window has been scored yet by {model.title}.", hint="Run: stormpetrel traces score")
    return model, points


def _told(model: TraceModel) -> dict[str, Any]:
    """Which model it is, for JSON."""
    return {"model": model.name, "version": model.version, "shipped": model.is_shipped}


def _say_whose(model: TraceModel) -> None:
    if model.is_shipped:
        console().print(
            "These are scores of the shipped encoder, which has learnt simulated jobs, not this site's."
            " Train one on what is normal here: stormpetrel traces train"
        )


def _show(tables: Iterable[Table]) -> None:
    from stormpetrel.faces.cli.tables import show_table

    for table in tables:
        show_table(console(), table)


def _close(plot: Path | None) -> None:
    if plot:
        console().print(f"{plain(str(plot))}: the figures, to be opened in a browser")


def _draw(path: Path, title: str, blocks: tuple[Block, ...]) -> None:
    from stormpetrel.faces.report.blocks import Section
    from stormpetrel.faces.report.page import write_page

    write_page(path, title, [Section(title, "", blocks)])


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: str(value) if hasattr(value, "isoformat") else value for name, value in row.items()} for row in frame.to_dicts()
    ]

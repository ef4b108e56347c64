"""`stormpetrel traces train | score | map | diagnose`: what threads, jobs and nodes do, and whether it is normal.

`stormpetrel traces label | regions`: name a trouble by its windows, list what was named, take it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import typer
from rich.console import Console

from stormpetrel.answers.nodes.findings import NOTHING_UNUSUAL, rarity, whole_nodes
from stormpetrel.answers.nodes.regions import label_windows, list_regions, remove_regions
from stormpetrel.answers.nodes.sliding import QUICK_SCORE, sliding_now
from stormpetrel.answers.nodes.traces import ScoredWindows, odd_nodes, score_traces, scored_windows, trace_diagnosis, trace_map
from stormpetrel.answers.schemas.registry import TrainedModel
from stormpetrel.answers.schemas.traces import RegionLine, ScoringReceipt, SlidingNow, TraceModelAnswer
from stormpetrel.answers.site.registry import train_traces
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Json, Plot, Seed, SinceTime, UntilTime, Workers
from stormpetrel.faces.cli.output import draw_page, emit, plain, show_table
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.site import open_site, parse_site_time
from stormpetrel.faces.cli.traces.input import Device, Epochs, architectures_of, autoencoder_settings
from stormpetrel.faces.report.blocks import NOTHING, Block, Column, Drawing, Table
from stormpetrel.faces.report.trace_figures import diagnosis_drawing
from stormpetrel.faces.report.trace_tables import (
    abnormal_tables,
    inside_table,
    like_table,
    map_table,
    regions_table,
    suspects_table,
)
from stormpetrel.figures import trace_models
from stormpetrel.lifecycle.odd_nodes import FEWEST_CALM
from stormpetrel.lifecycle.trace_learning import LATE_SHARE
from stormpetrel.records.regions import RegionScope
from stormpetrel.traces.promise import Promise

Top = Annotated[int, typer.Option("--top", min=1, help="How many to show.")]
_WORTH_A_LINE: Final = 2.0  # a score of a node as a whole: one in a hundred calm moments


def train(
    context: typer.Context,
    campaigns: Annotated[
        list[Path] | None,
        typer.Option("--campaigns", help="Learn from these campaigns (repeatable), not from the site.", show_default=False),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option("--architecture", help="vanilla, node_gnn, job_gnn or fast; traces.model if left out.", show_default=False),
    ] = None,
    epochs: Epochs = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a model on the windows of the site and make it current."""
    kind = architectures_of(architecture)[0] if architecture else None
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        settings = autoencoder_settings(epochs, seed)
        entry = train_traces(site, LOCAL, kind, campaigns=campaigns, settings=settings, device=device, progress=progress)
    emit(entry, lambda out: _print_training(out, entry), as_json=as_json, next_step="stormpetrel traces score")


def _print_training(out: Console, entry: TrainedModel) -> None:
    about = entry.about
    windows = f"{about['windows']['train']:,} windows of {about['window_s']:g} s, stopped by {about['windows']['validation']:,}"
    out.print(f"{plain(entry.name)} version {entry.version}: {windows}; error {about['validation_error']:.5f}")
    out.print(Promise.of_about(about).words())
    if about.get("from") == "time" and not Promise.of_about(about).is_kept:
        out.print(f"The last {LATE_SHARE:.0%} of the time that the site has windows of is kept aside.")
    if about["detector"] is None:
        out.print(plain(f"It has no detector, which names unusual nodes. {about['no_detector']}"))
    elif (calm := about["detector"]["data"]["nodes"]) < FEWEST_CALM:
        out.print(f"Its detector has learnt from {calm:,} calm node windows; the watch raises nothing by it below {FEWEST_CALM}.")
    if about["bad_io"] is None:
        out.print("No Bad IO window is known, so that `traces diagnose` has no distance from it to show.")


def score(
    context: typer.Context,
    top: Top = 10,
    device: Device = "auto",
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Score the windows that the current model has not scored, and name the most abnormal nodes, threads and jobs.

    A site that has trained no model scores with the shipped encoder, which knows simulated jobs only.
    """
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        where = engine_of(context, engine, workers)
        receipt = score_traces(site, LOCAL, top=top, device=device, progress=progress, engine=where)
    emit(receipt, lambda out: _print_scores(out, receipt), as_json=as_json)


def _print_scores(out: Console, receipt: ScoringReceipt) -> None:
    windows = "1 window" if receipt.scored == 1 else f"{receipt.scored:,} windows"
    out.print(f"{windows} scored by {plain(receipt.title)}, {receipt.flagged:,} of them flagged")
    out.print(receipt.promise.sentence)
    if receipt.other_length:
        out.print(f"{receipt.other_length:,} windows are of another length or step than the model sees, and were left out.")
    if not receipt.nodes:
        out.print("There is nothing to show yet. Ingest traces: stormpetrel ingest traces --live")
        return
    _print_tables(out, abnormal_tables(receipt), receipt)
    out.print("Next: stormpetrel traces diagnose, or the page Nodes and traces of stormpetrel serve")


def show_map(context: typer.Context, plot: Plot = None, as_json: Json = False) -> None:
    """Show the windows of each job type on the map of the model."""
    windows = _scored(context)
    answer = trace_map(windows, with_points=as_json)
    tables = [map_table(answer.job_types)]
    if answer.regions:
        tables.append(regions_table(answer.regions))

    def draw(path: Path) -> None:
        chart = trace_models.trace_map(windows.points, axes=trace_models.map_axes(answer.explained))
        draw_page(path, "Map of windows", (Drawing(chart, height=620), *tables))

    emit(answer, lambda out: _print_tables(out, tables, answer), as_json=as_json, plot=plot, draw=draw)


def show_diagnosis(context: typer.Context, top: Top = 20, plot: Plot = None, as_json: Json = False) -> None:
    """Explain unusual nodes, list jobs near Bad IO or in a named region, and show similar past windows."""
    with open_site(context) as site:
        zone = ZoneInfo(site.settings.site.time_zone)
        windows = scored_windows(site, LOCAL)
        model = windows.model
        odd, whole, now = odd_nodes(site, LOCAL, model), whole_nodes(site, LOCAL, model), sliding_now(site, LOCAL, model)
        answer = trace_diagnosis(windows, site, odd, whole, now)
    tables = [suspects_table(answer, top=top)] if answer.radius is not None else []
    if answer.regions:
        tables += [regions_table(answer.regions), inside_table(answer.inside, top=top)]
    if any(window.past for window in answer.like):
        tables.append(like_table(answer.like))

    def draw(path: Path) -> None:
        blocks: list[Block] = [*tables]
        if answer.radius is not None and answer.high_iowait is not None:
            blocks.insert(0, diagnosis_drawing(windows.points, near=answer.radius, high=answer.high_iowait))
        draw_page(path, "Windows near Bad IO", tuple(blocks))

    def show(out: Console) -> None:
        for finding in (answer.findings or [])[:top]:
            out.print(plain(f"{finding.sentence} ({finding.since.astimezone(zone):%Z}; {rarity(finding.score)} calm windows)"))
        if answer.findings == []:
            out.print(NOTHING_UNUSUAL)
        for row in [row for row in answer.nodes if row.score >= _WORTH_A_LINE][:top]:
            out.print(plain(row.sentence))
        if answer.sliding is not None:
            _print_sliding(out, answer.sliding, top)
        _print_tables(out, tables, answer)

    emit(answer, show, as_json=as_json, plot=plot, draw=draw)


def _print_sliding(out: Console, sliding: SlidingNow, top: int) -> None:
    out.print(plain(sliding.sentence))
    for node in sliding.nodes[:top]:
        out.print(plain(f"  {node.sentence}"))
    if len(sliding.nodes) > top:
        out.print(f"  … and {len(sliding.nodes) - top:,} more (--top)")
    if sliding.fresh:
        out.print(QUICK_SCORE)


def _scored(context: typer.Context) -> ScoredWindows:
    with open_site(context) as site:
        return scored_windows(site, LOCAL)


def _print_tables(out: Console, tables: Iterable[Table], answer: TraceModelAnswer) -> None:
    for table in tables:
        show_table(out, table)
    if answer.shipped:
        out.print(
            "These are scores of the shipped encoder, which was trained on simulated jobs, not on this site's."
            " Train one on what is normal here: stormpetrel traces train"
        )


def label(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the problem.", show_default=False)],
    job_type: Annotated[
        str | None, typer.Option("--type", help="All windows of this job type, now and later.", show_default=False)
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="The windows of this job.", show_default=False)] = None,
    node: Annotated[str | None, typer.Option("--node", help="The windows of this node.", show_default=False)] = None,
    since: SinceTime = None,
    until: UntilTime = None,
    as_json: Json = False,
) -> None:
    """Name a problem by windows that show it: similar windows are reported by that name and never learnt as normal."""
    if job_type is None and job is None and node is None:
        raise UsageError("Which windows?", hint="Use --type, --job, or --node with --since and --until.")
    with open_site(context, to_write=True) as site:
        zone = site.settings.site.time_zone
        first, last = parse_site_time(since, zone, "--since"), parse_site_time(until, zone, "--until")
        scope = RegionScope(job_type=job_type, job_id=job, node=node, since=first, until=last)
        receipt = label_windows(site, LOCAL, name, scope)
    (line,) = receipt.regions
    emit(
        receipt,
        f"{plain(line.name)}: {line.examples:,} windows are kept as examples.",
        as_json=as_json,
        next_step="stormpetrel traces regions, and stormpetrel traces train if a model has learnt them already",
    )


def regions(
    context: typer.Context,
    remove: Annotated[str | None, typer.Option("--remove", help="Remove the region of this name.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List the named problems, or remove one."""
    if remove is not None:
        with open_site(context, to_write=True) as site:
            receipt = remove_regions(site, LOCAL, remove)
        emit(receipt, f"{plain(remove)} is no longer a known region.", as_json=as_json)
        return
    with open_site(context) as site:
        answer = list_regions(site, LOCAL)

    def show(out: Console) -> None:
        if not answer.regions:
            out.print('Nothing has been named yet: stormpetrel traces label "hung allreduce" --job 4711')
            return
        show_table(out, _named_table(answer.regions))
        show_table(out, regions_table(answer.fitted))

    emit(answer, show, as_json=as_json)


def _named_table(lines: list[RegionLine]) -> Table:
    def windows(line: RegionLine) -> str:
        named = {"type": line.job_type, "job": line.job_id, "node": line.node}
        span = f" {line.since:%Y-%m-%d %H:%M} to {line.until:%Y-%m-%d %H:%M}" if line.since and line.until else ""
        return ", ".join(f"{kind} {text}" for kind, text in named.items() if text is not None) + span

    columns = (Column("region"), Column("windows of"), Column("kept", ",d"), Column("by"), Column("added"), Column("incident"))
    rows = tuple(
        (line.name, windows(line), line.examples, line.added_by or NOTHING, f"{line.added:%Y-%m-%d %H:%M}",
         str(line.incident) if line.incident else NOTHING)
        for line in lines
    )  # fmt: skip
    return Table("Named troubles", columns, rows, "Times are UTC.")

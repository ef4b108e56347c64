"""`stormpetrel ingest traces`: CPU traces into the store, out of campaign files or a Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import steps_shown

if TYPE_CHECKING:
    from stormpetrel.ingest.traces import TraceReport


def ingest_traces(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Campaign files (.npz), or folders of them.", show_default=False)
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read from the site's Prometheus, from where the last run stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Cut CPU traces into windows and keep them: from campaign files, or from a running Prometheus (--live)."""
    from stormpetrel.ingest.traces import ingest_campaigns, ingest_live

    if bool(files) == live:
        raise UsageError(
            "Name campaign files to read, or --live, and not both.", hint="For example: stormpetrel ingest traces campaigns/"
        )
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, steps_shown(quiet=as_json) as step:

        def progress(fraction: float, words: str) -> None:
            step(f"{words} ({fraction:.0%})")

        report = ingest_live(site, progress=progress) if live else ingest_campaigns(site, files or [], progress=progress)
        name = "Prometheus" if live else ", ".join(str(path) for path in files or [])
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(name, report)


def _print_report(name: str, report: TraceReport) -> None:
    out = console()
    span = f", {report.first:%Y-%m-%d %H:%M} to {report.last:%Y-%m-%d %H:%M} UTC" if report.first and report.last else ""
    out.print(
        f"{plain(name)}: {report.read:,} windows of {len(report.threads):,} threads on {len(report.nodes):,} nodes"
        f" in {report.seconds:.1f} s{span}"
    )
    left_out = ", ".join(f"{why} {count:,}" for why, count in report.left_out.items())
    out.print(
        f"  {report.kept:,} new · {report.known:,} known already · {report.changed:,} corrected"
        f" · {sum(report.left_out.values()):,} left out{f' ({left_out})' if left_out else ''} · {report.bridged:,} bridged"
    )
    for what, count in report.seen.items():
        if count:
            out.print(f"  {what}: {count:,}")
    for gap in report.longest_gaps()[:5]:
        out.print(f"  nothing was seen of {plain(gap.node)} from {gap.start:%Y-%m-%d %H:%M:%S} to {gap.end:%H:%M:%S} UTC")
    for note in report.notes:
        out.print(f"  note: {plain(note)}")

"""`stormpetrel ingest traces`: CPU traces into the store, out of campaign files or a Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import steps_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.ingest import TraceIngest


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
    from stormpetrel.answers.site.ingest import ingest_campaign_files, ingest_live_traces
    from stormpetrel.answers.viewer import LOCAL

    if bool(files) == live:
        raise UsageError(
            "Name campaign files to read, or --live, and not both.", hint="For example: stormpetrel ingest traces campaigns/"
        )
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, steps_shown(quiet=as_json) as step:

        def progress(fraction: float, words: str) -> None:
            step(f"{words} ({fraction:.0%})")

        if live:
            receipt = ingest_live_traces(site, LOCAL, progress=progress)
        else:
            receipt = ingest_campaign_files(site, LOCAL, files or [], progress=progress)
        name = "Prometheus" if live else ", ".join(str(path) for path in files or [])
    if as_json:
        print_json(receipt)
    else:
        _print_receipt(name, receipt)


def _print_receipt(name: str, receipt: TraceIngest) -> None:
    out = console()
    span = f", {receipt.first:%Y-%m-%d %H:%M} to {receipt.last:%Y-%m-%d %H:%M} UTC" if receipt.first and receipt.last else ""
    out.print(
        f"{plain(name)}: {receipt.read:,} windows of {receipt.threads:,} threads on {receipt.nodes:,} nodes"
        f" in {receipt.seconds:.1f} s{span}"
    )
    left_out = ", ".join(f"{why} {count:,}" for why, count in receipt.left_out.items())
    out.print(
        f"  {receipt.kept:,} new · {receipt.known:,} known already · {receipt.changed:,} corrected"
        f" · {sum(receipt.left_out.values()):,} left out{f' ({left_out})' if left_out else ''} · {receipt.bridged:,} bridged"
    )
    for what, count in receipt.seen.items():
        out.print(f"  {what}: {count:,}")
    for gap in receipt.gaps[:5]:
        out.print(f"  nothing was seen of {plain(gap.node)} from {gap.start:%Y-%m-%d %H:%M:%S} to {gap.end:%H:%M:%S} UTC")
    for note in receipt.notes:
        out.print(f"  note: {plain(note)}")

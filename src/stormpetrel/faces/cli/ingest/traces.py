"""`stormpetrel ingest traces`: CPU traces into the store, out of campaign files or a Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.ingest import TraceIngest
from stormpetrel.answers.site.ingest import ingest_campaign_files, ingest_live_traces
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.site import open_site


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
    """Cut CPU traces into windows and store them: from campaign files, or from a running Prometheus (--live)."""
    if bool(files) == live:
        raise UsageError(
            "Name campaign files to read, or --live, and not both.", hint="For example: stormpetrel ingest traces campaigns/"
        )
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        if live:
            receipt = ingest_live_traces(site, LOCAL, progress=progress)
        else:
            receipt = ingest_campaign_files(site, LOCAL, files or [], progress=progress)
        name = "Prometheus" if live else ", ".join(str(path) for path in files or [])
    emit(receipt, lambda out: _print_receipt(out, name, receipt), as_json=as_json)


def _print_receipt(out: Console, name: str, receipt: TraceIngest) -> None:
    span = f", {receipt.first:%Y-%m-%d %H:%M} to {receipt.last:%Y-%m-%d %H:%M} UTC" if receipt.first and receipt.last else ""
    counts = ((receipt.read, "window"), (receipt.threads, "thread"), (receipt.nodes, "node"))
    windows, threads, nodes = (f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts)
    out.print(f"{plain(name)}: {windows} of {threads} on {nodes} in {receipt.seconds:.1f} s{span}")
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

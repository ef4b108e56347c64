"""`stormpetrel traces label | regions`: name a trouble by its windows, list what was named, take it back."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.nodes.regions import label_windows, list_regions, remove_regions
from stormpetrel.answers.schemas.regions import RegionLine
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json, SinceTime, UntilTime
from stormpetrel.faces.cli.output import emit, plain, show_table
from stormpetrel.faces.cli.site import open_site, parse_site_time
from stormpetrel.faces.report.blocks import NOTHING, Column, Table
from stormpetrel.faces.report.trace_tables import regions_table
from stormpetrel.records.regions import RegionScope


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

"""`stormpetrel init`: find what is there and make a folder a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli.context import Json, print_json

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.setup import SiteReceipt

_FIELDS = (
    "JobID,JobIDRaw,Cluster,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,Elapsed,State,ExitCode,Timelimit,ReqCPUS,"
    "AllocCPUS,NNodes,ReqMem,MaxRSS,TotalCPU,ReqTRES,AllocTRES,NodeList,WorkDir"
)


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the site.", show_default=False)],
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Zone of the times that the scheduler prints.", show_default="that of this machine")
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster of records that do not name theirs.", show_default="found from Slurm")
    ] = "",
    state_dir: Annotated[
        str, typer.Option("--state-dir", help="Local folder for state.db, if the site is on a network disk.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a site: look for Slurm, HTCondor and Prometheus, write a commented site.toml, ask nothing."""
    from stormpetrel.answers.schemas.setup import NewSite
    from stormpetrel.answers.site.setup import make_site
    from stormpetrel.answers.viewer import LOCAL

    receipt = make_site(folder, LOCAL, NewSite(time_zone=time_zone, cluster=cluster, state_dir=state_dir))
    if as_json:
        print_json(receipt)
    else:
        _print(folder, receipt)


def _print(folder: Path, receipt: SiteReceipt) -> None:
    typer.echo(f"{folder} is a site now; its settings are in {folder / 'site.toml'}. Found on this machine:")
    for line in receipt.found:
        typer.echo(f"  {line}")
    if receipt.time_zone != receipt.machine_time_zone:
        typer.echo(f"Times are read as {receipt.time_zone}.")
    typer.echo("\nNext:")
    site = f"stormpetrel --site {folder}"
    if receipt.has_slurm:
        typer.echo(f"  {site} ingest jobs --live")
    typer.echo(f"  {site} ingest jobs FILE   # sacct -P output, SWF, PBS, HTCondor, CSV; for sacct:")
    typer.echo(f"      sacct -a -D -P -S 2024-01-01 -o {_FIELDS} > jobs.txt")
    if receipt.event_log:
        typer.echo(f"  {site} ingest jobs {receipt.event_log}")
    typer.echo(f"  {site} doctor")

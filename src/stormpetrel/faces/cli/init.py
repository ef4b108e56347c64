"""`stormpetrel init`: detect the schedulers and servers of this machine, and create a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.administration import NewSite, SiteReceipt
from stormpetrel.answers.site.upkeep import make_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit

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
        str, typer.Option("--cluster", help="Cluster of records that do not name theirs.", show_default="detected from Slurm")
    ] = "",
    state_dir: Annotated[
        str, typer.Option("--state-dir", help="Local folder for state.db, if the site is on a network disk.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Create a site: look for Slurm, HTCondor and Prometheus, write a commented site.toml; no questions."""
    receipt = make_site(folder, LOCAL, NewSite(time_zone=time_zone, cluster=cluster, state_dir=state_dir))
    emit(receipt, lambda out: _print_receipt(out, folder, receipt), as_json=as_json)


def _print_receipt(out: Console, folder: Path, receipt: SiteReceipt) -> None:
    out.print(f"{folder} is a site now; its settings are in {folder / 'site.toml'}. Found on this machine:")
    for line in receipt.found:
        out.print(f"  {line}")
    if receipt.time_zone != receipt.machine_time_zone:
        out.print(f"Times are read as {receipt.time_zone}.")
    out.print("\nNext:")
    site = f"stormpetrel --site {folder}"
    if receipt.has_slurm:
        out.print(f"  {site} ingest jobs --live")
    out.print(f"  {site} ingest jobs FILE   # sacct -P output, SWF, PBS, HTCondor, CSV; for sacct:")
    out.print(f"      sacct -a -D -P -S 2024-01-01 -o {_FIELDS} > jobs.txt")
    if receipt.event_log:
        out.print(f"  {site} ingest jobs {receipt.event_log}")
    out.print(f"  {site} doctor")

"""`stormpetrel init`: find what is there and make a folder a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli.context import Json, print_json

if TYPE_CHECKING:
    from stormpetrel.sources.discover import Found

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
    from stormpetrel.config import settings_from
    from stormpetrel.sources.discover import discover
    from stormpetrel.store.site import create_site

    found = discover()
    values: dict[str, object] = {
        "site": {"name": folder.name, "time_zone": time_zone or found.time_zone, "cluster": cluster or found.cluster},
        "store": {"state_dir": str(Path(state_dir).expanduser().resolve()) if state_dir else ""},
        # sacct shows more than slurmrestd: it is used where both are there.
        "slurm": {"sacct": found.sacct or "sacct", "rest_url": "" if found.sacct else found.rest_url},
        "prometheus": {"url": found.prometheus_url},
        "htcondor": {"event_log": found.event_log},
    }
    settings = settings_from(values, where="the command line")
    create_site(folder, settings).close()
    if as_json:
        zone, name = settings.site.time_zone, settings.site.cluster
        print_json({"site": str(folder), "time_zone": zone, "cluster": name, "found": list(found.lines)})
    else:
        _print(folder, found, settings.site.time_zone)


def _print(folder: Path, found: Found, zone: str) -> None:
    typer.echo(f"{folder} is a site now; its settings are in {folder / 'site.toml'}. Found on this machine:")
    for line in found.lines:
        typer.echo(f"  {line}")
    if zone != found.time_zone:
        typer.echo(f"Times are read as {zone}.")
    typer.echo("\nNext:")
    site = f"stormpetrel --site {folder}"
    if found.sacct or found.rest_url:
        typer.echo(f"  {site} ingest jobs --live")
    typer.echo(f"  {site} ingest jobs FILE   # sacct -P output, SWF, PBS, HTCondor, CSV; for sacct:")
    typer.echo(f"      sacct -a -D -P -S 2024-01-01 -o {_FIELDS} > jobs.txt")
    if found.event_log:
        typer.echo(f"  {site} ingest jobs {found.event_log}")
    typer.echo(f"  {site} doctor")

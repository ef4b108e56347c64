"""`stormpetrel init`: make a folder a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stormpetrel.faces.cli.context import Json, print_json


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the site.", show_default=False)],
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Zone of the times that the scheduler prints.", show_default="that of this machine")
    ] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster of records that do not name theirs.")] = "",
    state_dir: Annotated[
        str, typer.Option("--state-dir", help="Local folder for state.db, if the site is on a network disk.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a site: a folder with a commented site.toml, empty tables and nothing else."""
    from stormpetrel.config import SITE_FILE, settings_from
    from stormpetrel.store.site import create_site

    zone = time_zone or _local_zone()
    values = {"site": {"name": folder.name, "time_zone": zone, "cluster": cluster}, "store": {"state_dir": state_dir}}
    settings = settings_from(dict(values), where="the command line")
    create_site(folder, settings).close()
    if as_json:
        print_json({"site": str(folder), "time_zone": zone, "cluster": cluster})
        return
    typer.echo(f"{folder} is a site now. Its settings are in {folder / SITE_FILE} (times are read as {zone}).")
    typer.echo(f"Next: stormpetrel --site {folder} ingest jobs FILE    (sacct -P output, SWF, PBS, HTCondor, CSV …)")
    typer.echo(f"  or: stormpetrel --site {folder} ingest jobs --live  (from the Slurm of this machine)")


def _local_zone() -> str:
    """The zone this machine is set to, where it says so by name."""
    from zoneinfo import available_timezones

    known = available_timezones()
    try:
        named = Path("/etc/timezone").read_text().strip()
        if named in known:
            return named
    except OSError:
        pass
    target = str(Path("/etc/localtime").resolve())
    name = target.partition("zoneinfo/")[2]
    return name if name in known else "UTC"

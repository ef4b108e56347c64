"""`stormpetrel serve`: the dashboard and the API."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.faces.cli.options import Unit
from stormpetrel.faces.cli.site import open_site
from stormpetrel.faces.web.serving import serve as do_serve
from stormpetrel.watch.units import site_unit


def serve(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option("--address", help="Where to listen; serve.address if left out.", show_default=False)
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = False,
    unit: Unit = False,
) -> None:
    """Serve the dashboard and the API of the site, until Ctrl-C."""
    with open_site(context) as site:
        if unit:
            typer.echo(site_unit("serve", site), nl=False)
            return
        do_serve(site, address=address, open_browser=open_browser, tell=typer.echo)
    typer.echo("Stopped.")

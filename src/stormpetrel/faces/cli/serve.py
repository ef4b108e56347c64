"""`stormpetrel serve`: the dashboard and the API, in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.faces.cli.context import Context


def serve(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option("--address", help="Where to listen; serve.address if left out.", show_default=False)
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = False,
    unit: Annotated[bool, typer.Option("--unit", help="Print a systemd unit for this site, and stop.")] = False,
) -> None:
    """Show the site in the browser and answer programs, until Ctrl-C."""
    chosen: Context = context.obj
    with chosen.open_site() as site:
        if unit:
            from stormpetrel.watch.units import site_unit

            typer.echo(site_unit("serve", site), nl=False)
            return
        from stormpetrel.faces.web.serving import serve as do_serve

        do_serve(site, address=address, open_browser=open_browser, tell=typer.echo)
    typer.echo("Stopped.")

"""`stormpetrel watch`: the live loop in the foreground; systemd keeps it there."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.answers.mail.sending import user_mail
from stormpetrel.faces.cli.options import Unit
from stormpetrel.faces.cli.site import open_site
from stormpetrel.watch.logs import Log
from stormpetrel.watch.running import WatchOptions, run_watch
from stormpetrel.watch.units import site_unit


def watch(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Where /metrics, /healthz and /readyz answer; '' for nowhere.", show_default=False),
    ] = None,
    poll: Annotated[
        float | None, typer.Option("--poll", min=0.2, help="Seconds between two polls of the scheduler.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Stop after this many polls.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log JSON, also to a terminal.")] = False,
    stop_with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
    unit: Unit = False,
) -> None:
    """Predict every job live, at submission, at start and two minutes later, and raise incidents; until Ctrl-C."""
    with open_site(context) as site:
        if unit:
            typer.echo(site_unit("watch", site), nl=False)
            return
        settings = site.settings.watch
        options = WatchOptions(
            address=settings.address if address is None else address,
            poll_s=poll or settings.poll_s,
            steps=steps,
            stop_with_stdin=stop_with_stdin,
        )
        log = Log(as_json=True if as_json else None)
        run_watch(site, options, log, more_threads=user_mail(site, log, every_s=options.poll_s))

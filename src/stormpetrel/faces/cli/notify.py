"""`stormpetrel notify`: who is told about incidents, and what became of each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.deliveries import DeliveryLine

app = typer.Typer(
    help="Who is told about incidents, and what became of each message.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("test")
def send_test(
    context: typer.Context,
    route: Annotated[str | None, typer.Option("--route", help="Only this route; all if left out.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Send a test message along each route and say what happened; exit code 1 if one was not taken."""
    from stormpetrel.answers.alarms.deliveries import try_routes
    from stormpetrel.answers.schemas.deliveries import RouteTrial
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = try_routes(site, LOCAL, RouteTrial(route=route))
    if as_json:
        print_json(receipt)
    else:
        for trial in receipt.trials:
            colon = f": {plain(trial.problem)}" if trial.problem else ""
            typer.echo(f"{trial.route} ({trial.kind}): {'taken' if trial.delivered else 'not taken'}{colon}")
    if receipt.failed:
        raise typer.Exit(1)


@app.command("list")
def list_messages(
    context: typer.Context,
    incident: Annotated[
        int | None, typer.Option("--incident", min=1, help="Only about this incident.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List messages and what became of each, the newest first."""
    from stormpetrel.answers.alarms.deliveries import deliveries
    from stormpetrel.answers.schemas.deliveries import DeliveryQuestion
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = deliveries(site, LOCAL, DeliveryQuestion(incident=incident, limit=limit))
        zone = site.settings.site.time_zone
    if as_json:
        print_json(answer)
        return
    out = console()
    if not answer.routes:
        out.print("Nobody is told about incidents: site.toml has no [[notify.routes]].")
    elif not answer.deliveries:
        out.print(f"Nothing was sent so far. Routes: {', '.join(answer.routes)}. Try them: stormpetrel notify test")
    for line in answer.deliveries:
        out.print(_line(line, zone))
    if answer.waiting or answer.given_up:
        out.print(f"{answer.waiting:,} waiting, {answer.given_up:,} given up.")


@app.command("rules")
def rules() -> None:
    """Print rules for Prometheus that notice a dead watch, a source that lags, and messages that do not arrive."""
    from importlib import resources

    typer.echo(resources.files("stormpetrel.watch").joinpath("rules", "stormpetrel.yml").read_text("utf-8"), nl=False)


def _line(line: DeliveryLine, zone: str) -> str:
    created = f"{line.created.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
    about = f"incident {line.incident}" if line.incident else "test"
    tries = f" after {line.tries} tries" if line.tries > 1 else ""
    problem = f": {plain(line.problem)}" if line.problem else ""
    return f"{created}  {line.route:<12} {about:<14} {line.kind:<9} {line.state.replace('_', ' ')}{tries}{problem}"

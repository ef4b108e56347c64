"""`stormpetrel notify`: who gets messages about incidents, and what became of each message."""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.alarms.deliveries import deliveries, try_routes
from stormpetrel.answers.schemas.deliveries import DeliveryLine, DeliveryList, DeliveryQuestion, RouteTrial, TrialReceipt
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, format_time, plain
from stormpetrel.faces.cli.site import open_site


def send_test(
    context: typer.Context,
    route: Annotated[str | None, typer.Option("--route", help="Only this route; all if left out.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Send a test message to each route and report the result; exit code 1 if one was not accepted."""
    with open_site(context, to_write=True) as site:
        receipt = try_routes(site, LOCAL, RouteTrial(route=route))
    emit(receipt, lambda out: _print_trials(out, receipt), as_json=as_json)
    if receipt.failed:
        raise typer.Exit(1)


def list_messages(
    context: typer.Context,
    incident: Annotated[
        int | None, typer.Option("--incident", min=1, help="Only about this incident.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List messages and their delivery state, the newest first."""
    with open_site(context) as site:
        answer = deliveries(site, LOCAL, DeliveryQuestion(incident=incident, limit=limit))
        zone = site.settings.site.time_zone
    emit(answer, lambda out: _print_deliveries(out, answer, zone), as_json=as_json)


def _print_trials(out: Console, receipt: TrialReceipt) -> None:
    for trial in receipt.trials:
        colon = f": {plain(trial.problem)}" if trial.problem else ""
        out.print(f"{trial.route} ({trial.kind}): {'taken' if trial.delivered else 'not taken'}{colon}")


def _print_deliveries(out: Console, answer: DeliveryList, zone: str) -> None:
    if not answer.routes:
        out.print("No one gets messages about incidents: site.toml has no [[notify.routes]].")
    elif not answer.deliveries:
        out.print(f"Nothing was sent so far. Routes: {', '.join(answer.routes)}. Try them: stormpetrel notify test")
    for line in answer.deliveries:
        out.print(_line(line, zone))
    if answer.waiting or answer.given_up:
        out.print(f"{answer.waiting:,} waiting, {answer.given_up:,} given up.")


def rules() -> None:
    """Print rules for Prometheus that notice a dead watch, a source that lags, and messages that do not arrive."""
    typer.echo(resources.files("stormpetrel.watch").joinpath("rules", "stormpetrel.yml").read_text("utf-8"), nl=False)


def _line(line: DeliveryLine, zone: str) -> str:
    created = format_time(line.created, zone)
    about = f"incident {line.incident}" if line.incident else "test"
    tries = f" after {line.tries} tries" if line.tries > 1 else ""
    problem = f": {plain(line.problem)}" if line.problem else ""
    return f"{created}  {line.route:<12} {about:<14} {line.kind:<9} {line.state.replace('_', ' ')}{tries}{problem}"

"""`stormpetrel alarms`: what is wrong with the cluster, since when, and whose fault it probably is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json, site_moment
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.alarms import IncidentLine, ReplayAnswer

app = typer.Typer(
    help="Incidents: what is wrong with the cluster, since when, and whose fault it probably is.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """A group, although it has one command so far."""


@app.command("replay")
def replay(
    context: typer.Context,
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on, in the site's zone: 2026-01-31T14:00.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to this time.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Walk through the site's own past without looking ahead: which incidents, and when each would have been known."""
    from stormpetrel.answers.alarms.replay import replay_alarms
    from stormpetrel.answers.schemas.alarms import ReplayQuestion
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site, progress_shown(quiet=as_json) as progress:
        zone = site.settings.site.time_zone
        question = ReplayQuestion(since=site_moment(since, zone, "--since"), until=site_moment(until, zone, "--until"))
        answer = replay_alarms(site, LOCAL, question, progress=progress)
    if as_json:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: ReplayAnswer) -> None:
    out = console()
    if answer.since is None or answer.until is None or answer.first is None or answer.last is None:
        out.print("The site has no job that has ended: there is no past to walk through. Next: stormpetrel ingest jobs FILE")
        return
    span = f"{_format(answer.since, answer.zone)} to {_format(answer.until, answer.zone)} ({plain(answer.zone)})"
    if not answer.weeks:
        records = f"{_format(answer.first, answer.zone)} to {_format(answer.last, answer.zone)} ({plain(answer.zone)})"
        out.print(f"No job has ended in that time. There are records of {records}.")
        return
    if not answer.incidents:
        out.print(f"Nothing would have been raised: {span}, {answer.weeks:.1f} weeks.")
        return
    for incident in answer.incidents:
        out.print(_line(incident, answer.zone))
    incidents = "1 incident" if len(answer.incidents) == 1 else f"{len(answer.incidents):,} incidents"
    pages = sum(incident.page for incident in answer.incidents)
    out.print(
        f"{incidents}, {pages:,} sent at once ({answer.pages_per_week or 0:.2g} messages a week, "
        f"returns counted); {span}, {answer.weeks:.1f} weeks."
    )


def _line(incident: IncidentLine, zone: str) -> str:
    state = "" if incident.state == "resolved" else f" [{incident.state}]"
    return f"{incident.id:>4}  {_format(incident.raised_at, zone)}  {incident.severity:<7}  {plain(incident.title)}{state}"


def _format(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"

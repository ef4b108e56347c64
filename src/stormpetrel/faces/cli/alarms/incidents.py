"""`stormpetrel alarms`: what is wrong with the cluster, since when, and whose fault it probably is."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Annotated, Literal

import typer
from rich.console import Console

from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.alarms.replay import replay_alarms, site_of_files
from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentQuestion, ReplayAnswer, ReplayFiles, ReplayQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.alarms.acts import Number
from stormpetrel.faces.cli.alarms.text import print_incident, print_list
from stormpetrel.faces.cli.options import Fields, Json, SinceTime, UntilTime, Year
from stormpetrel.faces.cli.output import emit, format_time, plain
from stormpetrel.faces.cli.progress import byte_bar, share_spinner
from stormpetrel.faces.cli.site import open_site, parse_site_time


def list_alarms(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also resolved ones.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Quiet ones, not listed because they are similar to dismissed ones.")
    ] = False,
    since: SinceTime = None,
    severity: Annotated[
        Literal["info", "warning", "page"] | None,
        typer.Option("--severity", help="Of this severity or a higher one.", show_default=False),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option("--family", help="Detected by these rules and models only: jobs, traces or events.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many, the newest.")] = 100,
    as_json: Json = False,
) -> None:
    """List the incidents, the newest first: those that are open, or all."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        question = IncidentQuestion(
            state="quiet" if quiet else "all" if everything else "open",
            since=parse_site_time(since, zone, "--since"),
            severity=severity,
            family=_known_family(family),
            limit=limit,
        )
        answer = list_incidents(site, LOCAL, question)
    everything = everything or quiet
    narrowed = quiet or any(choice is not None for choice in (since, severity, family))
    emit(
        answer,
        lambda out: print_list(out, answer, zone, everything=everything, narrowed=narrowed, limit=limit),
        as_json=as_json,
    )


def show(context: typer.Context, number: Number, as_json: Json = False) -> None:
    """Show one incident in full: evidence, time line, what people did, lost jobs, similar past incidents."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        answer = show_incident(site, LOCAL, number)
    emit(answer, lambda out: print_incident(out, answer, zone), as_json=as_json)


def replay(
    context: typer.Context,
    since: SinceTime = None,
    until: UntilTime = None,
    no_models: Annotated[
        bool, typer.Option("--no-models", help="Rules only: no event model is trained, which is faster.")
    ] = False,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="Without a site: this file of job records; may be repeated.", show_default=False),
    ] = None,
    event_files: Annotated[
        list[str] | None,
        typer.Option("--events", help="Without a site: this event log or table of counts; may be repeated.", show_default=False),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", help="Format of these files; detected from each if left out.", show_default=False),
    ] = None,
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Zone of the times in these files, such as Europe/Berlin.")
    ] = "UTC",
    fields: Fields = None,
    year: Year = None,
    as_json: Json = False,
) -> None:
    """Replay the site's own past without looking ahead: which incidents, and when each would have been known."""
    of_files = bool(files or event_files)
    if not of_files and (format_name or time_zone != "UTC" or fields or year):
        raise UsageError(
            "--format, --time-zone, --fields and --year are about files.",
            hint="Name one: --file jobs.txt, or --events counts.csv.",
        )
    with ExitStack() as stack:
        if of_files:
            named = ReplayFiles(
                jobs=files or [],
                events=event_files or [],
                format=format_name,
                time_zone=time_zone,
                fields=[name.strip() for name in fields.split(",")] if fields else None,
                year=year,
            )
            bar = partial(byte_bar, quiet=as_json)
            site = stack.enter_context(site_of_files(named, bar=bar))
        else:
            site = stack.enter_context(open_site(context))
        progress = stack.enter_context(share_spinner(quiet=as_json))
        zone = site.settings.site.time_zone
        question = ReplayQuestion(
            since=parse_site_time(since, zone, "--since"), until=parse_site_time(until, zone, "--until"), models=not no_models
        )
        answer = replay_alarms(site, LOCAL, question, progress=progress)
    emit(answer, lambda out: _print_replay(out, answer), as_json=as_json)


def _known_family(text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.replace("_", "").isalpha() and text.islower() and len(text) <= 32):
        raise UsageError(
            f"--family {plain(text[:80])!r} is not a family of rules and models.", hint="Write it as an incident has it: jobs."
        )
    return text


def _print_replay(out: Console, answer: ReplayAnswer) -> None:
    if answer.since is None or answer.until is None or answer.first is None or answer.last is None:
        if answer.partial_buckets:
            out.print(f"Of {_count(answer.partial_buckets, 'bucket')} no complete bucket of events: too little to replay.")
        else:
            out.print("The site has neither a job that has ended nor counted events: there is no past to replay.")
        out.print("Next: stormpetrel ingest jobs FILE, or stormpetrel ingest events FILE")
        return
    span = f"{format_time(answer.since, answer.zone)} to {format_time(answer.until, answer.zone)} ({plain(answer.zone)})"
    if not answer.weeks:
        records = f"{format_time(answer.first, answer.zone)} to {format_time(answer.last, answer.zone)} ({plain(answer.zone)})"
        out.print(f"Nothing is recorded in that time. There are records of {records}.")
        return
    for incident in answer.incidents:
        out.print(_line(incident, answer.zone))
    if answer.incidents:
        pages = sum(incident.page for incident in answer.incidents)
        rate = f"{answer.pages_per_week or 0:.2g} messages a week, returns counted"
        incidents = _count(len(answer.incidents), "incident")
        out.print(f"{incidents}, {pages:,} sent at once ({rate}); {span}, {answer.weeks:.1f} weeks.")
    else:
        out.print(f"Nothing would have been raised: {span}, {answer.weeks:.1f} weeks.")
    out.print(_records_text(answer))


def _records_text(answer: ReplayAnswer) -> str:
    """Return which records were replayed."""
    trained = f" ({_count(answer.event_models, 'model')} trained on the way)" if answer.event_models else ""
    parts = [_count(answer.jobs, "job"), f"{_count(answer.buckets, 'bucket')} of events{trained}"]
    traces = "scores of CPU windows" if answer.has_traces else "no scores of CPU windows"
    return f"Replayed {', '.join(parts)}, {traces}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(incident: IncidentLine, zone: str) -> str:
    state = "" if incident.state == "resolved" else f" [{incident.state}]"
    again = "" if not incident.returns else f", came back {'once' if incident.returns == 1 else f'{incident.returns:,} times'}"
    head = f"{incident.id:>4}  {format_time(incident.raised_at, zone)}  {incident.severity:<7}"
    return f"{head}  {plain(incident.title)}{again}{state}"

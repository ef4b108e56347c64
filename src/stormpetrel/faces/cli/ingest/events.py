"""`stormpetrel ingest events`: counts of job events into the store, out of files or of what site.toml names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.ingest import EventIngest, EventsIngest
from stormpetrel.answers.site.ingest import drop_event_table, ingest_event_files, ingest_live_events
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.cli.options import Json, Year
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.site import open_site

_SHOWN_GAPS = 5


def ingest_events(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="HTCondor event logs, tables of events, or tables of counts.", show_default=False),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read every source that site.toml names, from where the last run stopped.")
    ] = False,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="condor-events, slurmctld, events or counts; detected from the file if left out.", show_default=False
        ),
    ] = None,
    year: Year = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="With --live: count Elasticsearch's documents here, each exactly once; slower.")
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option(
            "--drop", help="Delete the counts that were read from a table, by its name: table:counts.csv.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count job events per hour from files, or (--live) from Elasticsearch, event logs, jobs, Graphite and Grafana."""
    if drop is not None:
        _drop(context, drop, alone=not (files or live or raw), as_json=as_json)
        return
    if bool(files) == live:
        raise UsageError("Name files to read, or --live, and not both.", hint="For example: stormpetrel ingest events EventLog")
    if raw and not live:
        raise UsageError("--raw is about Elasticsearch, which only --live reads.", hint="Add --live, or leave out --raw.")
    with open_site(context, to_write=True) as site, share_spinner(quiet=as_json) as progress:
        if live:
            ingested = ingest_live_events(site, LOCAL, raw=raw, progress=progress)
        else:
            ingested = ingest_event_files(site, LOCAL, files or [], format_name=format_name, year=year, progress=progress)
    _emit(ingested, as_json=as_json)


def _drop(context: typer.Context, source: str, *, alone: bool, as_json: bool) -> None:
    if not alone:
        raise UsageError("--drop cannot be combined with other options.", hint="Drop first, then read: two commands.")
    with open_site(context, to_write=True) as site:
        receipt = drop_event_table(site, LOCAL, source)
    text = f"{plain(receipt.dropped)} is forgotten, {receipt.rows:,} rows. Buckets that were scored keep their score."
    emit(receipt, text, as_json=as_json)


def _emit(ingested: EventsIngest, *, as_json: bool) -> None:
    """Print what was read; the last problem is left to be raised, so that the exit code shows it."""
    problems = ingested.problems
    if len(ingested.sources) == 1 and problems and not ingested.read:  # one source, and nothing but its problem
        raise StormpetrelError(problems[-1])
    emit(ingested, lambda out: _print_sources(out, ingested), as_json=as_json)
    for problem in problems[:-1]:
        typer.echo(f"stormpetrel: {plain(problem)}", err=True)
    if problems:
        raise StormpetrelError(problems[-1])


def _print_sources(out: Console, ingested: EventsIngest) -> None:
    for source in ingested.sources:
        _print_source(out, source)


def _print_source(out: Console, report: EventIngest) -> None:
    if not report.read and not report.changed:
        if not report.problems:
            out.print(f"{plain(report.source)}: nothing new")
        return
    span = f", {report.first:%Y-%m-%d %H:%M} to {report.last:%Y-%m-%d %H:%M} UTC" if report.first and report.last else ""
    what = "events" if report.kinds or report.quarantined else "entries"
    out.print(f"{plain(report.source)}: {report.read:,} {what} read in {report.seconds:.1f} s{span}")
    parts = f"{report.kept:,} new · {report.known:,} known already · {report.changed:,} changed"
    out.print(f"  buckets of time: {parts}" if what == "events" else f"  {parts}")
    for kind, count in report.kinds.items():
        out.print(f"    {plain(kind):<20}{count:>14,}")
    for why, count in report.quarantined.items():
        out.print(f"  not counted: {plain(why)} ({count:,})")
    for gap in report.gaps[-_SHOWN_GAPS:]:
        out.print(f"  gap: {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC, {plain(gap.why)}")
    if report.gap_count > _SHOWN_GAPS:
        out.print(f"  and {report.gap_count - _SHOWN_GAPS:,} earlier gaps: stormpetrel events show")
    print_notes(out, report)


def print_notes(out: Console, report: EventIngest) -> None:
    """Print the notes of a source, as far as the receipt holds them."""
    for note in report.notes:
        out.print(f"  note: {plain(note)}")
    if report.note_count > len(report.notes):
        out.print(f"  and {report.note_count - len(report.notes):,} more notes")

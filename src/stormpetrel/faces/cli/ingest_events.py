"""`stormpetrel ingest events`: counts of job events into the store, out of files or of what site.toml names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.answers.schemas.ingest import EventIngest, EventsIngest

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
        typer.Option("--format", help="condor-events, events or counts; found from the file if left out.", show_default=False),
    ] = None,
    year: Annotated[
        int | None,
        typer.Option("--year", min=1980, max=2100, help="Year of an event log whose dates have none.", show_default=False),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="With --live: count Elasticsearch's documents here, each exactly once; slower.")
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option("--drop", help="Forget what a table has told, by its name: table:counts.csv.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count job events per hour: from files, or from Elasticsearch, event logs, job table, Graphite and Grafana (--live)."""
    if drop is not None:
        _drop(context.obj, drop, alone=not (files or live or raw), as_json=as_json)
        return
    if bool(files) == live:
        raise UsageError("Name files to read, or --live, and not both.", hint="For example: stormpetrel ingest events EventLog")
    if raw and not live:
        raise UsageError("--raw is about Elasticsearch, which only --live reads.", hint="Add --live, or leave out --raw.")
    from stormpetrel.answers.site.ingest import ingest_event_files, ingest_live_events
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        if live:
            ingested = ingest_live_events(site, LOCAL, raw=raw, progress=progress)
        else:
            ingested = ingest_event_files(site, LOCAL, files or [], format_name=format_name, year=year, progress=progress)
    _show(ingested, as_json=as_json)


def _drop(chosen: Context, source: str, *, alone: bool, as_json: bool) -> None:
    from stormpetrel.answers.site.ingest import drop_event_table
    from stormpetrel.answers.viewer import LOCAL

    if not alone:
        raise UsageError("--drop stands alone.", hint="Drop first, then read: two commands.")
    with chosen.open_site(to_write=True) as site:
        receipt = drop_event_table(site, LOCAL, source)
    if as_json:
        print_json(receipt)
    else:
        console().print(
            f"{plain(receipt.dropped)} is forgotten, {receipt.rows:,} rows. Buckets that were scored keep their score."
        )


def _show(ingested: EventsIngest, *, as_json: bool) -> None:
    """What came of it; the last problem is left to be raised, so that the exit code says it."""
    problems = ingested.problems
    if len(ingested.sources) == 1 and problems and not ingested.read:  # one source, and nothing but its problem
        raise StormpetrelError(problems[-1])
    if as_json:
        print_json(ingested)
    else:
        out = console()
        for source in ingested.sources:
            _print_source(out, source)
    for problem in problems[:-1]:
        typer.echo(f"stormpetrel: {plain(problem)}", err=True)
    if problems:
        raise StormpetrelError(problems[-1])


def _print_source(out: Console, report: EventIngest) -> None:
    """What one ingest of events came to, for a person."""
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
    """What a source had to say besides, as far as the receipt holds it."""
    for note in report.notes:
        out.print(f"  note: {plain(note)}")
    if report.note_count > len(report.notes):
        out.print(f"  and {report.note_count - len(report.notes):,} more notes")

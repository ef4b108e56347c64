"""`stormpetrel ingest events`: counts of job events into the store, out of files or of what site.toml names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import SourceError, StormpetrelError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import progress_shown

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.ingest.event_report import EventReport
    from stormpetrel.store.site import Site

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
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, progress_shown(quiet=as_json) as progress:
        reports = _live(site, progress, raw=raw) if live else _files(site, files or [], format_name, year, progress)
    _tell(reports, as_json=as_json)


def _drop(chosen: Context, source: str, *, alone: bool, as_json: bool) -> None:
    from stormpetrel.ingest.events import drop_table

    if not alone:
        raise UsageError("--drop stands alone.", hint="Drop first, then read: two commands.")
    with chosen.open_site(to_write=True) as site:
        rows = drop_table(site, source)
    if as_json:
        print_json({"dropped": source, "rows": rows})
    else:
        console().print(f"{plain(source)} is forgotten, {rows:,} rows. Buckets that were scored keep their score.")


def _live(site: Site, progress: Callable[[float, str], None], *, raw: bool) -> list[EventReport]:
    from stormpetrel.ingest.events import ingest_live_events

    reports = ingest_live_events(site, raw=raw, progress=progress)
    if not reports:
        raise UsageError(
            "Nothing says where events come from.",
            hint="In site.toml set elastic.url or htcondor.event_log, or take in jobs first: stormpetrel ingest jobs.",
        )
    return reports


def _files(
    site: Site, files: list[Path], format_name: str | None, year: int | None, progress: Callable[[float, str], None]
) -> list[EventReport]:
    """Each file in turn; one that cannot be read does not keep the others out."""
    from stormpetrel.ingest.event_report import EventReport
    from stormpetrel.ingest.events import ingest_events as take_in
    from stormpetrel.sources.event_formats import event_file

    reports = []
    for path in files:
        report = EventReport(path.name)
        try:
            take_in(site, event_file(path, format_name, site.settings, year=year), progress=progress, report=report)
        except SourceError as error:
            if str(error) not in report.problems:
                report.problems.append(str(error))
        reports.append(report)
    return reports


def _tell(reports: list[EventReport], *, as_json: bool) -> None:
    """What came of it; the last problem is left to be raised, so that the exit code says it."""
    from stormpetrel.ingest.event_report import combined

    total = combined(reports)
    if len(reports) == 1 and total.problems and not total.read:  # one source, and nothing but its problem
        raise StormpetrelError(total.problems[-1])
    if as_json:
        print_json({**total.as_dict(), "sources": [report.as_dict() for report in reports]})
    else:
        out = console()
        for report in reports:
            print_report(out, report)
    for problem in total.problems[:-1]:
        typer.echo(f"stormpetrel: {plain(problem)}", err=True)
    if total.problems:
        raise StormpetrelError(total.problems[-1])


def print_report(out: Console, report: EventReport) -> None:
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
    for kind, count in report.kinds.most_common():
        out.print(f"    {plain(kind):<20}{count:>14,}")
    for why, count in report.quarantined.items():
        out.print(f"  not counted: {plain(why)} ({count:,})")
    for gap in report.gaps[-_SHOWN_GAPS:]:
        out.print(f"  gap: {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC, {plain(gap.why)}")
    if len(report.gaps) > _SHOWN_GAPS:
        out.print(f"  and {len(report.gaps) - _SHOWN_GAPS:,} earlier gaps: stormpetrel events show")
    for note in report.notes:
        out.print(f"  note: {plain(note)}")

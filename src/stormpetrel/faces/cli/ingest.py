"""`stormpetrel ingest`: job records into the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.sources.contract import JobSource
    from stormpetrel.store.ingest import IngestReport
    from stormpetrel.store.site import Site

app = typer.Typer(help="Read records into the site.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _noun() -> None:
    """Read records into the site."""


@app.command("jobs")
def ingest_jobs(
    context: typer.Context,
    files: Annotated[list[str] | None, typer.Argument(help="Files to read; - for standard input.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Read from the running Slurm, from where the last run stopped.")] = False,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="sacct, sacct-json, swf, pbs, condor-history, condor-events, lumos, alcf-djc, supercloud, or a column map "
            "(.toml); found from the file if left out.",
            show_default=False,
        ),
    ] = None,
    fields: Annotated[
        str | None, typer.Option("--fields", help="Names of the columns of sacct text without a header.", show_default=False)
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Delimiter of sacct text; found from the file if left out.", show_default=False),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Cluster of records that do not name theirs.", show_default=False)
    ] = None,
    year: Annotated[
        int | None, typer.Option("--year", help="Year of an event log whose dates have none.", show_default=False)
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", help="When the records were true (ISO time); the file's own time if left out.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read job records from files, from standard input, or from a running Slurm (--live)."""
    if bool(files) == live:
        raise UsageError("Name files to read, or --live, and not both.", hint="For example: stormpetrel ingest jobs sacct.txt")
    chosen: Context = context.obj
    with chosen.open_site() as site:
        sources: Iterable[JobSource] = (
            _live_sources(site)
            if live
            else _file_sources(site, files or [], format_name, fields, delimiter, cluster, year, as_of)
        )
        reports = [(source.name, _ingest_one(site, source, quiet=as_json)) for source in sources]
    if live:
        from stormpetrel.store.ingest import combined

        reports = [(f"Slurm, {len(reports)} windows", combined([report for _, report in reports]))]
    _show(reports, as_json=as_json)


def _file_sources(
    site: Site,
    files: list[str],
    format_name: str | None,
    fields: str | None,
    delimiter: str | None,
    cluster: str | None,
    year: int | None,
    as_of: str | None,
) -> list[JobSource]:
    from stormpetrel.sources.formats import ReadOptions, open_source

    options = ReadOptions(
        time_zone=site.settings.site.time_zone,
        cluster=cluster or site.settings.site.cluster,
        fields=[name.strip() for name in fields.split(",")] if fields else None,
        delimiter=delimiter,
        year=year,
    )
    sources = [open_source(path, format_name, options) for path in files]
    if as_of:
        moment = _parse_time(as_of)
        for source in sources:
            source.as_of = moment
    return sources


def _live_sources(site: Site) -> Iterator[JobSource]:
    from stormpetrel.sources.slurm_live import live_sources

    return live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=site.now())


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text!r} is not a time.", hint="Write it as 2024-03-31T12:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _ingest_one(site: Site, source: JobSource, *, quiet: bool) -> IngestReport:
    from stormpetrel.store.ingest import ingest_jobs as take_in

    with progress_bar(f"reading {source.name}", source.size_bytes, shown=not quiet) as progress:
        return take_in(site, source, progress=progress)


def _show(reports: list[tuple[str, IngestReport]], *, as_json: bool) -> None:
    if as_json:
        from stormpetrel.store.ingest import combined

        print_json(combined([report for _, report in reports]).as_dict())
        return
    out = console()
    for name, report in reports:
        print_report(out, name, report)


def print_report(out: Console, name: str, report: IngestReport) -> None:
    """What one ingest came to, for a person."""
    span = f", submitted {report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}" if report.first and report.last else ""
    out.print(f"{plain(name)}: {report.read:,} records read in {report.seconds:.1f} s{span}")
    out.print(
        f"  {report.kept:,} new · {report.known:,} known already · {report.changed:,} corrected"
        f" · {report.folded:,} folded into their job · {sum(report.quarantined.values()):,} in quarantine"
    )
    for state, count in sorted(report.states.items(), key=lambda item: -item[1]):
        out.print(f"    {state:<14}{count:>12,}")
    _print_problems(out, "quarantine", dict(report.quarantined), report.examples)
    _print_problems(out, "odd, but kept", report.warnings.counts, report.warnings.examples)
    for start, end in report.gaps:
        out.print(f"  no job was submitted from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC")
    for note in report.notes:
        out.print(f"  note: {plain(note)}")


def _print_problems(out: Console, title: str, counts: dict[str, Any], examples: dict[str, list[str]]) -> None:
    for rule, count in counts.items():
        out.print(f"  {title}: {rule} ({count:,})")
        for example in examples.get(rule, []):
            out.print(f"    {plain(example)}", soft_wrap=True)

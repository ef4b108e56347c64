"""`stormpetrel ingest`: job records into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import SourceError, SourceUnavailableError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.ingest.jobs import IngestReport
    from stormpetrel.sources.contract import JobSource
    from stormpetrel.sources.formats import ReadOptions
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
    with chosen.open_site(to_write=True) as site:
        options = _read_options(site, fields, delimiter, cluster, year)
        sources = live_sources_of(site) if live else _file_sources(files or [], format_name, options, as_of)
        reports, problems = ingest_all(site, sources, quiet=as_json)
        total = total_of(site, [report for _, report in reports])
    if live and reports:
        reports = [(f"Slurm, {len(reports)} windows", total)]
    if reports or not problems:
        _show(reports, total, as_json=as_json)
    if problems:
        raise problems[-1]


def ingest_all(
    site: Site, sources: Iterator[JobSource | SourceError], *, quiet: bool
) -> tuple[list[tuple[str, IngestReport]], list[SourceError]]:
    """Each source in turn; one that cannot be read does not keep the others out. The last problem is left to be raised."""
    reports: list[tuple[str, IngestReport]] = []
    problems: list[SourceError] = []
    for source in sources:
        try:
            if isinstance(source, SourceError):
                raise source
            reports.append((source.name, _ingest_one(site, source, quiet=quiet)))
        except SourceError as error:
            if problems:
                typer.echo(f"stormpetrel: {problems[-1]}", err=True)
            problems.append(error)
            if isinstance(error, SourceUnavailableError):  # a live source: what comes after would leave a hole
                break
    return reports, problems


def total_of(site: Site, reports: list[IngestReport]) -> IngestReport:
    """The sum of several reports, with the gaps of the whole span."""
    from stormpetrel.ingest.jobs import combined, find_gaps

    total = combined(reports)
    total.gaps = find_gaps(site, total.first, total.last)
    return total


def _read_options(site: Site, fields: str | None, delimiter: str | None, cluster: str | None, year: int | None) -> ReadOptions:
    from stormpetrel.sources.formats import ReadOptions

    return ReadOptions(
        time_zone=site.settings.site.time_zone,
        cluster=cluster or site.settings.site.cluster,
        fields=[name.strip() for name in fields.split(",")] if fields else None,
        delimiter=delimiter,
        year=year,
    )


def _file_sources(
    files: list[str], format_name: str | None, options: ReadOptions, as_of: str | None
) -> Iterator[JobSource | SourceError]:
    from stormpetrel.sources.formats import open_source

    moment = _parse_time(as_of) if as_of else None
    for path in files:
        try:
            source = open_source(path, format_name, options)
        except SourceError as error:
            yield error
            continue
        if moment:
            source.as_of = moment
        yield source


def live_sources_of(site: Site) -> Iterator[JobSource | SourceError]:
    """What the site's Slurm has to tell since the last run, a window at a time."""
    from stormpetrel.sources.slurm_live import live_sources

    return live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=site.now())


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--as-of {text!r} is not a time.", hint="Write it as 2024-03-31T12:00.") from None
    return moment


def _ingest_one(site: Site, source: JobSource, *, quiet: bool) -> IngestReport:
    from stormpetrel.ingest.jobs import ingest_jobs as take_in

    with progress_bar(f"reading {source.name}", source.size_bytes, shown=not quiet) as progress:
        return take_in(site, source, progress=progress)


def _show(reports: list[tuple[str, IngestReport]], total: IngestReport, *, as_json: bool) -> None:
    if as_json:
        print_json(total.as_dict())
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
    _print_problems(out, "odd, but kept", report.warnings.counts, report.warnings.examples, words=_rule_words())
    for column, count in sorted(report.unread.counts.items()):
        out.print(f"  not read, kept without it: {column} ({count:,} of {report.unread.told[column]:,})")
        for example in report.unread.examples[column]:
            out.print(f"    {plain(example)}", soft_wrap=True)
    for start, end in report.gaps:
        out.print(f"  no job was submitted from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC")
    for note in report.notes:
        out.print(f"  note: {plain(note)}")


def _rule_words() -> dict[str, str]:
    """What each rule of data quality means, and what is not built on where it holds."""
    from stormpetrel.records.doubts import RULES

    unused = {rule.name: f"; advice does not use {rule.doubts[0]} of these rows" for rule in RULES if rule.doubts}
    return {rule.name: rule.meaning.replace("`", "") + unused.get(rule.name, "") for rule in RULES}


def _print_problems(
    out: Console, title: str, counts: dict[str, Any], examples: dict[str, list[str]], words: Mapping[str, str] | None = None
) -> None:
    for rule, count in counts.items():
        out.print(f"  {title}: {rule} ({count:,})")
        if words and rule in words:
            out.print(f"    {words[rule]}", soft_wrap=True)
        for example in examples.get(rule, []):
            out.print(f"    {plain(example)}", soft_wrap=True)

"""`stormpetrel ingest`: job records into the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.answers.schemas.ingest import JobIngest

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
    from stormpetrel.answers.schemas.ingest import JobFiles
    from stormpetrel.answers.site.ingest import ingest_job_files, ingest_live_jobs
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    bar = partial(progress_bar, shown=not as_json)
    with chosen.open_site(to_write=True) as site:
        if live:
            ingested = ingest_live_jobs(site, LOCAL, bar=bar)
        else:
            act = JobFiles(
                files=files or [],
                format=format_name,
                fields=[name.strip() for name in fields.split(",")] if fields else None,
                delimiter=delimiter,
                cluster=cluster,
                year=year,
                as_of=_parse_time(as_of) if as_of else None,
            )
            ingested = ingest_job_files(site, LOCAL, act, bar=bar)
    for problem in ingested.problems[:-1]:
        typer.echo(f"stormpetrel: {problem}", err=True)
    if ingested.sources or not ingested.problems:
        if as_json:
            print_json(ingested.total)
        for name, receipt in () if as_json else ingested.sources:
            print_receipt(console(), name, receipt)
    if ingested.problems:  # the last one is left to be raised, so that the exit code says it
        raise ingested.problems[-1]


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--as-of {text!r} is not a time.", hint="Write it as 2024-03-31T12:00.") from None
    return moment


def print_receipt(out: Console, name: str, receipt: JobIngest) -> None:
    """What one ingest came to, for a person."""
    span = f", submitted {receipt.first:%Y-%m-%d} to {receipt.last:%Y-%m-%d}" if receipt.first and receipt.last else ""
    out.print(f"{plain(name)}: {receipt.read:,} records read in {receipt.seconds:.1f} s{span}")
    out.print(
        f"  {receipt.kept:,} new · {receipt.known:,} known already · {receipt.changed:,} corrected"
        f" · {receipt.folded:,} folded into their job · {sum(receipt.quarantined.values()):,} in quarantine"
    )
    for state, count in sorted(receipt.states.items(), key=lambda item: -item[1]):
        out.print(f"    {state:<14}{count:>12,}")
    _print_problems(out, "quarantine", receipt.quarantined, receipt.examples)
    _print_problems(out, "odd, but kept", receipt.warnings, receipt.warning_examples, words=_rule_words())
    for column, count in receipt.unread.items():
        out.print(f"  not read, kept without it: {column} ({count:,} of {receipt.unread_of[column]:,})")
        for example in receipt.unread_examples[column]:
            out.print(f"    {plain(example)}", soft_wrap=True)
    for gap in receipt.gaps:
        out.print(f"  no job was submitted from {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC")
    for note in receipt.notes:
        out.print(f"  note: {plain(note)}")


def _rule_words() -> dict[str, str]:
    """What each rule of data quality means, and what is not built on where it holds."""
    from stormpetrel.records.doubts import RULES

    unused = {rule.name: f"; advice does not use {rule.doubts[0]} of these rows" for rule in RULES if rule.doubts}
    return {rule.name: rule.meaning.replace("`", "") + unused.get(rule.name, "") for rule in RULES}


def _print_problems(
    out: Console, title: str, counts: dict[str, int], examples: dict[str, list[str]], words: Mapping[str, str] | None = None
) -> None:
    for rule, count in counts.items():
        out.print(f"  {title}: {rule} ({count:,})")
        if words and rule in words:
            out.print(f"    {words[rule]}", soft_wrap=True)
        for example in examples.get(rule, []):
            out.print(f"    {plain(example)}", soft_wrap=True)

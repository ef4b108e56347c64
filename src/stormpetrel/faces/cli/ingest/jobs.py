"""`stormpetrel ingest jobs`: job records into the store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.ingest import JobFiles, JobIngest
from stormpetrel.answers.site.ingest import JobsIngested, ingest_job_files, ingest_live_jobs
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Fields, Json, Year
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import byte_bar
from stormpetrel.faces.cli.site import open_site, parse_day
from stormpetrel.records.doubts import RULES


def ingest_jobs(
    context: typer.Context,
    files: Annotated[list[str] | None, typer.Argument(help="Files to read; - for standard input.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Read from the running Slurm, from where the last run stopped.")] = False,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="sacct, sacct-json, slurmctld, jobcomp, swf, pbs, lsf, condor-history, condor-events, tasks, lumos, alcf-djc, "
            "supercloud or a column map (.toml); detected from the file if left out.",
            show_default=False,
        ),
    ] = None,
    fields: Fields = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Delimiter of sacct text; detected from the file if left out.", show_default=False),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Cluster of records that do not name theirs.", show_default=False)
    ] = None,
    year: Year = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Time of the records (ISO); the file's modification time if left out.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read job records from files, from standard input, or from a running Slurm (--live)."""
    if bool(files) == live:
        raise UsageError("Name files to read, or --live, and not both.", hint="For example: stormpetrel ingest jobs sacct.txt")
    bar = partial(byte_bar, quiet=as_json)
    with open_site(context, to_write=True) as site:
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
                as_of=parse_day(as_of, "--as-of") if as_of else None,
            )
            ingested = ingest_job_files(site, LOCAL, act, bar=bar)
    for problem in ingested.problems[:-1]:
        typer.echo(f"stormpetrel: {problem}", err=True)
    if ingested.sources or not ingested.problems:
        emit(ingested.total, lambda out: _print_sources(out, ingested), as_json=as_json)
    if ingested.problems:  # the last one is left to be raised, so that the exit code shows it
        raise ingested.problems[-1]


def _print_sources(out: Console, ingested: JobsIngested) -> None:
    for name, receipt in ingested.sources:
        print_receipt(out, name, receipt)


def print_receipt(out: Console, name: str, receipt: JobIngest) -> None:
    """Print what was read from one source: counts, states, what was refused or odd, gaps."""
    span = f", submitted {receipt.first:%Y-%m-%d} to {receipt.last:%Y-%m-%d}" if receipt.first and receipt.last else ""
    out.print(f"{plain(name)}: {receipt.read:,} records read in {receipt.seconds:.1f} s{span}")
    out.print(
        f"  {receipt.kept:,} new · {receipt.known:,} known already · {receipt.changed:,} corrected"
        f" · {receipt.folded:,} merged into their job · {sum(receipt.quarantined.values()):,} in quarantine"
    )
    for state, count in sorted(receipt.states.items(), key=lambda item: -item[1]):
        out.print(f"    {state:<14}{count:>12,}")
    _print_problems(out, "quarantine", receipt.quarantined, receipt.examples)
    _print_problems(out, "odd, but kept", receipt.warnings, receipt.warning_examples, meanings=_rule_meanings())
    for column, count in receipt.unread.items():
        out.print(f"  not read, kept without it: {column} ({count:,} of {receipt.unread_of[column]:,})")
        for example in receipt.unread_examples[column]:
            out.print(f"    {plain(example)}", soft_wrap=True)
    for gap in receipt.gaps:
        out.print(f"  no job was submitted from {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC")
    for note in receipt.notes:
        out.print(f"  note: {plain(note)}")


def _rule_meanings() -> dict[str, str]:
    """Return what each rule of data quality means, and what is not used where it holds."""
    unused = {rule.name: f"; advice does not use {rule.doubts[0]} of these rows" for rule in RULES if rule.doubts}
    return {rule.name: rule.meaning.replace("`", "") + unused.get(rule.name, "") for rule in RULES}


def _print_problems(
    out: Console, title: str, counts: dict[str, int], examples: dict[str, list[str]], meanings: Mapping[str, str] | None = None
) -> None:
    for rule, count in counts.items():
        out.print(f"  {title}: {rule} ({count:,})")
        if meanings and rule in meanings:
            out.print(f"    {meanings[rule]}", soft_wrap=True)
        for example in examples.get(rule, []):
            out.print(f"    {plain(example)}", soft_wrap=True)

"""`stormpetrel report`: every table and figure of the published studies from a site's own data, as one HTML file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from stormpetrel.answers.schemas.administration import ReportOrder
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.faces.cli.jobs.input import Files, read_input
from stormpetrel.faces.cli.options import Drop, Failed, Fields, Format, Json, SinceDay
from stormpetrel.faces.cli.output import emit
from stormpetrel.faces.cli.progress import step_spinner
from stormpetrel.faces.cli.site import names_a_site, open_site
from stormpetrel.faces.report.whole_report import write_report
from stormpetrel.records.units import format_size


def report(
    context: typer.Context,
    files: Files = None,
    target: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The latest 20,000 jobs and fewer models.")] = False,
    complete: Annotated[
        bool, typer.Option("--all", help="Also the ablation of features and the replay of early cancelling, which take long.")
    ] = False,
    campaigns: Annotated[
        list[Path] | None,
        typer.Option(
            "--campaigns", help="Also the study of these trace campaigns (repeatable); with --trace-models.", show_default=False
        ),
    ] = None,
    trace_models: Annotated[
        Path | None,
        typer.Option("--trace-models", help="Folder written by `traces evaluate --keep`.", show_default=False),
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: SinceDay = None,
    as_json: Json = False,
) -> None:
    """Write every table and figure of the published studies, from one's own data beside their numbers, into one HTML file."""
    if quick and complete:
        raise UsageError("--quick and --all exclude each other.", hint="Leave out one of them.")
    if bool(campaigns) != bool(trace_models):
        raise UsageError(
            "--campaigns and --trace-models go together.",
            hint="Train the models first: stormpetrel traces evaluate PATH --keep DIR",
        )
    with_site = not files and (names_a_site(context) or not campaigns)
    data, no_jobs = None, None
    if files or with_site:
        try:
            data = read_input(
                context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
            )
        except NotEnoughJobsError as error:
            no_jobs = error  # no reason to stop where there is something to say about traces or events
    order = ReportOrder(
        target=target,
        title=title or "",
        files=files or [],
        quick=quick,
        complete=complete,
        campaigns=campaigns or [],
        trace_models=trace_models,
    )
    with ExitStack() as stack:
        site = stack.enter_context(open_site(context)) if with_site else None
        progress = stack.enter_context(step_spinner(quiet=as_json))
        receipt = write_report(site, LOCAL, order, data=data, no_jobs=no_jobs, progress=progress)
    parts = "1 section" if len(receipt.sections) == 1 else f"{len(receipt.sections)} sections"
    took = f"{format_size(receipt.bytes)}, {receipt.seconds:.0f} s"
    text = f"{target}: {parts}{f' on {receipt.jobs:,} jobs' if receipt.jobs else ''}, {took}"
    emit(receipt, text, as_json=as_json, next_step="open it in a browser; it needs no network.")

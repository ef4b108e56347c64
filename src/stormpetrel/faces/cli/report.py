"""`stormpetrel report`: every table and figure about a site's jobs, as one HTML file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from stormpetrel import __version__
from stormpetrel.faces.cli.context import Context, Json, console, print_json
from stormpetrel.faces.cli.job_input import Drop, Failed, Fields, Files, Format, Since, read_input, steps_shown


def report(
    context: typer.Context,
    files: Files = None,
    target: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The latest 20,000 jobs, fewer models, no ablation, no policy.")] = False,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    as_json: Json = False,
) -> None:
    """Write every table and figure about the jobs into one HTML file that needs nothing else."""
    chosen: Context = context.obj
    data = read_input(chosen, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json)
    with steps_shown(quiet=as_json) as step:
        from stormpetrel.faces.report.job_studies import refuse_empty
        from stormpetrel.faces.report.jobs_section import jobs_sections
        from stormpetrel.faces.report.page import write_page

        refuse_empty(data)
        sections = jobs_sections(data, quick=quick, progress=step)
        step("writing")
        name = title or (f"Jobs of {', '.join(Path(file).name for file in files)}" if files else "Jobs of this site")
        first, last = (str(moment)[:10] for moment in (data.jobs["submit_time"].min(), data.jobs["submit_time"].max()))
        size = write_page(
            target,
            name,
            sections,
            subtitle=f"{data.jobs.height:,} jobs, submitted {first} to {last}" + (", a quick report" if quick else ""),
            footer=f"Stormpetrel {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. It names users.",
        )
    if as_json:
        print_json({"file": str(target), "bytes": size, "jobs": data.jobs.height, "sections": [part.title for part in sections]})
        return
    console().print(f"{target}: {len(sections)} sections on {data.jobs.height:,} jobs, {size / 1e6:,.1f} MB")
    console().print("Next, open it in a browser; it needs no network.")

"""Which jobs a command works on: those of files named on the command line, or those of the site.

options -> read_input -> JobInput.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from pydantic import ValidationError

from stormpetrel.answers.studies.job_evaluation import JobInput, jobs_of_files, jobs_of_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import JobsSection
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.progress import byte_bar
from stormpetrel.faces.cli.site import open_site, parse_day
from stormpetrel.jobs.moments import MOMENTS, Moment

Files = Annotated[
    list[str] | None, typer.Argument(help="Job logs to read; the jobs of the site if none is named.", show_default=False)
]
At = Annotated[str, typer.Option("--at", help="Moments, separated by commas: submit, start, 2min.")]
ALL_MOMENTS = "submit,start,2min"


def read_input(
    context: typer.Context,
    files: list[str] | None,
    *,
    format_name: str | None = None,
    fields: str | None = None,
    failed: str | None = None,
    drop: str | None = None,
    since: str | None = None,
    quiet: bool = False,
) -> JobInput:
    """Return the jobs of the files, or of the site where no file is named; --failed and --drop win over site.toml."""
    if files:
        columns = [name.strip() for name in fields.split(",")] if fields else None
        with byte_bar(f"reading {', '.join(files)}", 0, quiet=quiet) as progress:
            data = jobs_of_files(files, format_name, columns, progress=progress)
    else:
        with open_site(context) as site:
            data = jobs_of_site(site, LOCAL)
    data = replace(data, section=with_states(data.section, failed, drop))
    return data.since(parse_day(since, "--since")) if since else data


def with_states(section: JobsSection, failed: str | None, drop: str | None) -> JobsSection:
    """Return the section [jobs] with the states that --failed and --drop name in place of its own; UsageError if unknown."""
    changes = {
        name: [state.strip().upper() for state in text.split(",") if state.strip()]
        for name, text in (("failure_states", failed), ("dropped_states", drop))
        if text is not None
    }
    try:
        return type(section).model_validate({**section.model_dump(), **changes})
    except ValidationError as error:
        raise UsageError(error.errors()[0]["msg"].removeprefix("Value error, "), hint="See --failed and --drop.") from None


def moments_of(text: str) -> list[Moment]:
    """Return the moments named on the command line, in their own order."""
    named = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in named if name not in MOMENTS]
    if unknown or not named:
        raise UsageError(f"Unknown moment {unknown[0] if unknown else text!r}.", hint=f"Known: {', '.join(MOMENTS)}.")
    return [moment for moment in MOMENTS if moment in named]

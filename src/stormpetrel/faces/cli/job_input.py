"""Which jobs a command of the family works on: those of files named on the command line, or those of the site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, console, plain, progress_bar

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_input import JobInput
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.moments import Moment

Files = Annotated[
    list[str] | None, typer.Argument(help="Job logs to read; the jobs of the site if none is named.", show_default=False)
]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the files, as for `ingest jobs`; found if left out.", show_default=False)
]
Fields = Annotated[
    str | None, typer.Option("--fields", help="Names of the columns of sacct text without a header.", show_default=False)
]
Failed = Annotated[
    str | None,
    typer.Option(
        "--failed",
        help="States that count as a failure, such as FAILED,TIMEOUT; jobs.failure_states if left out.",
        show_default=False,
    ),
]
Drop = Annotated[
    str | None,
    typer.Option("--drop", help="States to leave out, such as CANCELLED; jobs.dropped_states if left out.", show_default=False),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Leave out jobs submitted before this day (2023-01-01).", show_default=False)
]
At = Annotated[str, typer.Option("--at", help="Moments, separated by commas: submit, start, 2min.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write the figures to this HTML file.", show_default=False)]
ALL_MOMENTS = "submit,start,2min"


def read_input(
    context: Context,
    files: list[str] | None,
    *,
    format_name: str | None = None,
    fields: str | None = None,
    failed: str | None = None,
    drop: str | None = None,
    since: str | None = None,
    quiet: bool = False,
) -> JobInput:
    """The jobs of the files, or of the site where no file is named; states named on the command line win over site.toml."""
    from stormpetrel.answers.studies.job_input import jobs_of_files, jobs_of_site
    from stormpetrel.answers.viewer import LOCAL

    if files:
        columns = [name.strip() for name in fields.split(",")] if fields else None
        with progress_bar(f"reading {', '.join(files)}", 0, shown=not quiet) as progress:
            data = jobs_of_files(files, format_name, columns, progress=progress)
    else:
        with context.open_site() as site:
            data = jobs_of_site(site, LOCAL)
    data = replace(data, section=with_states(data.section, failed, drop))
    return data.since(parse_day(since, "--since")) if since else data


def with_states(section: JobsSection, failed: str | None, drop: str | None) -> JobsSection:
    """The section [jobs] with the states that --failed and --drop name in place of its own; UsageError where one is unknown."""
    from pydantic import ValidationError

    changes = {
        name: [state.strip().upper() for state in text.split(",") if state.strip()]
        for name, text in (("failure_states", failed), ("dropped_states", drop))
        if text is not None
    }
    try:
        return type(section).model_validate({**section.model_dump(), **changes})
    except ValidationError as error:
        raise UsageError(error.errors()[0]["msg"].removeprefix("Value error, "), hint="See --failed and --drop.") from None


def parse_day(text: str, option: str) -> datetime:
    """A day or an ISO time, in UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a day or time.", hint="Write it as 2023-01-01 or 2023-01-01T12:00.") from None


@contextmanager
def steps_shown(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner with the name of the step that is being worked on; silent where nobody watches."""
    import sys

    if quiet or not sys.stderr.isatty():
        yield lambda _step: None
        return
    with console(error=True).status("starting") as status:
        yield lambda step: status.update(plain(step))


def moments_of(text: str) -> list[Moment]:
    """The moments named on the command line, in their own order."""
    from stormpetrel.jobs.moments import MOMENTS

    named = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in named if word not in MOMENTS]
    if unknown or not named:
        raise UsageError(f"Unknown moment {unknown[0] if unknown else text!r}.", hint=f"Known: {', '.join(MOMENTS)}.")
    return [moment for moment in MOMENTS if moment in named]

"""Which workload a command works on: that of job logs or tables named on the command line, or that of the site.

options -> read_workload -> WorkloadInput.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli.context import Context, console, plain, progress_bar
from stormpetrel.faces.cli.job_input import parse_day

if TYPE_CHECKING:
    from stormpetrel.answers.workload.input import WorkloadInput

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Job logs or tables of jobs; the jobs of the site if none is named.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the files: as for `ingest jobs`, or table (CSV or Parquet with a header); found if left out.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Leave out jobs submitted before this day (2023-01-01).", show_default=False)
]
Skip = Annotated[int, typer.Option("--skip", min=0, help="Leave out the first N jobs of the real log, such as a ramp-up.")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        help="sessions, ctgan, tvae, copulagan, copulagan-sessions, gaussian-copula, rows, or SDV's: sdv-ctgan, sdv-tvae, "
        "sdv-copulagan, sdv-gaussian-copula; private has a guarantee.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed: the same one makes the same jobs.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Epochs of a network; its own number if left out.", show_default=False)
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu or cuda, for a network.", show_default=False)
]  # fmt: skip

Progress = Callable[[float, str], None]


def read_workload(
    context: Context,
    files: Sequence[str] | None,
    *,
    format_name: str | None = None,
    fields: str | None = None,
    since: str | None = None,
    skip: int = 0,
    quiet: bool = False,
) -> WorkloadInput:
    """Read the workload of files, or of the site where no file is named, without its first `skip` jobs."""
    from stormpetrel.answers.workload.input import read_files, read_site

    if files:
        names = [name.strip() for name in fields.split(",")] if fields else None
        with progress_bar(f"reading {', '.join(files)}", 0, shown=not quiet) as progress:
            source = read_files(files, format_name, names, progress)
    else:
        with context.open_site() as site:
            source = read_site(site)
    return source.cut(parse_day(since, "--since") if since else None, skip)


@contextmanager
def bar_shown(*, quiet: bool) -> Iterator[Progress]:
    """A bar with what is being done beside it; silent where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda _share, _words: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=plain(words))

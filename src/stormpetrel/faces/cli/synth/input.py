"""Which workload a command works on: that of job logs or tables named on the command line, or that of the site.

options -> read_workload -> WorkloadInput.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from stormpetrel.answers.workload.input import WorkloadInput, read_files, read_site
from stormpetrel.faces.cli.progress import byte_bar
from stormpetrel.faces.cli.site import open_site, parse_day

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Job logs or tables of jobs; the jobs of the site if none is named.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the files: as for `ingest jobs`, or table (CSV or Parquet with a header); detected if left out.",
        show_default=False,
    ),
]
Skip = Annotated[int, typer.Option("--skip", min=0, help="Leave out the first N jobs of the real log, such as a ramp-up.")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        help="sessions, ctgan, tvae, copulagan, gaussian-copula, rows, or SDV's: sdv-ctgan, sdv-tvae, "
        "sdv-copulagan, sdv-gaussian-copula; private has a guarantee.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Epochs of a network; its own number if left out.", show_default=False)
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu or cuda, for a network.", show_default=False)
]  # fmt: skip


def read_workload(
    context: typer.Context,
    files: Sequence[str] | None,
    *,
    format_name: str | None = None,
    fields: str | None = None,
    since: str | None = None,
    skip: int = 0,
    quiet: bool = False,
) -> WorkloadInput:
    """Read the workload of files, or of the site where no file is named, without its first `skip` jobs."""
    if files:
        names = [name.strip() for name in fields.split(",")] if fields else None
        with byte_bar(f"reading {', '.join(files)}", 0, quiet=quiet) as progress:
            source = read_files(files, format_name, names, progress)
    else:
        with open_site(context) as site:
            source = read_site(site)
    return source.cut(parse_day(since, "--since") if since else None, skip)

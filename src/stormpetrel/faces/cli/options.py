"""The options that commands share: those before the command (`Context`), and the types of those after it.

Nothing but typer is imported here: `stormpetrel --help` needs `Context`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class Context:
    """The options before the command; the `obj` of every typer.Context."""

    site_folder: Path | None
    debug: bool


# How an answer is printed
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Also draw the figures into this HTML file.", show_default=False)]
LogOdds = Annotated[bool, typer.Option("--log-odds", help="Show effects in log-odds, not in points of risk.")]

# How it is computed
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random: the same one gives the same result.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=4096,
        help="Seeds, models or cuts at a time, each in a process of one thread; left out: one here, every CPU of a Ray cluster.",
        show_default=False,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Where heavy work runs: local, ray, ray://HOST:PORT, or auto: ray where there is one; left out: engine.place.",
        show_default=False,
    ),
]
KeepResults = Annotated[
    Path | None,
    typer.Option(
        "--keep", help="Store finished results in this folder, and do not work out those in it again.", show_default=False
    ),
]

# Which records
SinceDay = Annotated[
    str | None, typer.Option("--since", help="Leave out jobs submitted before this day (2023-01-01).", show_default=False)
]
SinceTime = Annotated[
    str | None, typer.Option("--since", help="From this time on, in the site's zone: 2026-01-31T14:00.", show_default=False)
]
UntilTime = Annotated[
    str | None, typer.Option("--until", help="Before this time, in the site's zone: 2026-01-31T14:00.", show_default=False)
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the files, as for `ingest jobs`; detected if left out.", show_default=False),
]
Fields = Annotated[
    str | None, typer.Option("--fields", help="Names of the columns of sacct text without a header.", show_default=False)
]
Year = Annotated[
    int | None,
    typer.Option("--year", min=1980, max=2100, help="Year of a log whose dates have none.", show_default=False),
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
JobId = Annotated[str, typer.Argument(help="12345, or 12345_7 for a task of an array.")]

# Services
Unit = Annotated[bool, typer.Option("--unit", help="Print a systemd unit for this site, and stop.")]

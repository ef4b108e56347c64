"""Which traces a command works on: those of campaign files, or of campaigns that are simulated here and now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import Trace
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings

Paths = Annotated[
    list[Path] | None, typer.Argument(help="Campaign files (.npz), or folders of them.", show_default=False, metavar="[PATH]...")
]
Simulated = Annotated[bool, typer.Option("--simulated", help="Simulate campaigns instead of reading them.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes of a simulated campaign.")]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of each simulated node.")]
Minutes = Annotated[float, typer.Option("--minutes", min=1.0, help="Length of a simulated campaign.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Most epochs of a training; it stops by itself.", show_default=False)
]
WindowSeconds = Annotated[float, typer.Option("--window", min=1.0, help="Length of a window in seconds.")]
Stride = Annotated[
    float | None,
    typer.Option("--stride", min=0.1, help="Seconds from one window to the next; side by side if left out.", show_default=False),
]


def read_traces(
    paths: Sequence[Path] | None, *, simulated: bool, nodes: int = 5, threads: int = 32, minutes: float = 30.0, seed: int = 0
) -> list[Trace]:
    """Return the traces of the files, or of simulated campaigns (three to learn from, one to stop by, one to judge by)."""
    if simulated:
        if paths:
            raise UsageError("--simulated creates its own campaigns.", hint="Leave out the paths, or --simulated.")
        return campaign_set(seed, nodes=nodes, threads_per_node=threads, minutes=minutes)
    if not paths:
        raise UsageError("No campaign was named.", hint="Name a folder of campaigns or .npz files, or add --simulated.")
    return read_campaigns(paths)


def architectures_of(text: str) -> tuple[Architecture, ...]:
    """Return the architectures named on the command line, in their own order."""
    named = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in named if name not in list(Architecture)]
    if unknown or not named:
        raise UsageError(f"Unknown architecture {unknown[0] if unknown else text!r}.", hint=f"Known: {', '.join(Architecture)}.")
    return tuple(kind for kind in Architecture if kind in named)


def autoencoder_settings(epochs: int | None, seed: int) -> AutoencoderSettings:
    """Return the settings of an autoencoder with the epochs and the seed of the command line."""
    return AutoencoderSettings(seed=seed, max_epochs=epochs) if epochs else AutoencoderSettings(seed=seed)

"""`stormpetrel synth compare`: a real log and any number of synthetic ones side by side: a table, a page, a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import Fields
from stormpetrel.faces.cli.workload_input import Epochs, Format, Seed, Since, Skip, bar_shown, read_workload
from stormpetrel.private_files import write_private

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import WorkloadFidelity
    from stormpetrel.faces.cli.workload_input import Progress
    from stormpetrel.synth.workload import Workload

REAL = "real"
_PICTURES = (".html", ".htm", ".png")


def compare(
    context: typer.Context,
    real: Annotated[str, typer.Argument(help="The real log.", show_default=False)],
    synthetic: Annotated[
        list[str],
        typer.Argument(help="Synthetic logs, model folders, or generators to be fitted now (copulagan).", show_default=False),
    ],
    names: Annotated[
        str | None, typer.Option("--names", help="Names of the synthetic ones, separated by commas.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None, typer.Option("-o", "--output", help="Page (.html) or picture (.png) to write.", show_default=False)
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    since: Since = None,
    skip: Skip = 0,
    epochs: Epochs = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw the distribution of every column, the memory of the intervals and the rhythm of the week, real against synthetic."""
    from stormpetrel.answers.workload.input import synthetic_workload
    from stormpetrel.answers.workload.quality import compare_workloads

    if target is not None and target.suffix.lower() not in _PICTURES:
        raise UsageError(f"{plain(str(target))} is neither a page nor a picture.", hint="End it in .html or .png.")
    labels = names_of(synthetic, names)
    log = read_workload(
        context.obj, [real], format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json
    ).workload
    with bar_shown(quiet=as_json) as progress:
        workloads = {
            label: synthetic_workload(
                source, log, seed=seed, settings=_settings(source, epochs), progress=_part(progress, place, len(synthetic), label)
            )
            for place, (label, source) in enumerate(zip(labels, synthetic, strict=True))
        }
        comparison = compare_workloads(log, workloads, output=str(target) if target else None)
        if target is not None:
            progress(1.0, "drawing")
            _draw(target, real, {REAL: log, **workloads})
    if as_json:
        print_json(comparison.model_dump(mode="json"))
        return
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.workload_blocks import comparison_table

    show_table(console(), comparison_table(comparison.synthetic))
    for note in (*comparison.notes, *_notes(comparison.synthetic)):
        console().print(f"note: {plain(note)}")
    if target is not None:
        console().print(f"{plain(str(target))}: the figures")


def _notes(cards: Mapping[str, WorkloadFidelity]) -> list[str]:
    """The notes on the figures, each once; with the name where it is not true of all."""
    noted: dict[str, list[str]] = {}
    for label, card in cards.items():
        for note in card.notes:
            noted.setdefault(note, []).append(label)
    return [note if len(labels) == len(cards) else f"{', '.join(labels)}: {note}" for note, labels in noted.items()]


def names_of(synthetic: Sequence[str], names: str | None) -> list[str]:
    """Return what the synthetic workloads are called: as `names` says, or by file, folder or generator; each name once."""
    if names is None:
        labels = [plain(Path(source).name.partition(".")[0] or source) for source in synthetic]
    else:
        labels = [plain(name.strip()) for name in names.split(",")]
        if len(labels) != len(synthetic) or not all(labels):
            raise UsageError(
                f"--names has {len(labels)} names for {len(synthetic)} synthetic workloads.", hint="Name each of them, in order."
            )
    taken: dict[str, None] = {REAL: None}
    for name in labels:
        number = next(number for number in range(1, len(labels) + 3) if _numbered(name, number) not in taken)
        taken[_numbered(name, number)] = None
    return list(taken)[1:]


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"


def _settings(source: str, epochs: int | None) -> dict[str, int]:
    """Epochs are for networks; a generator beside them that has none is fitted without."""
    from stormpetrel.synth.choose import GENERATORS

    without = ("sessions", "private", "rows", "gaussian-copula", "sdv-gaussian-copula")
    return {"epochs": epochs} if epochs and source in GENERATORS and source not in without else {}


def _part(progress: Progress, place: int, of: int, label: str) -> Progress:
    return lambda share, words: progress((place + share) / of, f"{label}: {words}")


def _draw(target: Path, title: str, workloads: Mapping[str, Workload]) -> None:
    if target.suffix.lower() == ".png":
        from stormpetrel.figures.workload_png import cdf_grid_png

        write_bytes(target, cdf_grid_png(workloads))
        return
    from stormpetrel.faces.report.blocks import Section
    from stormpetrel.faces.report.page import write_page
    from stormpetrel.faces.report.workload_blocks import comparison_drawings

    words = ", ".join(f"{name} ({one.height:,} jobs)" for name, one in workloads.items())
    write_page(
        target, f"{Path(title).name}, real and synthetic", [Section("Side by side", words, comparison_drawings(workloads))]
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, or say in a sentence why it cannot be."""
    try:
        write_private(path, content)
    except OSError as error:
        reason = (error.strerror or "it failed").lower()
        raise UsageError(f"{plain(str(path))} cannot be written: {reason}.", hint="Name a file in a folder of yours.") from None

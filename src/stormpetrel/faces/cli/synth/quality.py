"""`stormpetrel synth compare` and `evaluate`: real and synthetic jobs side by side, and how good a generator is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from stormpetrel.answers.schemas.workload import WorkloadComparison, WorkloadEvaluation, WorkloadFidelity
from stormpetrel.answers.workload.fits import fit_and_sample, is_generator
from stormpetrel.answers.workload.input import GeneratorMaker, synthetic_workload
from stormpetrel.answers.workload.quality import compare_workloads, evaluate_generator, evaluate_log
from stormpetrel.config import JobsSection
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.jobs.input import with_states
from stormpetrel.faces.cli.options import Drop, EngineName, Failed, Fields, Json, Seed, SinceDay, Workers
from stormpetrel.faces.cli.output import emit, plain, show_table
from stormpetrel.faces.cli.progress import ReportShare, share_bar
from stormpetrel.faces.cli.synth.input import Device, Epochs, Files, Format, ModelName, Skip, read_workload
from stormpetrel.faces.report.blocks import Drawing, Section
from stormpetrel.faces.report.page import write_page
from stormpetrel.faces.report.workload_section import comparison_drawings, comparison_table, evaluation_tables
from stormpetrel.figures.workload import scorecard_figure
from stormpetrel.figures.workload_png import cdf_grid_png
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.lifecycle.job_models import training_of
from stormpetrel.private_files import write_private
from stormpetrel.synth.choose import GENERATORS
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
        str | None, typer.Option("--names", help="Names of the synthetic logs, separated by commas.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None, typer.Option("-o", "--output", help="Page (.html) or picture (.png) to write.", show_default=False)
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    since: SinceDay = None,
    skip: Skip = 0,
    epochs: Epochs = None,
    seed: Seed = 0,
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Compare real and synthetic jobs: the distribution of every column, the intervals, the rhythm of the week."""
    if target is not None and target.suffix.lower() not in _PICTURES:
        raise UsageError(f"{plain(str(target))} is neither a page nor a picture.", hint="End it in .html or .png.")
    labels = names_of(synthetic, names)
    log = read_workload(context, [real], format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json).workload
    with share_bar(quiet=as_json) as progress:
        sources = dict(zip(labels, synthetic, strict=True))
        to_fit = {label: source for label, source in sources.items() if is_generator(source)}
        settings = {label: _settings(source, epochs) for label, source in to_fit.items()}
        place, share = engine_of(context, engine, workers), len(to_fit) / len(sources)
        fits = lambda done, text: progress(share * done, text)  # noqa: E731
        workloads = fit_and_sample(log, to_fit, seed=seed, settings=settings, engine=place, progress=fits)
        for number, (label, source) in enumerate(sources.items()):
            if label not in to_fit:
                read = _part(progress, number, len(sources), label)
                workloads[label] = synthetic_workload(source, log, seed=seed, progress=read)
        workloads = {label: workloads[label] for label in labels}
        comparison = compare_workloads(log, workloads, output=str(target) if target else None)
        if target is not None:
            progress(1.0, "drawing")
            _draw_comparison(target, real, {REAL: log, **workloads})
    emit(comparison.model_dump(mode="json"), lambda out: _print_comparison(out, comparison), as_json=as_json, plot=target)


def _print_comparison(out: Console, comparison: WorkloadComparison) -> None:
    show_table(out, comparison_table(comparison.synthetic))
    for note in (*comparison.notes, *_notes(comparison.synthetic)):
        out.print(f"note: {plain(note)}")


def _notes(cards: Mapping[str, WorkloadFidelity]) -> list[str]:
    """Return the notes on the figures, each once; with the name where it is not true of all."""
    noted: dict[str, list[str]] = {}
    for label, card in cards.items():
        for note in card.notes:
            noted.setdefault(note, []).append(label)
    return [note if len(labels) == len(cards) else f"{', '.join(labels)}: {note}" for note, labels in noted.items()]


def names_of(synthetic: Sequence[str], names: str | None) -> list[str]:
    """Return the names of the synthetic workloads: those in `names`, or by file, folder or generator; each name once."""
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
    """Return the epochs for a network; a generator that has none is fitted without."""
    without = ("sessions", "private", "rows", "gaussian-copula", "sdv-gaussian-copula")
    return {"epochs": epochs} if epochs and source in GENERATORS and source not in without else {}


def _part(progress: ReportShare, place: int, of: int, label: str) -> ReportShare:
    return lambda share, step: progress((place + share) / of, f"{label}: {step}")


def _draw_comparison(target: Path, title: str, workloads: Mapping[str, Workload]) -> None:
    if target.suffix.lower() == ".png":
        write_bytes(target, cdf_grid_png(workloads))
        return
    about = ", ".join(f"{name} ({workload.height:,} jobs)" for name, workload in workloads.items())
    write_page(
        target, f"{Path(title).name}, real and synthetic", [Section("Side by side", about, comparison_drawings(workloads))]
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; UsageError where it cannot be written."""
    try:
        write_private(path, content)
    except OSError as error:
        reason = (error.strerror or "it failed").lower()
        raise UsageError(f"{plain(str(path))} cannot be written: {reason}.", hint="Name a file in a folder of yours.") from None


def evaluate(
    context: typer.Context,
    files: Files = None,
    real: Annotated[str | None, typer.Option("--real", help="The real log of a pair.", show_default=False)] = None,
    synthetic: Annotated[
        str | None, typer.Option("--synthetic", help="The synthetic log of it, or a model folder.", show_default=False)
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            "--held-out", help="Real jobs that the generator has not seen: for the privacy figures.", show_default=False
        ),
    ] = None,
    model: ModelName = "sessions",
    odd_even: Annotated[
        bool, typer.Option("--odd-even", help="Fit on the odd weeks, evaluate on the even ones (always so, without --real).")
    ] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How often a generator is fitted.")] = 5,
    tstr: Annotated[
        bool, typer.Option("--tstr/--no-tstr", help="Also usefulness: a failure model and a scheduler fed with each.")
    ] = True,
    failed: Failed = None,
    drop: Drop = None,
    page: Annotated[Path | None, typer.Option("--html", help="Also write this page, with figures.", show_default=False)] = None,
    format_name: Format = None,
    fields: Fields = None,
    since: SinceDay = None,
    skip: Skip = 0,
    epochs: Epochs = None,
    device: Device = None,
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Evaluate a synthetic log against a real one, or a generator on odd and even weeks of a log."""
    _check_options(files, real, synthetic, held_out, odd_even=odd_even)
    source = read_workload(
        context, [real] if real else files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json
    )  # fmt: skip
    training = _training(failed, drop) if tstr else None
    with share_bar(quiet=as_json) as progress:
        if synthetic:
            unseen = read_workload(context, [held_out], quiet=as_json).workload if held_out else None
            evaluation, workloads = evaluate_log(source, synthetic, unseen, training, progress)
        else:
            make = GeneratorMaker(model, epochs, device)
            evaluation, workloads = evaluate_generator(
                source, model, make, seeds, training, progress, engine=engine_of(context, engine, workers)
            )
        if page:
            progress(1.0, "drawing")
            _draw_evaluation(page, evaluation, workloads())
    emit(evaluation.scorecard, lambda out: _print_evaluation(out, evaluation), as_json=as_json, plot=page)


def _check_options(
    files: list[str] | None, real: str | None, synthetic: str | None, held_out: str | None, *, odd_even: bool
) -> None:
    if bool(real) != bool(synthetic):
        raise UsageError("--real and --synthetic go together.", hint="Or evaluate a generator: synth evaluate FILE --model NAME")
    if real and (files or odd_even):
        raise UsageError("A pair is compared as it is.", hint="Name either a FILE and --model, or --real and --synthetic.")
    if held_out and not real:
        raise UsageError("--held-out belongs to a pair.", hint="On odd and even weeks the even ones are held out already.")


def _training(failed: str | None, drop: str | None) -> TrainingSettings:
    """Return the settings of the failure models: those of a site, but for the states that were named."""
    return training_of(with_states(JobsSection(), failed, drop))


def _print_evaluation(out: Console, evaluation: WorkloadEvaluation) -> None:
    for table in evaluation_tables(evaluation, evaluation.title):
        show_table(out, table)
    for note in evaluation.notes:
        out.print(f"note: {plain(note)}")


def _draw_evaluation(path: Path, evaluation: WorkloadEvaluation, workloads: dict[str, Workload]) -> None:
    card: dict[str, Any] = dict(evaluation.scorecard)
    figure = scorecard_figure({"synthetic": card}, card.get("floor"))
    sections = [
        Section("Scorecard", evaluation.title, (Drawing(figure, height=460), *evaluation_tables(evaluation, "Scorecard"))),
        Section("Side by side", "The real and the synthetic jobs.", comparison_drawings(workloads)),
    ]
    write_page(path, "A synthetic workload", sections, subtitle=evaluation.title)

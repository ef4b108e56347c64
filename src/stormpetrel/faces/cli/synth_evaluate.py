"""`stormpetrel synth evaluate`: how good a synthetic log is, or a generator; needs no site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, Workers, console, plain, print_json
from stormpetrel.faces.cli.job_input import Drop, Failed, Fields, with_states
from stormpetrel.faces.cli.workload_input import (
    Device,
    Epochs,
    Files,
    Format,
    ModelName,
    Since,
    Skip,
    bar_shown,
    read_workload,
)

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import WorkloadEvaluation
    from stormpetrel.jobs.training import TrainingSettings
    from stormpetrel.synth.workload import Workload


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
        bool, typer.Option("--odd-even", help="Fit on the odd weeks, judge on the even ones (always so, without --real).")
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
    since: Since = None,
    skip: Skip = 0,
    epochs: Epochs = None,
    device: Device = None,
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Judge a synthetic log against a real one, or a generator on odd and even weeks of a log."""
    _check_question(files, real, synthetic, held_out, odd_even=odd_even)
    from stormpetrel.answers.workload.input import GeneratorMaker
    from stormpetrel.answers.workload.quality import evaluate_generator, evaluate_log

    chosen: Context = context.obj
    source = read_workload(
        chosen, [real] if real else files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json
    )  # fmt: skip
    training = _training(failed, drop) if tstr else None
    with bar_shown(quiet=as_json) as progress:
        if synthetic:
            unseen = read_workload(chosen, [held_out], quiet=as_json).workload if held_out else None
            evaluation, workloads = evaluate_log(source, synthetic, unseen, training, progress)
        else:
            make = GeneratorMaker(model, epochs, device)
            evaluation, workloads = evaluate_generator(source, model, make, seeds, training, progress, workers=workers)
        if page:
            progress(1.0, "drawing")
            _draw(page, evaluation, workloads())
    if as_json:
        print_json(evaluation.scorecard)
        return
    _show(evaluation)
    if page:
        console().print(f"{plain(str(page))}: the figures, to be opened in a browser")


def _check_question(
    files: list[str] | None, real: str | None, synthetic: str | None, held_out: str | None, *, odd_even: bool
) -> None:
    if bool(real) != bool(synthetic):
        raise UsageError("--real and --synthetic go together.", hint="Or judge a generator: synth evaluate FILE --model NAME")
    if real and (files or odd_even):
        raise UsageError("A pair is judged as it is.", hint="Name either a FILE and --model, or --real and --synthetic.")
    if held_out and not real:
        raise UsageError("--held-out belongs to a pair.", hint="On odd and even weeks the even ones are held out already.")


def _training(failed: str | None, drop: str | None) -> TrainingSettings:
    """How the failure models are trained: as on a site, but for the states that were named."""
    from stormpetrel.config import JobsSection
    from stormpetrel.lifecycle.job_settings import training_of

    return training_of(with_states(JobsSection(), failed, drop))


def _show(evaluation: WorkloadEvaluation) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.workload_blocks import evaluation_tables

    out = console()
    for table in evaluation_tables(evaluation, evaluation.title):
        show_table(out, table)
    for note in evaluation.notes:
        out.print(f"note: {plain(note)}")


def _draw(path: Path, evaluation: WorkloadEvaluation, workloads: dict[str, Workload]) -> None:
    from stormpetrel.faces.report.blocks import Drawing, Section
    from stormpetrel.faces.report.page import write_page
    from stormpetrel.faces.report.workload_blocks import comparison_drawings, evaluation_tables
    from stormpetrel.figures.workload import scorecard_figure

    card: dict[str, Any] = dict(evaluation.scorecard)
    figure = scorecard_figure({"synthetic": card}, card.get("floor"))
    sections = [
        Section("Scorecard", evaluation.title, (Drawing(figure, height=460), *evaluation_tables(evaluation, "Scorecard"))),
        Section("Side by side", "The real and the synthetic jobs.", comparison_drawings(workloads)),
    ]
    write_page(path, "A synthetic workload", sections, subtitle=evaluation.title)

"""`stormpetrel synth evaluate`: how good a synthetic log is, or a generator; needs no site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stormpetrel.errors import NotEnoughJobsError, SettingsError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import Drop, Failed, Fields
from stormpetrel.faces.cli.workload_input import (
    Device,
    Epochs,
    Files,
    Format,
    ModelName,
    Progress,
    Since,
    Skip,
    WorkloadInput,
    bar_shown,
    make_generator,
    read_workload,
    synthetic_of,
)

if TYPE_CHECKING:
    from stormpetrel.engine import Engine
    from stormpetrel.jobs.training import TrainingSettings
    from stormpetrel.synth.contract import WorkloadGenerator
    from stormpetrel.synth.workload import Workload

_SAME_LOG: Final = (
    "A synthetic log that was made from this very log has seen the jobs that it is judged on, also those that the failure model "
    "is tested on: it can come closer than the floor. FILE --model NAME keeps them apart."
)
_SCORING: Final = 0.7  # of the time; the rest goes to the failure models


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """A scorecard as JSON, the workloads that were compared (drawn where a page is wanted), and what to call it."""

    title: str
    card: dict[str, Any]
    workloads: Callable[[], dict[str, Workload]]


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the generator that the options name, for a seed; can be sent to another process."""

    name: str
    epochs: int | None
    device: str | None

    def __call__(self, seed: int) -> WorkloadGenerator:
        return make_generator(self.name, seed=seed, epochs=self.epochs, device=self.device)


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
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Seeds at a time; more than one: each in a process of one thread.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Judge a synthetic log against a real one, or a generator on odd and even weeks of a log."""
    _check_question(files, real, synthetic, held_out, odd_even=odd_even)
    chosen: Context = context.obj
    given = read_workload(
        chosen, [real] if real else files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json
    )  # fmt: skip
    training = _training(failed, drop) if tstr else None
    with bar_shown(quiet=as_json) as progress:
        if synthetic:
            judged = _judge_pair(given, synthetic, _held_out(chosen, held_out, as_json), training, progress)
        else:
            make = _Maker(model, epochs, device)
            judged = _judge_generator(given, model, make, seeds, training, progress, workers)
        if page:
            progress(1.0, "drawing")
            _draw(page, judged)
    if as_json:
        print_json(judged.card)
        return
    _show(judged)
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


def _held_out(chosen: Context, file: str | None, quiet: bool) -> Workload | None:
    return read_workload(chosen, [file], quiet=quiet).workload if file else None


def _training(failed: str | None, drop: str | None) -> TrainingSettings:
    """How the failure models are trained: as on a site, but for the states that were named."""
    from stormpetrel.config import settings_from
    from stormpetrel.jobs.training import TrainingSettings

    named = {
        key: [state.strip().upper() for state in text.split(",") if state.strip()]
        for key, text in (("failure_states", failed), ("dropped_states", drop))
        if text is not None
    }
    try:
        section = settings_from({"jobs": named}, where="--failed or --drop").jobs
    except SettingsError as error:
        raise UsageError(error.what, hint="See --failed and --drop.") from None
    return TrainingSettings(
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        min_run_s=section.min_run_s or None,
    )


def _judge_pair(
    given: WorkloadInput, synthetic: str, held_out: Workload | None, training: TrainingSettings | None, progress: Progress
) -> _Judged:
    """A scorecard of two logs. What the second was learnt from is known only where jobs that it has not seen are named."""
    from stormpetrel.synth.score.scorecard import floor_scorecard, scorecard
    from stormpetrel.synth.score.weeks import odd_even_split

    real = given.workload
    made = synthetic_of(synthetic, real, progress=lambda share, words: progress(0.1 * share, words))
    progress(0.1, "two halves of the real log against each other")
    floor = floor_scorecard(*odd_even_split(real))
    progress(0.4, "synthetic against real")
    card = scorecard(real, made, train=real if held_out else None, held_out=held_out, floor=floor)
    found = replace(card, notes=(*real.notes, *card.notes, _SAME_LOG)).as_dict()
    if training is not None:
        progress(_SCORING, "a failure model and a scheduler")
        found |= _usefulness_of_pair(given, made, training, found["notes"])
    return _Judged(f"{Path(synthetic).name} against the real log", found, lambda: {"real": real, Path(synthetic).name: made})


def _usefulness_of_pair(given: WorkloadInput, made: Workload, training: TrainingSettings, notes: list[str]) -> dict[str, Any]:
    from stormpetrel.rehearse.workload_usefulness import cut_log, schedule, synthetic_jobs, train_on_synthetic

    jobs = given.jobs if given.jobs is not None else synthetic_jobs(given.workload)
    return {
        "tstr": _or_note(lambda: train_on_synthetic(cut_log(jobs, training), made, training), "tstr", notes),
        "schedule": _or_note(lambda: schedule(given.workload, made), "schedule", notes),
    }


def _judge_generator(
    given: WorkloadInput,
    name: str,
    make: Callable[[int], WorkloadGenerator],
    seeds: int,
    training: TrainingSettings | None,
    progress: Progress,
    workers: int,
) -> _Judged:
    """The figures of a generator over seeds: it learns the odd weeks and is judged on the even ones."""
    from stormpetrel.engine import Engine
    from stormpetrel.synth.score.odd_even import evaluate_odd_even
    from stormpetrel.synth.score.weeks import odd_even_split

    engine = Engine(workers)
    make(0)  # wrong settings are told before anything else
    real = given.workload
    share_of_scoring = _SCORING if training is not None else 1.0
    measured = evaluate_odd_even(
        real, make, range(seeds), lambda share, words: progress(share_of_scoring * share, words), engine=engine
    )
    card = measured.as_dict()
    card["notes"] = [*real.notes, *card.get("notes", ())]
    if training is not None:
        later = _after(progress, _SCORING)
        card |= _usefulness_of_generator(given, make, seeds, training, card["notes"], later, engine)

    def workloads() -> dict[str, Workload]:
        from stormpetrel.synth.contract import Wanted, sample

        odd, even = odd_even_split(real)
        return {"real (even weeks)": even, name: sample(make(0).fit(odd), Wanted(jobs=even.height))}

    return _Judged(f"{name}, fitted on odd and judged on even weeks, {seeds} seed{'s' if seeds > 1 else ''}", card, workloads)


def _usefulness_of_generator(
    given: WorkloadInput,
    make: Callable[[int], WorkloadGenerator],
    seeds: int,
    training: TrainingSettings,
    notes: list[str],
    progress: Progress,
    engine: Engine,
) -> dict[str, Any]:
    from stormpetrel.rehearse.workload_usefulness import Scheduling, over_seeds, synthetic_jobs, usefulness
    from stormpetrel.synth.score.weeks import odd_even_split

    jobs = given.jobs if given.jobs is not None else synthetic_jobs(given.workload)
    odd, even = odd_even_split(given.workload)

    def scheduled() -> dict[str, Any]:
        return over_seeds(list(engine.map(Scheduling(even, odd, make), range(seeds), name=lambda seed: f"seed {seed}")))

    def learnt() -> dict[str, Any]:
        return usefulness(jobs, make, training, seeds=range(seeds), progress=progress, engine=engine)

    return {
        "tstr": _or_note(learnt, "tstr", notes),
        "schedule": _or_note(scheduled, "schedule", notes),
    }


def _or_note(measure: Callable[[], dict[str, Any]], name: str, notes: list[str]) -> dict[str, Any] | None:
    """What was measured, or None and a note where the log does not give it."""
    try:
        return measure()
    except NotEnoughJobsError as error:
        notes.append(f"{name}: {error}")
        return None


def _after(progress: Progress, share: float) -> Progress:
    return lambda done, words: progress(share + (1 - share) * done, words)


def _show(judged: _Judged) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report.workload_blocks import scorecard_table, usefulness_tables

    out = console()
    for table in (scorecard_table(judged.title, judged.card), *usefulness_tables(judged.card)):
        show_table(out, table)
    for note in judged.card.get("notes", ()):
        out.print(f"note: {plain(note)}")


def _draw(path: Path, judged: _Judged) -> None:
    from stormpetrel.faces.report.blocks import Block, Drawing, Section
    from stormpetrel.faces.report.page import write_page
    from stormpetrel.faces.report.workload_blocks import comparison_drawings, scorecard_table, usefulness_tables
    from stormpetrel.figures.workload import scorecard_figure

    figure = scorecard_figure({"synthetic": judged.card}, judged.card.get("floor"))
    blocks: list[Block] = [Drawing(figure, height=460), scorecard_table("Scorecard", judged.card)]
    sections = [
        Section("Scorecard", judged.title, (*blocks, *usefulness_tables(judged.card))),
        Section("Side by side", "The real and the synthetic jobs.", comparison_drawings(judged.workloads())),
    ]
    write_page(path, "A synthetic workload", sections, subtitle=judged.title)

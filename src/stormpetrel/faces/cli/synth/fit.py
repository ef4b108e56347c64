"""`stormpetrel synth fit`: learn a workload from job logs or from the site."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from stormpetrel.answers.schemas.registry import NewTraining
from stormpetrel.answers.schemas.workload import LearntWorkload
from stormpetrel.answers.site.registry import fit_generator
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.answers.workload.fits import fit_generators, refuse_finished
from stormpetrel.answers.workload.input import learnt_workload, make_generator
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Fields, Json, Seed, SinceDay, Workers
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_bar
from stormpetrel.faces.cli.site import open_site
from stormpetrel.faces.cli.synth.input import Device, Epochs, Files, Format, ModelName, Skip, read_workload

_MOST_GROUPS: Final = 8


def fit(
    context: typer.Context,
    files: Files = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="New folder for the model or models; the site's own models if left out.", show_default=False
        ),
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    model: ModelName = "sessions",
    epochs: Epochs = None,
    device: Device = None,
    fewest: Annotated[
        int | None,
        typer.Option(
            "--keep-fewest",
            min=1,
            help="Users with fewer jobs than this are learnt only together with others.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="With --model private: how much anyone may learn about one user; smaller is safer. 1 if left out.",
            show_default=False,
        ),
    ] = None,
    since: SinceDay = None,
    skip: Skip = 0,
    seed: Seed = 0,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=1000, help="So many fits of each --model, with seeds from --seed on.")
    ] = 1,
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Learn a workload: when jobs come, in which order, and what they request; user names are not stored.

    With several names after --model, separated by commas, or with --seeds, one model of each: OUTPUT/NAME-SEED. The same command
    goes on where it was killed.
    """
    settings = {"epochs": epochs, "device": device, "fewest_jobs": fewest, "epsilon": epsilon}
    kinds = [name.strip() for name in model.split(",")]
    if len(kinds) > 1 or seeds > 1:
        place = engine_of(context, engine, workers)
        if target is None:
            raise UsageError("No folder for the models.", hint="Add -o MODELS, a new folder; a site has one generator in use.")
        refuse_finished(target)
        source = read_workload(context, files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json)
        with share_bar(quiet=as_json) as progress:
            numbers = range(seed, seed + seeds)
            models = fit_generators(source, kinds, numbers, target, settings, engine=place, progress=progress)
        emit({"models": [learnt.model_dump(mode="json") for learnt in models]}, partial(_print_models, models), as_json=as_json)
        return
    if engine or workers:
        raise UsageError("One fit uses the cores of one machine.", hint="Fit several: --seeds 5, or --model sessions,ctgan.")
    if target is None:
        _refuse_for_site(files, since, skip)
        _fit_on_site(context, model, seed, settings, as_json=as_json)
        return
    _refuse_existing(target)
    generator = make_generator(model, seed=seed, **settings)
    source = read_workload(context, files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json)
    with share_bar(quiet=as_json) as progress:
        generator.fit(source.workload, progress=progress)
        generator.save(target)
    learnt = learnt_workload(source.workload, generator, name=model, model=target, seed=seed)
    emit(
        learnt.model_dump(mode="json"),
        lambda out: _print_learnt(out, learnt),
        as_json=as_json,
        next_step=f"stormpetrel synth sample {plain(str(target))} -n 1000 -o more.swf",
    )


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise UsageError(f"{plain(str(target))} is there already.", hint="Models are never overwritten: choose another folder.")


def _refuse_for_site(files: list[str] | None, since: str | None, skip: int) -> None:
    """Where there is no -o the model goes to the site, which learns from its own jobs."""
    if files:
        raise UsageError("No folder for the model.", hint="Add -o MODEL, a new folder.")
    if since or skip:
        raise UsageError(
            "The model of a site learns from all of its jobs.", hint="Leave out --since and --skip, or add -o MODEL."
        )


def _fit_on_site(context: typer.Context, model: str, seed: int, settings: dict[str, Any], *, as_json: bool) -> None:
    with open_site(context, to_write=True) as site, share_bar(quiet=as_json) as progress:
        receipt = fit_generator(site, LOCAL, model, seed=seed, settings=settings, progress=progress)
    emit(
        receipt,
        lambda out: _print_training(out, receipt),
        as_json=as_json,
        next_step="with the same --site: synth sample -n 1000 -o more.swf, or the page Generator of serve",
    )


def _print_training(out: Console, receipt: NewTraining) -> None:
    about = receipt.about
    out.print(f"{plain(receipt.name)} version {receipt.version} is in use: {about['n_train']:,} jobs learnt")
    _print_groups(out, about.get("groups") or {})
    _print_notes(out, about.get("notes") or [])
    if about.get("not_scored"):
        out.print(f"It could not be evaluated: {plain(str(about['not_scored']))}")


def _print_learnt(out: Console, learnt: LearntWorkload) -> None:
    users = f" of {learnt.users:,} user{'s' if learnt.users > 1 else ''}" if learnt.users else " without users"
    out.print(f"{plain(learnt.model)}: {learnt.jobs:,} jobs{users} in {learnt.days:,.0f} days, by '{learnt.generator}'")
    out.print(f"Columns: {plain(', '.join(learnt.columns)) or 'none but the time of submission'}")
    _print_notes(out, learnt.notes)
    _print_groups(out, learnt.groups)


def _print_models(models: list[LearntWorkload], out: Console) -> None:
    for learnt in models:
        out.print(f"{plain(learnt.model)}: {learnt.jobs:,} jobs, by '{learnt.generator}' with seed {learnt.seed}")
    _print_notes(out, list(dict.fromkeys(note for learnt in models for note in learnt.notes)))


def _print_notes(out: Console, notes: list[str]) -> None:
    for note in notes:
        out.print(f"note: {plain(str(note))}")


def _print_groups(out: Console, groups: dict[str, str]) -> None:
    if not groups:
        return
    count = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    out.print(f"{count} of users, with new names (synth sample --group NAME):")
    for name, about in list(groups.items())[:_MOST_GROUPS]:
        out.print(f"  {plain(str(name)):<12} {plain(str(about))}")
    if len(groups) > _MOST_GROUPS:
        out.print(f"  … and {len(groups) - _MOST_GROUPS:,} more (--json lists all)")

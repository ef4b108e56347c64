"""`stormpetrel synth fit`: learn a workload from job logs or from the site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import Fields
from stormpetrel.faces.cli.workload_input import (
    Device,
    Epochs,
    Files,
    Format,
    ModelName,
    Seed,
    Since,
    Skip,
    bar_shown,
    read_workload,
)

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import LearntWorkload

_MOST_GROUPS: Final = 8


def fit(
    context: typer.Context,
    files: Files = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder to make for the model; the site's own models if left out.", show_default=False
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
    since: Since = None,
    skip: Skip = 0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Learn a workload: when jobs come, in which order, and what they ask for. User, group and account names are not kept."""
    from stormpetrel.answers.workload.input import learnt_workload, make_generator

    chosen: Context = context.obj
    settings = {"epochs": epochs, "device": device, "fewest_jobs": fewest, "epsilon": epsilon}
    if target is None:
        _refuse_for_site(files, since, skip)
        _fit_on_site(chosen, model, seed, settings, as_json=as_json)
        return
    if target.exists():
        raise UsageError(f"{plain(str(target))} is there already.", hint="Models are never overwritten: choose another folder.")
    generator = make_generator(model, seed=seed, **settings)
    source = read_workload(chosen, files, format_name=format_name, fields=fields, since=since, skip=skip, quiet=as_json)
    with bar_shown(quiet=as_json) as progress:
        generator.fit(source.workload, progress=progress)
        generator.save(target)
    learnt = learnt_workload(source.workload, generator, name=model, model=target, seed=seed)
    if as_json:
        print_json(learnt.model_dump(mode="json"))
        return
    _show(learnt)
    console().print(f"Next: stormpetrel synth sample {plain(str(target))} -n 1000 -o more.swf")


def _refuse_for_site(files: list[str] | None, since: str | None, skip: int) -> None:
    """Where there is no -o the model goes to the site, which learns from its own jobs."""
    if files:
        raise UsageError("It is not said where the model of these files should go.", hint="Add -o MODEL, a folder to be made.")
    if since or skip:
        raise UsageError(
            "The model of a site learns from all of its jobs.", hint="Leave out --since and --skip, or add -o MODEL."
        )


def _fit_on_site(chosen: Context, model: str, seed: int, settings: dict[str, Any], *, as_json: bool) -> None:
    from stormpetrel.answers.site.training import fit_generator
    from stormpetrel.answers.viewer import LOCAL

    with chosen.open_site(to_write=True) as site, bar_shown(quiet=as_json) as progress:
        receipt = fit_generator(site, LOCAL, model, seed=seed, settings=settings, progress=progress)
    if as_json:
        print_json(receipt)
        return
    about = receipt.about
    console().print(f"{plain(receipt.name)} version {receipt.version} is in use: {about['n_train']:,} jobs learnt")
    _show_groups(about.get("groups") or {})
    _show_notes(about.get("notes") or [])
    if about.get("not_scored"):
        console().print(f"It could not be judged: {plain(str(about['not_scored']))}")
    console().print("Next, with the same --site: synth sample -n 1000 -o more.swf, or the page Workload of serve")


def _show(learnt: LearntWorkload) -> None:
    out = console()
    users = f" of {learnt.users:,} user{'s' if learnt.users > 1 else ''}" if learnt.users else " without users"
    out.print(f"{plain(learnt.model)}: {learnt.jobs:,} jobs{users} in {learnt.days:,.0f} days, by '{learnt.generator}'")
    out.print(f"Columns: {plain(', '.join(learnt.columns)) or 'none but the time of submission'}")
    _show_notes(learnt.notes)
    _show_groups(learnt.groups)


def _show_notes(notes: list[str]) -> None:
    for note in notes:
        console().print(f"note: {plain(str(note))}")


def _show_groups(groups: dict[str, str]) -> None:
    if not groups:
        return
    out = console()
    count = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    out.print(f"{count} of users, with new names (synth sample --group NAME):")
    for name, words in list(groups.items())[:_MOST_GROUPS]:
        out.print(f"  {plain(str(name)):<12} {plain(str(words))}")
    if len(groups) > _MOST_GROUPS:
        out.print(f"  … and {len(groups) - _MOST_GROUPS:,} more (--json tells all)")

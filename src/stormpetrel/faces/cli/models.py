"""`stormpetrel models`: which models there are, why which one is in use, and how to use another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.learn.model_record import TrainingRecord
    from stormpetrel.store.models import ModelVersion

app = typer.Typer(help="Which models there are, and which are in use.", no_args_is_help=True, rich_markup_mode=None)
_TAKEN_UP = "A running watch takes it up by itself."


@app.command("list")
def list_models(context: typer.Context, as_json: Json = False) -> None:
    """List the trainings: how they compare, which is in use, and why."""
    from stormpetrel.lifecycle.families import describe_all

    chosen: Context = context.obj
    with chosen.open_site() as site:
        trainings = describe_all(site)
    if as_json:
        print_json([{**training.as_dict(), "problem": training.problem} for training in trainings])
        return
    out = console()
    if not trainings:
        out.print("There is no model yet. Train one: stormpetrel jobs train")
        return
    out.print(f"  {'':<8}{'training':<11}{'created (UTC)':<18}{'trained until':<18}{'learnt from':>16}  {'PR area':<18}why")
    for training in trainings:
        why = plain(_what(training) + (training.problem or _why(training)))
        out.print(
            f"  {'in use' if training.current else '':<8}{plain(training.name):<11}{_minute(training.created):<18}"
            f"{_minute(training.trained_until.isoformat()):<18}{training.data.words():>16}  {_areas(training):<18}{why}"
        )


@app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training such as jobs-7, or a model such as jobs-submit.")],
    as_json: Json = False,
) -> None:
    """Show everything that is known about a training, or about the versions of one model."""
    from stormpetrel.lifecycle.families import describe_training, family_named

    chosen: Context = context.obj
    with chosen.open_site() as site:
        versions = site.models.versions(name)
        training = None if versions else describe_training(site, name)
    if training is None:
        family = family_named(versions[0].family)
        _show_versions(versions, [family.summary_of(version) for version in versions], as_json=as_json)
    else:
        _show_training(training, as_json=as_json)


@app.command("promote")
def promote(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to put in use, such as jobs-7.")],
    as_json: Json = False,
) -> None:
    """Put the models of a training in use, all together."""
    from stormpetrel.lifecycle.families import describe_training, promote_training

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        before = describe_training(site, training)
        after = before if before.current else promote_training(site, training)
    if before.current and not as_json:
        console().print(f"{plain(after.name)} is in use already; nothing changed.")
        return
    _tell_change(after, before=None if before.current else after.previous, as_json=as_json)


@app.command("rollback")
def rollback(
    context: typer.Context,
    family: Annotated[Literal["jobs", "traces", "events", "synth"], typer.Argument(help="Whose models.")] = "jobs",
    as_json: Json = False,
) -> None:
    """Put the models in use again that were in use before."""
    from stormpetrel.lifecycle.families import family_named

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        before = site.models.current_training(family)
        after = family_named(family).roll_back(site)
    _tell_change(after, before=before.name if before else None, as_json=as_json)


def _tell_change(after: TrainingRecord, *, before: str | None, as_json: bool) -> None:
    if as_json:
        print_json({**after.as_dict(), "before": before})
        return
    from stormpetrel.lifecycle.families import family_named

    out = console()
    models = ", ".join(f"{plain(model.name)} version {model.version}" for model in after.models)
    out.print(f"{plain(after.name)} is in use now{f' in place of {plain(before)}' if before else ''}: {models}.")
    taken_up = f"{_TAKEN_UP} " if family_named(after.family).taken_up_by_watch else ""
    out.print(f"{taken_up}To go back: stormpetrel models {f'promote {plain(before)}' if before else 'rollback'}")


def _show_training(training: TrainingRecord, *, as_json: bool) -> None:
    if as_json:
        print_json({**training.as_dict(), "about": {model.name: dict(model.about) for model in training.models}})
        return
    out = console()
    out.print(f"{plain(training.name)}{', in use' if training.current else ''}: {plain(_why(training))}")
    until = _minute(training.trained_until.isoformat())
    out.print(f"  created {_minute(training.created)} UTC, trained on what was known at {until} UTC")
    if training.previous:
        out.print(f"  put in use in place of {plain(training.previous)}")
    wide = max(14, *(len(model.name) for model in training.models))
    for model in training.models:
        out.print(f"  {plain(model.name):<{wide}} version {model.version:<5}{plain(model.summary)}")
        comparison = training.comparisons.get(model.name)
        if comparison:
            out.print(f"  {'':<{wide}} {plain(_comparison_words(comparison))}")


def _show_versions(versions: list[ModelVersion], summaries: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [{"name": v.name, "version": v.version, "created": v.created, "current": v.current, **v.about} for v in versions]
        )
        return
    out = console()
    for version, summary in zip(versions, summaries, strict=True):
        training = plain(str(version.about.get("training", "")))
        state = "in use" if version.current else ""
        out.print(f"  {state:<8}version {version.version:<5}{training:<11}{_minute(version.created):<18}{plain(summary)}")


def _comparison_words(comparison: Any) -> str:
    interval = f"difference of log loss {comparison['difference_low']:+.4f} to {comparison['difference_high']:+.4f}"
    areas = f"PR area {_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return f"against {comparison['with']} on {comparison['jobs']:,} jobs ({comparison['failed']:,} failed): {areas}, {interval}"


def _what(training: TrainingRecord) -> str:
    """Which sort of model a training made, where a family has several."""
    return "" if training.family == "jobs" else f"{training.main.sort}: "


def _areas(training: TrainingRecord) -> str:
    """The area at the first moment that was compared, and that of the model in use then."""
    for comparison in (training.comparisons[model.name] for model in training.models if model.name in training.comparisons):
        return f"{_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return ""


def _why(training: TrainingRecord) -> str:
    """Why a training was put in use, or was not; where a person decided otherwise, that as well."""
    from stormpetrel.store.models import PROMOTE, ROLLBACK

    put = training.promotion if training.current else None
    if put and put.action in (PROMOTE, ROLLBACK):
        return f"put in use by hand, {_minute(put.time)}{f'; {training.why}' if training.why else ''}"
    return training.why or "no reason was noted"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}".removeprefix("0")


def _minute(moment: str) -> str:
    """An ISO time in UTC as people read it."""
    return plain(moment[:16].replace("T", " "))

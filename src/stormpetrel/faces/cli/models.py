"""`stormpetrel models`: which models there are, why which one is in use, and how to use another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.registry import ModelVersions, PromotionReceipt, RegisteredTraining, ShownTraining

app = typer.Typer(help="Which models there are, and which are in use.", no_args_is_help=True, rich_markup_mode=None)
_TAKEN_UP = "A running watch takes it up by itself."


@app.command("list")
def list_models(context: typer.Context, as_json: Json = False) -> None:
    """List the trainings: how they compare, which is in use, and why."""
    from stormpetrel.answers.site.registry import trainings_of_all
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        trainings = trainings_of_all(site, LOCAL).trainings
    if as_json:
        print_json([training.model_dump(mode="json") for training in trainings])
        return
    out = console()
    if not trainings:
        out.print("There is no model yet. Train one: stormpetrel jobs train")
        return
    out.print(f"  {'':<8}{'training':<11}{'created (UTC)':<18}{'trained until':<18}{'learnt from':>16}  {'PR area':<18}why")
    for training in trainings:
        why = plain(_what(training) + (training.problem or _why(training)))
        out.print(
            f"  {'in use' if training.current else '':<8}{plain(training.training):<11}{_minute(training.created):<18}"
            f"{_minute(training.trained_until.isoformat()):<18}{training.learnt_from:>16}  {_areas(training):<18}{why}"
        )


@app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training such as jobs-7, or a model such as jobs-submit.")],
    as_json: Json = False,
) -> None:
    """Show everything that is known about a training, or about the versions of one model."""
    from stormpetrel.answers.schemas.registry import ModelVersions
    from stormpetrel.answers.site.registry import show_model
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = show_model(site, LOCAL, name)
    if isinstance(answer, ModelVersions):
        _show_versions(answer, as_json=as_json)
    elif as_json:
        print_json(answer)
    else:
        _show_training(answer)


@app.command("promote")
def promote_models(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to put in use, such as jobs-7.")],
    as_json: Json = False,
) -> None:
    """Put the models of a training in use, all together."""
    from stormpetrel.answers.site.registry import promote
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = promote(site, LOCAL, training)
    _show_change(receipt, as_json=as_json)


@app.command("rollback")
def rollback(
    context: typer.Context,
    family: Annotated[Literal["jobs", "traces", "events", "synth"], typer.Argument(help="Whose models.")] = "jobs",
    as_json: Json = False,
) -> None:
    """Put the models in use again that were in use before."""
    from stormpetrel.answers.site.registry import roll_back
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = roll_back(site, LOCAL, family)
    _show_change(receipt, as_json=as_json)


def _show_change(receipt: PromotionReceipt, *, as_json: bool) -> None:
    if as_json:
        print_json(receipt)
        return
    out, before = console(), receipt.before
    if not receipt.changed:
        out.print(f"{plain(receipt.training)} is in use already; nothing changed.")
        return
    models = ", ".join(f"{plain(name)} version {version}" for name, version in receipt.models.items())
    out.print(f"{plain(receipt.training)} is in use now{f' in place of {plain(before)}' if before else ''}: {models}.")
    taken_up = f"{_TAKEN_UP} " if receipt.taken_up else ""
    out.print(f"{taken_up}To go back: stormpetrel models {f'promote {plain(before)}' if before else 'rollback'}")


def _show_training(training: ShownTraining) -> None:
    out = console()
    out.print(f"{plain(training.training)}{', in use' if training.current else ''}: {plain(_why(training))}")
    until = _minute(training.trained_until.isoformat())
    out.print(f"  created {_minute(training.created)} UTC, trained on what was known at {until} UTC")
    if training.previous:
        out.print(f"  put in use in place of {plain(training.previous)}")
    wide = max(14, *map(len, training.models))
    for name, version in training.models.items():
        out.print(f"  {plain(name):<{wide}} version {version:<5}{plain(training.summaries[name])}")
        if name in training.comparisons:
            out.print(f"  {'':<{wide}} {plain(_comparison_words(training.comparisons[name]))}")


def _show_versions(answer: ModelVersions, *, as_json: bool) -> None:
    if as_json:
        print_json([line.model_dump(mode="json") for line in answer.versions])
        return
    out = console()
    for line in answer.versions:
        training = plain(str(line.about.get("training", "")))
        state = "in use" if line.current else ""
        out.print(f"  {state:<8}version {line.version:<5}{training:<11}{_minute(line.created):<18}{plain(line.summary)}")


def _comparison_words(comparison: Mapping[str, Any]) -> str:
    interval = f"difference of log loss {comparison['difference_low']:+.4f} to {comparison['difference_high']:+.4f}"
    areas = f"PR area {_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return f"against {comparison['with']} on {comparison['jobs']:,} jobs ({comparison['failed']:,} failed): {areas}, {interval}"


def _what(training: RegisteredTraining) -> str:
    """Which sort of model a training made, where a family has several."""
    return "" if training.family == "jobs" else f"{training.sort}: "


def _areas(training: RegisteredTraining) -> str:
    """The area at the first moment that was compared, and that of the model in use then."""
    for comparison in (training.comparisons[name] for name in training.models if name in training.comparisons):
        return f"{_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return ""


def _why(training: RegisteredTraining) -> str:
    """Why a training was put in use, or was not; where a person decided otherwise, that as well."""
    from stormpetrel.store.models import PROMOTE, ROLLBACK

    put = training.promoted if training.current else None
    if put and put.action in (PROMOTE, ROLLBACK):
        return f"put in use by hand, {_minute(put.time)}{f'; {training.why}' if training.why else ''}"
    return training.why or "no reason was noted"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}".removeprefix("0")


def _minute(moment: str) -> str:
    """An ISO time in UTC as people read it."""
    return plain(moment[:16].replace("T", " "))

"""`stormpetrel models` and `nightly`: which models there are, why which one is in use, another one, and the daily training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from stormpetrel.answers.schemas.registry import (
    FamilyNightLine,
    ListedTraining,
    ModelVersionLine,
    ModelVersions,
    NightlyReceipt,
    PromotionReceipt,
    RegisteredTraining,
    RepeatReceipt,
    ShownTraining,
)
from stormpetrel.answers.site.registry import (
    promote,
    repeat_training,
    roll_back,
    run_night,
    set_shadow,
    show_model,
    trainings_of_all,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import step_spinner
from stormpetrel.faces.cli.site import open_site
from stormpetrel.store.registry.models import PROMOTE, ROLLBACK

_TAKEN_UP = "A running watch takes it up by itself."


def list_models(context: typer.Context, as_json: Json = False) -> None:
    """List the trainings: how they compare, which is in use, and why."""
    with open_site(context) as site:
        trainings = trainings_of_all(site, LOCAL).trainings
    emit([training.model_dump(mode="json") for training in trainings], lambda out: _print_list(out, trainings), as_json=as_json)


def _print_list(out: Console, trainings: Sequence[ListedTraining]) -> None:
    if not trainings:
        out.print("There is no model yet. Train one: stormpetrel jobs train")
        return
    out.print(f"  {'':<8}{'training':<11}{'created (UTC)':<18}{'trained until':<18}{'learnt from':>16}  {'PR area':<18}why")
    for training in trainings:
        why = plain(_what(training) + (training.problem or _why(training)))
        out.print(
            f"  {_state(training):<8}{plain(training.training):<11}{_minute(training.created):<18}"
            f"{_minute(training.trained_until.isoformat()):<18}{training.learnt_from:>16}  {_areas(training):<18}{why}"
        )


def _state(training: RegisteredTraining) -> str:
    return "in use" if training.current else "shadow" if training.shadow else ""


def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training such as jobs-7, or a model such as jobs-submit.")],
    as_json: Json = False,
) -> None:
    """Show everything that is known about a training, or about the versions of one model."""
    with open_site(context) as site:
        answer = show_model(site, LOCAL, name)
    if isinstance(answer, ModelVersions):
        versions = answer.versions
        emit([line.model_dump(mode="json") for line in versions], lambda out: _print_versions(out, versions), as_json=as_json)
    else:
        emit(answer, partial(_print_training, training=answer), as_json=as_json)


def promote_models(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to put in use, such as jobs-7.")],
    as_json: Json = False,
) -> None:
    """Put the models of a training in use, all together."""
    with open_site(context, to_write=True) as site:
        receipt = promote(site, LOCAL, training)
    emit(receipt, lambda out: _print_change(out, receipt), as_json=as_json)


def rollback(
    context: typer.Context,
    family: Annotated[Literal["jobs", "traces", "events", "synth"], typer.Argument(help="Whose models.")] = "jobs",
    as_json: Json = False,
) -> None:
    """Go back to the models that were in use before."""
    with open_site(context, to_write=True) as site:
        receipt = roll_back(site, LOCAL, family)
    emit(receipt, lambda out: _print_change(out, receipt), as_json=as_json)


def shadow(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to run in shadow, such as jobs-7.")],
    stop: Annotated[bool, typer.Option("--stop", help="End its shadow, and delete its scores.")] = False,
    as_json: Json = False,
) -> None:
    """Let a training score in parallel with the model in use, at night; its scores never raise alarms."""
    with open_site(context, to_write=True) as site:
        receipt = set_shadow(site, LOCAL, training, stop=stop)
    where = "runs in shadow from the next night on" if receipt.runs else "no longer runs in shadow"
    emit(receipt, lambda out: out.print(f"{plain(receipt.training)} {where}."), as_json=as_json)


def repeat(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to repeat, such as jobs-7.")],
    as_json: Json = False,
) -> None:
    """Repeat a training from its record, and report whether the files are the same; nothing is put in use."""
    with open_site(context) as site, step_spinner(quiet=as_json) as progress:
        receipt = repeat_training(site, LOCAL, training, progress=lambda _share, text: progress(text))

    def text(out: Console) -> None:
        out.print(f"{plain(receipt.training)}: {plain(receipt.why)}. {_used(receipt)}.")
        if receipt.skipped:
            out.print(f"Copied from an earlier training, and not repeated: {plain(', '.join(receipt.skipped))}.")

    emit(receipt, text, as_json=as_json)


def _used(receipt: RepeatReceipt | FamilyNightLine) -> str:
    return f"{receipt.seconds:,.0f} s, {receipt.cpu_s:,.0f} s of CPU, {receipt.peak_bytes / 1e6:,.0f} MB"


def _print_change(out: Console, receipt: PromotionReceipt) -> None:
    before = receipt.before
    if not receipt.changed:
        out.print(f"{plain(receipt.training)} is in use already; nothing changed.")
        return
    models = ", ".join(f"{plain(name)} version {version}" for name, version in receipt.models.items())
    out.print(f"{plain(receipt.training)} is in use now{f' in place of {plain(before)}' if before else ''}: {models}.")
    taken_up = f"{_TAKEN_UP} " if receipt.taken_up else ""
    out.print(f"{taken_up}To go back: stormpetrel models {f'promote {plain(before)}' if before else 'rollback'}")


def _print_training(out: Console, training: ShownTraining) -> None:
    out.print(f"{plain(training.training)}{', in use' if training.current else ''}: {plain(_why(training))}")
    until = _minute(training.trained_until.isoformat())
    out.print(f"  created {_minute(training.created)} UTC, trained on what was known at {until} UTC")
    if training.shadow:
        out.print(f"  in shadow: {plain(training.shadow)}")
    if training.previous:
        out.print(f"  put in use in place of {plain(training.previous)}")
    for point in training.working_points:
        out.print(f"  at {point.moment}: {plain(point.words)}")
    wide = max(14, *map(len, training.models))
    used = next((about["compute"] for about in training.about.values() if "compute" in about), None)
    if used:
        spent = f"{used['seconds']:,.0f} s, {used['cpu_s']:,.0f} s of CPU, {used['peak_bytes'] / 1e6:,.0f} MB"
        out.print(f"  trained in {spent}; table version {next(iter(training.about.values())).get('table_version', 'not noted')}")
    for name, version in training.models.items():
        out.print(f"  {plain(name):<{wide}} version {version:<5}{plain(training.summaries[name])}")
        if name in training.comparisons:
            out.print(f"  {'':<{wide}} {plain(_comparison_text(training.comparisons[name]))}")


def _print_versions(out: Console, versions: Sequence[ModelVersionLine]) -> None:
    for line in versions:
        training = plain(str(line.about.get("training", "")))
        state = "in use" if line.current else ""
        out.print(f"  {state:<8}version {line.version:<5}{training:<11}{_minute(line.created):<18}{plain(line.summary)}")


def _comparison_text(comparison: Mapping[str, Any]) -> str:
    if "pr_auc" not in comparison:
        champion = comparison.get("champion") or {}
        pairs = [
            f"{name} {comparison[name]:.4g} against {champion[name]:.4g}"
            for name in ("re_normal", "recall", "ks")
            if isinstance(comparison.get(name), float) and isinstance(champion.get(name), float)
        ]
        return f"against {comparison.get('with')}: {', '.join(pairs)}"
    interval = f"difference of log loss {comparison['difference_low']:+.4f} to {comparison['difference_high']:+.4f}"
    areas = f"PR area {_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return f"against {comparison['with']} on {comparison['jobs']:,} jobs ({comparison['failed']:,} failed): {areas}, {interval}"


def _what(training: RegisteredTraining) -> str:
    """Return the sort of model that was trained, where a family has several."""
    return "" if training.family == "jobs" else f"{training.sort}: "


def _areas(training: RegisteredTraining) -> str:
    """The area at the first moment that was compared, and that of the model in use then."""
    for comparison in (training.comparisons[name] for name in training.models if name in training.comparisons):
        if "pr_auc" in comparison:
            return f"{_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return ""


def _why(training: RegisteredTraining) -> str:
    """Why a training was put in use, or was not; where a person decided otherwise, that as well."""
    put = training.promoted if training.current else None
    if put and put.action in (PROMOTE, ROLLBACK):
        return f"put in use by hand, {_minute(put.time)}{f'; {training.why}' if training.why else ''}"
    return training.why or "no reason was noted"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}".removeprefix("0")


def _minute(moment: str) -> str:
    """An ISO time in UTC as people read it."""
    return plain(moment[:16].replace("T", " "))


def nightly(context: typer.Context, as_json: Json = False) -> None:
    """Train again and use the new model if it is better; then delete what is too old, and compact the tables."""
    with open_site(context, to_write=True) as site, step_spinner(quiet=as_json) as progress:
        night = run_night(site, LOCAL, progress=progress)
    emit(night, lambda out: _print_night(out, night), as_json=as_json)


def _print_night(out: Console, night: NightlyReceipt) -> None:
    if night.reconciled:
        out.print(plain(night.reconciled))
    for family in night.families:
        out.print(f"{family.family.capitalize()}: {plain(family.sentence)} ({_used(family)})")
    for line in night.outdated:
        out.print(f"{plain(line.rstrip('.'))}.")
    for line in night.shadows:
        out.print(plain(line))
    if night.keep_days:
        out.print(f"{night.deleted_jobs:,} jobs older than {night.keep_days:,} days were deleted.")
    if night.deleted_trainings:
        out.print(f"Old trainings were deleted: {plain(', '.join(night.deleted_trainings))}.")
    files = [f"{entry.table} {entry.files_before} → {entry.files_after}" for entry in night.compacted]
    out.print(f"Files of the tables: {plain(', '.join(files))}.")

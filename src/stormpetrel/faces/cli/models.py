"""`stormpetrel models`: which models there are, why which one is in use, and how to use another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.store.models import ModelVersion, Training
    from stormpetrel.store.site import Site

app = typer.Typer(help="Which models there are, and which are in use.", no_args_is_help=True, rich_markup_mode=None)
_TAKEN_UP = "A running watch takes it up by itself."


@app.command("list")
def list_models(context: typer.Context, as_json: Json = False) -> None:
    """List the trainings: how they compare, which is in use, and why."""
    chosen: Context = context.obj
    with chosen.open_site() as site:
        trainings = site.models.trainings()
        problems = {training.name: _format_problem(site, training) for training in trainings}
    if as_json:
        print_json([{**training.as_dict(), "problem": problems[training.name]} for training in trainings])
        return
    out = console()
    if not trainings:
        out.print("There is no model yet. Train one: stormpetrel jobs train")
        return
    out.print(f"  {'':<8}{'training':<11}{'created (UTC)':<18}{'trained until':<18}{'learnt from':>16}  {'PR area':<18}why")
    for training in trainings:
        told, why = training.as_dict(), plain(_what(training) + (problems[training.name] or _why(training)))
        out.print(
            f"  {'in use' if training.current else '':<8}{plain(training.name):<11}{_minute(training.created):<18}"
            f"{_minute(told['trained_until']):<18}{_learnt_from(told):>16}  {_areas(training):<18}{why}"
        )


@app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training such as jobs-7, or a model such as jobs-submit.")],
    as_json: Json = False,
) -> None:
    """Show everything that is known about a training, or about the versions of one model."""
    chosen: Context = context.obj
    with chosen.open_site() as site:
        versions = site.models.versions(name)
        training = None if versions else site.models.training(name)
    if training is None:
        _show_versions(versions, as_json=as_json)
    else:
        _show_training(training, as_json=as_json)


@app.command("promote")
def promote(
    context: typer.Context,
    training: Annotated[str, typer.Argument(help="The training to put in use, such as jobs-7.")],
    as_json: Json = False,
) -> None:
    """Put the models of a training in use, all together."""
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        before = site.models.training(training)
        after = before if before.current else _promoted(site, training)
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
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        before = site.models.current_training(family)
        after = _rolled_back(site, family)
    _tell_change(after, before=before.name if before else None, as_json=as_json)


def _format_problem(site: Site, training: Training) -> str | None:
    """Why this version cannot read a training, in a few words; None where it can."""
    from stormpetrel.errors import ModelOutdatedError
    from stormpetrel.lifecycle.readable import format_problem_of

    problem = format_problem_of(site, training)
    if problem is None:
        return None
    outdated = isinstance(problem, ModelOutdatedError)
    return "saved by an earlier version: to be trained again" if outdated else "saved by a newer version: cannot be used"


def _promoted(site: Site, training: str) -> Training:
    """Each family reads its models before it puts them in use."""
    from stormpetrel.store.models import family_of

    family = family_of(training)
    if family == "traces":
        from stormpetrel.lifecycle.trace_models import promote_trace_training

        return promote_trace_training(site, training)
    if family == "events":
        from stormpetrel.lifecycle.event_models import promote_event_training

        return promote_event_training(site, training)
    if family == "synth":
        from stormpetrel.lifecycle.workload_models import promote_generator

        return promote_generator(site, training)
    from stormpetrel.lifecycle.job_models import promote_training

    return promote_training(site, training)


def _rolled_back(site: Site, family: str) -> Training:
    if family == "traces":
        from stormpetrel.lifecycle.trace_models import roll_back_traces

        return roll_back_traces(site)
    if family == "events":
        from stormpetrel.lifecycle.event_models import roll_back_events

        return roll_back_events(site)
    if family == "synth":
        from stormpetrel.lifecycle.workload_models import roll_back_generator

        return roll_back_generator(site)
    from stormpetrel.lifecycle.job_models import roll_back

    return roll_back(site)


def _tell_change(after: Training, *, before: str | None, as_json: bool) -> None:
    if as_json:
        print_json({**after.as_dict(), "before": before})
        return
    out = console()
    models = ", ".join(f"{plain(model.name)} version {model.version}" for model in _in_order(after))
    out.print(f"{plain(after.name)} is in use now{f' in place of {plain(before)}' if before else ''}: {models}.")
    taken_up = "" if after.name.startswith(("traces", "synth")) else f"{_TAKEN_UP} "
    out.print(f"{taken_up}To go back: stormpetrel models {f'promote {plain(before)}' if before else 'rollback'}")


def _show_training(training: Training, *, as_json: bool) -> None:
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
    for model in _in_order(training):
        out.print(f"  {plain(model.name):<{wide}} version {model.version:<5}{plain(_model_words(model))}")
        comparison = training.comparisons.get(model.name)
        if comparison:
            out.print(f"  {'':<{wide}} {plain(_comparison_words(comparison))}")


def _show_versions(versions: list[ModelVersion], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [{"name": v.name, "version": v.version, "created": v.created, "current": v.current, **v.about} for v in versions]
        )
        return
    out = console()
    for version in versions:
        training = plain(str(version.about.get("training", "")))
        state = "in use" if version.current else ""
        out.print(
            f"  {state:<8}version {version.version:<5}{training:<11}{_minute(version.created):<18}{plain(_model_words(version))}"
        )


def _model_words(model: ModelVersion) -> str:
    about = model.about
    if "buckets" in about:
        role = (
            "says what is expected" if about.get("role") == "forecast" else f"alarms from a score of {about['threshold']:.3g} on"
        )
        return f"{about['buckets']:,} buckets of {about['bucket_s'] // 60} min; {role}"
    if "windows" in about:
        flags = "flags nothing yet" if about["threshold"] is None else f"flags from a score of {about['threshold']:.3g} on"
        return f"{about['windows']['train']:,} windows; {flags}"
    if "generator" in about:
        return f"{about['n_train']:,} jobs; makes new ones"
    if "n_train" in about:
        return f"{about['n_train']:,} jobs, {about['failed_share']:.1%} failed; flags from a risk of {about['threshold']:.0%} on"
    return f"{about['profiles']} profiles of requests" if "profiles" in about else ""


def _comparison_words(comparison: Any) -> str:
    interval = f"difference of log loss {comparison['difference_low']:+.4f} to {comparison['difference_high']:+.4f}"
    areas = f"PR area {_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return f"against {comparison['with']} on {comparison['jobs']:,} jobs ({comparison['failed']:,} failed): {areas}, {interval}"


def _learnt_from(told: dict[str, Any]) -> str:
    for what in ("windows", "buckets"):
        if told[what]:
            return f"{told[what]:,} {what}"
    return f"{told['jobs']:,} jobs"


def _what(training: Training) -> str:
    """Which sort of model a training made, where a family has several."""
    sorts = [model.name.partition("-")[2] for model in training.models if model.about.get("role") != "forecast"]
    return f"{sorts[0]}: " if training.models[0].family in ("traces", "events", "synth") and sorts else ""


def _areas(training: Training) -> str:
    """The area at the first moment that was compared, and that of the model in use then."""
    for comparison in (training.comparisons[model.name] for model in _in_order(training) if model.name in training.comparisons):
        return f"{_number(comparison['pr_auc'])} against {_number(comparison['pr_auc_current'])}"
    return ""


def _in_order(training: Training) -> list[ModelVersion]:
    from stormpetrel.lifecycle.job_models import in_order

    return in_order(training)


def _why(training: Training) -> str:
    """Why a training was put in use, or was not; where a person decided otherwise, that as well."""
    from stormpetrel.store.models import PROMOTE, ROLLBACK

    promoted = training.promoted if training.current else None
    if promoted and promoted["action"] in (PROMOTE, ROLLBACK):
        return f"put in use by hand, {_minute(promoted['time'])}{f'; {training.why}' if training.why else ''}"
    return training.why or "no reason was noted"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}".removeprefix("0")


def _minute(moment: str) -> str:
    """An ISO time in UTC as people read it."""
    return plain(moment[:16].replace("T", " "))

"""Which trainings this version can read: the format of each kind of model, and the loader of each family.

Training -> format_problem_of (from the records alone, cheap) or problem_of (everything is loaded) -> one sentence, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from stormpetrel.errors import ModelError, ModelOutdatedError, StormpetrelError
from stormpetrel.events.count_saving import COMBINED_KIND, FORECAST_KIND
from stormpetrel.events.count_saving import FORMAT_VERSION as COUNT_FORMAT
from stormpetrel.events.recurrent_saving import FORMAT_VERSION as RECURRENT_FORMAT
from stormpetrel.jobs.model import FORMAT_VERSION as OUTCOME_FORMAT
from stormpetrel.jobs.model import KIND as OUTCOME_KIND
from stormpetrel.jobs.profiles import FORMAT_VERSION as PROFILES_FORMAT
from stormpetrel.jobs.profiles import KIND as PROFILES_KIND
from stormpetrel.learn.saving import format_problem
from stormpetrel.records.checks import Finding
from stormpetrel.store.models import Training, family_of
from stormpetrel.store.site import Site
from stormpetrel.synth.choose import GENERATORS
from stormpetrel.traces.architecture import FORMAT_VERSION as TRACES_FORMAT
from stormpetrel.traces.architecture import KIND as TRACES_KIND

FAMILIES: Final = ("jobs", "traces", "events", "synth")


@cache
def formats() -> Mapping[str, int]:
    """The format that each kind of model is read in."""
    from stormpetrel.synth.private.generator import FORMAT_VERSION as PRIVATE_FORMAT
    from stormpetrel.synth.rows.row_generator import FORMAT_VERSION as ROWS_FORMAT
    from stormpetrel.synth.sessions.saving import FORMAT_VERSION as SESSIONS_FORMAT

    own = {"private": PRIVATE_FORMAT, "sessions": SESSIONS_FORMAT}
    return {
        OUTCOME_KIND: OUTCOME_FORMAT,
        PROFILES_KIND: PROFILES_FORMAT,
        TRACES_KIND: TRACES_FORMAT,
        FORECAST_KIND: COUNT_FORMAT,
        COMBINED_KIND: COUNT_FORMAT,
        "events-supervised": RECURRENT_FORMAT,
        "events-recurrent-forecast": RECURRENT_FORMAT,
        **{f"synth-{name}": own.get(name, ROWS_FORMAT) for name in GENERATORS},
    }


def format_problem_of(site: Site, training: Training) -> ModelError | None:
    """Why the format of one of a training's models cannot be read; None where all can, or where a folder cannot be looked at."""
    for model in training.models:
        try:
            problem = format_problem(site.models.folder_of(model.name, model.version), formats())
        except ModelError:  # missing or damaged: whoever loads it says so
            continue
        if problem is not None:
            return problem
    return None


def outdated_trainings(site: Site) -> list[Training]:
    """The trainings in use that an earlier version saved in a format which is not read any more; cheap."""
    in_use = (site.models.current_training(family) for family in FAMILIES)
    return [one for one in in_use if one is not None and isinstance(format_problem_of(site, one), ModelOutdatedError)]


def model_findings(site: Site) -> list[Finding]:
    """For the doctor: which models in use this version cannot read, and what becomes of them."""
    findings = []
    for training in filter(None, map(site.models.current_training, FAMILIES)):
        problem = format_problem_of(site, training)
        if isinstance(problem, ModelOutdatedError):
            findings.append(Finding("warning", "models", f"{training.name}: {problem.what}", problem.hint))
        elif problem is not None:
            findings.append(Finding("problem", "models", f"{training.name}: {problem.what}", problem.hint))
    return findings


def problem_of(site: Site, training: Training) -> str | None:
    """Why a training cannot be used; None where all of its models can be read."""
    try:
        _LOADERS[family_of(training.name)](site, training)
    except KeyError:
        return "its family is not known"
    except StormpetrelError as error:
        return error.what
    return None


def _load_jobs(site: Site, training: Training) -> None:
    from stormpetrel.lifecycle.job_models import load_fitted

    load_fitted(site, training)


def _load_traces(site: Site, training: Training) -> None:
    from stormpetrel.lifecycle.trace_models import loaded_traces

    loaded_traces(site, training, threads=1)


def _load_events(site: Site, training: Training) -> None:
    from stormpetrel.lifecycle.event_models import loaded_training

    loaded_training(site, training)


def _load_synth(site: Site, training: Training) -> None:
    from stormpetrel.lifecycle.workload_models import loaded_generator

    loaded_generator(site, training)


_LOADERS: Final[Mapping[str, Callable[[Site, Training], None]]] = {
    "jobs": _load_jobs,
    "traces": _load_traces,
    "events": _load_events,
    "synth": _load_synth,
}

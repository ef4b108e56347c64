"""The four families of a site's models, by name: the one way to whatever can be done with any of them.

name of a family or of a training -> SiteFamily -> train, load, describe, promote, roll back. Nothing here imports what is
heavy. Which trainings this version can read: format_problem_of (from the records alone, cheap) or problem_of (everything is
loaded) -> one sentence, or None. Site -> retrain_outdated -> what an earlier version saved in another format is trained again.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelOutdatedError, StormpetrelError, UsageError
from stormpetrel.learn.family import TrainingRecord
from stormpetrel.lifecycle.event_models import EVENTS
from stormpetrel.lifecycle.family import SiteFamily
from stormpetrel.lifecycle.job_models import JOBS
from stormpetrel.lifecycle.trace_models import TRACES
from stormpetrel.lifecycle.workload_models import SYNTH
from stormpetrel.records.checks import Finding
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site

FAMILIES: Final[Mapping[str, SiteFamily[Any]]] = MappingProxyType(
    {str(family.name): family for family in (JOBS, TRACES, EVENTS, SYNTH)}
)


def family_named(name: str) -> SiteFamily[Any]:
    """The family of this name; UsageError names the known ones."""
    if name not in FAMILIES:
        close = difflib.get_close_matches(name, FAMILIES, n=1)
        hint = f"Known: {', '.join(FAMILIES)}." + (f" Did you mean '{close[0]}'?" if close else "")
        raise UsageError(f"Unknown model family {name[:80]!r}.", hint=hint)
    return FAMILIES[name]


def describe_all(site: Site) -> list[TrainingRecord]:
    """Every training of every family, oldest first within its family."""
    return [family_named(training.family).described(site, training) for training in site.models.trainings()]


def describe_training(site: Site, name: str) -> TrainingRecord:
    """A training by its name; NotThereError where there is none."""
    training = site.models.training(name)
    return family_named(training.family).described(site, training)


def promote_training(site: Site, name: str, *, user: str | None = None) -> TrainingRecord:
    """Make a training of whatever family current, once its models have been read."""
    return family_named(site.models.training(name).family).promote(site, name, user=user)


OUTDATED: Final = "the one in use was saved by an earlier version, in a format that is not read any more"
# Models of jobs and of events have their own retraining, which looks for this itself; nothing else trains these.
_WITHOUT_RETRAINING: Final = (ModelFamily.TRACES, ModelFamily.SYNTH)


@cache
def formats() -> Mapping[str, int]:
    """The format that each kind of model is read in, of all families."""
    return {kind: version for family in FAMILIES.values() for kind, version in family.formats().items()}


def format_problem_of(site: Site, training: Training) -> ModelError | None:
    """Why the format of one of a training's models cannot be read; None where all can, or its family is not known."""
    family = FAMILIES.get(training.family)
    return None if family is None else family.format_problem(site, training)


def outdated_trainings(site: Site) -> list[Training]:
    """The trainings in use that an earlier version saved in a format which is not read any more; cheap."""
    in_use = (site.models.current_training(family) for family in FAMILIES)
    return [
        training
        for training in in_use
        if training is not None and isinstance(format_problem_of(site, training), ModelOutdatedError)
    ]


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
    family = FAMILIES.get(training.family)
    return "its family is not known" if family is None else family.problem(site, training)


def retrain_outdated(site: Site, *, progress: Progress = no_progress) -> list[str]:
    """Train again what an earlier version saved of traces and workloads; a sentence for each."""
    outdated = [training for training in outdated_trainings(site) if training.family in _WITHOUT_RETRAINING]
    return [_train_again(site, training, progress) for training in outdated]


def _train_again(site: Site, training: Training, progress: Progress) -> str:
    try:
        new = FAMILIES[training.family].train_again(site, training, why=OUTDATED, progress=progress)
    except StormpetrelError as error:  # too little is left to learn from, an extra is missing, or a person has to decide
        return f"{training.name} was saved by an earlier version and could not be trained again: {error}"
    return f"{new.name} is in use now in place of {training.name}: {OUTDATED}"

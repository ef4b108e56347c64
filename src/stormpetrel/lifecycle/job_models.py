"""Job models of a site: train them on its table, enter them in its registry, load the current ones.

Site -> train_job_models -> registry -> load_predictor -> JobPredictor.
"""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel import __version__
from stormpetrel.config import Settings
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.jobs.training import Progress, TrainingSettings, silent, train
from stormpetrel.store.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site

FAMILY: Final = "jobs"
PROFILES: Final = "jobs-profiles"
BY_HAND: Final = "trained by hand"


@dataclass(frozen=True, slots=True)
class FittedModels:
    """The models of one training before they are entered: of each moment, and the profiles that they read."""

    models: Mapping[Moment, JobOutcomeModel]
    profiles: JobProfiles
    about: Mapping[str, Any]


def model_name(moment: Moment) -> str:
    """The name of a moment's model in the registry."""
    return f"jobs-{moment}"


def training_settings(settings: Settings) -> TrainingSettings:
    """What a site's settings say about training."""
    return TrainingSettings(
        failure_states=tuple(settings.jobs.failure_states),
        dropped_states=tuple(settings.jobs.dropped_states),
        time_zone=settings.site.time_zone,
        min_run_s=settings.jobs.min_run_s or None,
    )


def operator() -> str:
    """Who runs this process, for the audit trail."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return f"uid {os.getuid()}"


def train_job_models(
    site: Site,
    moments: Collection[Moment] = MOMENTS,
    *,
    until: datetime | None = None,
    why: str = BY_HAND,
    user: str | None = None,
    progress: Progress = silent,
) -> list[ModelVersion]:
    """Train a model for each moment on the jobs of the site, save them and make them current together.

    With `until` on what was known then, so that later jobs can be judged as if they were to come. Where only some moments are
    asked for, the current models of the others stay in use, over the same profiles.
    """
    current = site.models.current_training(FAMILY)
    others = [model for model in current.models if model.name not in _names(moments)] if current else []
    profiles = load_fitted(site, current).profiles if current and others else None
    fitted = fit_job_models(site, moments, until=until or site.now(), profiles=profiles, progress=progress)
    progress("saving")
    training = enter_job_models(site, fitted, why=why, carried=others, promoted_by=user or operator())
    return [model for model in in_order(training) if model.name in _names(moments)]


def fit_job_models(
    site: Site,
    moments: Collection[Moment] = MOMENTS,
    *,
    until: datetime,
    jobs: pl.DataFrame | None = None,
    settings: TrainingSettings | None = None,
    profiles: JobProfiles | None = None,
    progress: Progress = silent,
) -> FittedModels:
    """A model for each moment out of what was known at `until`; nothing is saved. `jobs` saves reading the table again."""
    version = site.jobs.table.version()
    known = known_by(site.jobs.read_jobs(until=until).collect() if jobs is None else jobs, until)
    if not known.height:
        raise NotEnoughJobsError("The site has no jobs yet.", hint="Run: stormpetrel ingest jobs --live")
    about = {"table_version": version, "code_version": __version__, "trained_until": until.isoformat()}
    chosen = settings or training_settings(site.settings)
    models, labelled = train(known, chosen, moments, metadata=about, profiles=profiles, progress=progress)
    early = {} if labelled.optimism is None else {"optimistic": labelled.optimism.as_json()}
    return FittedModels(models, labelled.profiles, about | early)


def enter_job_models(
    site: Site,
    fitted: FittedModels,
    *,
    why: str,
    about: Mapping[str, Mapping[str, Any]] | None = None,
    carried: Collection[ModelVersion] = (),
    promoted_by: str | None = None,
    action: str = "jobs train",
) -> Training:
    """Save the models of a training and enter them together; with `promoted_by` they are current at once.

    `about` adds to what is kept about single models, by name; `carried` are models of the current training that stay in use.
    """
    told = {**fitted.about, "why": why}
    new = {PROFILES: NewModel(fitted.profiles.save, {**told, "profiles": fitted.profiles.k_})}
    for moment, model in fitted.models.items():
        figures = {"threshold": model.threshold, "n_train": model.n_train_, "failed_share": model.failed_share_}
        more = (about or {}).get(model_name(moment), {})
        new[model_name(moment)] = NewModel(model.save, {**told, **figures, **more})
    for entry in carried:  # copied, so that a training is always whole
        source = site.models.verified_folder(entry.name, entry.version)
        kept = {name: value for name, value in entry.about.items() if name not in ("previous", "promoted", "comparison")}
        new[entry.name] = NewModel(_copied(source), {**kept, "why": why, "copy_of": entry.version})
    return site.models.add_together(new, promoted_by=promoted_by, action=action)


def load_fitted(site: Site, training: Training) -> FittedModels:
    """The models of a training, read from their folders; ModelFormatError where one is missing or damaged."""
    names = {model_name(moment): moment for moment in MOMENTS}
    models = {
        names[entry.name]: JobOutcomeModel.load(site.models.verified_folder(entry.name, entry.version))
        for entry in training.models
        if entry.name in names
    }
    profiles = training.model(PROFILES)
    if profiles is None or not models:
        raise ModelError(f"{training.name} is no whole training of jobs.", hint="Train one: stormpetrel jobs train")
    ordered = {moment: models[moment] for moment in MOMENTS if moment in models}
    return FittedModels(ordered, JobProfiles.load(site.models.verified_folder(PROFILES, profiles.version)), profiles.about)


def in_order(training: Training) -> list[ModelVersion]:
    """The models of a training: the profiles, then the moments in the order of a job's life."""
    names = [PROFILES, *(model_name(moment) for moment in MOMENTS)]
    return sorted(training.models, key=lambda model: names.index(model.name) if model.name in names else len(names))


def promote_training(site: Site, name: str, *, user: str | None = None) -> Training:
    """Make a training current; one whose models cannot be read is refused before anything changes."""
    load_fitted(site, site.models.training(name))
    return site.models.promote_training(name, user=user or operator())


def roll_back(site: Site, *, user: str | None = None) -> Training:
    """Go back to the training that was in use before, unless its models cannot be read; which."""
    load_fitted(site, site.models.before_current(FAMILY))
    return site.models.rollback(FAMILY, user=user or operator())


def load_predictor(
    site: Site, *, now: datetime, past: pl.DataFrame | None = None, moments: Collection[Moment] = MOMENTS
) -> JobPredictor:
    """The site's current models over its history as it was known at `now`."""
    in_use = site.models.in_use()  # in one look: models and profiles of two trainings must not meet
    models, versions = {}, {}
    for moment in moments:
        current = in_use.get(model_name(moment)) or site.models.current(model_name(moment))
        versions[moment] = current.version
        models[moment] = JobOutcomeModel.load(site.models.verified_folder(current.name, current.version))
    profiles = in_use.get(PROFILES) or site.models.current(PROFILES)
    jobs = site.jobs.read_jobs(until=now).collect() if past is None else past
    return JobPredictor(
        models,
        JobProfiles.load(site.models.verified_folder(PROFILES, profiles.version)),
        jobs,
        now=now,
        threshold=site.settings.jobs.threshold,
        versions=versions,
    )


def _names(moments: Collection[Moment]) -> set[str]:
    return {PROFILES, *(model_name(moment) for moment in moments)}


def _copied(source: Path) -> Any:
    def save(folder: Path) -> None:
        shutil.copytree(source, folder)

    return save

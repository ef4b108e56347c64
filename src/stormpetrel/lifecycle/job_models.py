"""Job models of a site: train them on its table, enter them in its registry, load the current ones.

Site -> train_job_models -> registry -> load_predictor -> JobPredictor.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel import __version__
from stormpetrel.config import Settings
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.jobs.training import Progress, TrainingSettings, silent, train
from stormpetrel.store.models import ModelVersion
from stormpetrel.store.site import Site

PROFILES: Final = "jobs-profiles"


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


def train_job_models(site: Site, moments: Collection[Moment] = MOMENTS, *, progress: Progress = silent) -> list[ModelVersion]:
    """Train a model for each moment on all the jobs of the site, save them and make them current together."""
    version = site.jobs.table.version()
    jobs = site.jobs.read_jobs().collect()
    if not jobs.height:
        raise NotEnoughJobsError("The site has no jobs yet.", hint="Run: stormpetrel ingest jobs --live")
    about = {"table_version": version, "code_version": __version__}
    models, labelled = train(jobs, training_settings(site.settings), moments, metadata=about, progress=progress)
    progress("saving")
    entries = [site.models.add(PROFILES, labelled.profiles.save, {**about, "profiles": labelled.profiles.k_})]
    for moment, model in models.items():
        figures = {"threshold": model.threshold, "n_train": model.n_train_, "failed_share": model.failed_share_}
        entries.append(site.models.add(model_name(moment), model.save, {**about, **figures}))
    for entry in entries:
        site.models.promote(entry.name, entry.version)
    return [site.models.current(entry.name) for entry in entries]


def load_predictor(
    site: Site, *, now: datetime, past: pl.DataFrame | None = None, moments: Collection[Moment] = MOMENTS
) -> JobPredictor:
    """The site's current models over its history as it was known at `now`."""
    models = {}
    for moment in moments:
        current = site.models.current(model_name(moment))
        models[moment] = JobOutcomeModel.load(site.models.folder_of(current.name, current.version))
    profiles = site.models.current(PROFILES)
    jobs = site.jobs.read_jobs(until=now).collect() if past is None else past
    return JobPredictor(
        models,
        JobProfiles.load(site.models.folder_of(PROFILES, profiles.version)),
        jobs,
        now=now,
        threshold=site.settings.jobs.threshold,
    )

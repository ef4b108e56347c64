"""Training models on a site and putting them in use: acts of who manages it.

Site + Viewer -> train_jobs -> TrainingReceipt; train_traces -> TrainedModel; train_events, fit_generator -> NewTraining.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpetrel.answers.schemas.registry import NewTraining, TrainedModel, TrainingReceipt
from stormpetrel.answers.viewer import MANAGE

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.store.registry.models import ModelVersion, Training
    from stormpetrel.store.site import Site
    from stormpetrel.traces.architecture import Architecture, AutoencoderSettings

Progress = Callable[[float, str], None]  # the share that is done, what is being done


def train_jobs(
    site: Site,
    viewer: Viewer,
    moments: Collection[Moment],
    *,
    answers: bool | None = None,
    progress: Callable[[str], None],
) -> TrainingReceipt:
    """Train a model of each moment that there are enough jobs for; `missing` says what the others lack.

    `answers`: whether what administrators said of single jobs counts; as the settings say where it is None.
    """
    from stormpetrel.lifecycle.job_models import missing_text, train_job_models

    viewer.require(MANAGE)
    models = train_job_models(site, moments, user=viewer.user or None, answers=answers, progress=progress)
    return TrainingReceipt(models=[_trained(model) for model in models], missing=missing_text(models[0]))


def train_traces(
    site: Site,
    viewer: Viewer,
    architecture: Architecture | None,
    *,
    campaigns: Sequence[Path] | None,
    settings: AutoencoderSettings,
    device: str,
    progress: Progress,
) -> TrainedModel:
    """Train a model of traces on the site's windows, or on those of campaign files; their test campaigns are left alone."""
    from stormpetrel.lifecycle.trace_learning import campaign_windows
    from stormpetrel.lifecycle.trace_models import train_trace_model
    from stormpetrel.lifecycle.trace_regions import labelled_types
    from stormpetrel.sources.trace_files import read_campaigns

    viewer.require(MANAGE)
    progress(0.0, "reading windows")
    window_s = site.settings.traces.window_s
    trouble = labelled_types(site) if campaigns else frozenset()
    windows = campaign_windows(read_campaigns(campaigns), window_s=window_s, trouble=trouble) if campaigns else None
    model = train_trace_model(
        site, architecture, windows=windows, settings=settings, device=device, user=viewer.user or None, progress=progress
    )
    return _trained(model)


def train_events(site: Site, viewer: Viewer, name: str | None, *, seed: int, progress: Progress) -> NewTraining:
    """Train a model on the site's event counts; of its models the receipt names the one that gives alarms."""
    from stormpetrel.lifecycle.event_models import train_event_model

    viewer.require(MANAGE)
    training = train_event_model(site, name, seed=seed, user=viewer.user or None, progress=progress)
    return _new(training, next(model for model in training.models if model.about.get("role") != "forecast"))


def fit_generator(
    site: Site, viewer: Viewer, name: str, *, seed: int, settings: dict[str, Any], progress: Progress
) -> NewTraining:
    """Fit a generator to the site's jobs; settings that it does not know are refused before anything is read."""
    from stormpetrel.answers.workload.input import make_generator
    from stormpetrel.lifecycle.workload_models import fit_site_generator

    viewer.require(MANAGE)
    make_generator(name, seed=seed, **settings)
    chosen = {option: value for option, value in settings.items() if value is not None}
    training = fit_site_generator(site, name, seed=seed, user=viewer.user or None, progress=progress, **chosen)
    return _new(training, training.models[0])


def _trained(model: ModelVersion) -> TrainedModel:
    return TrainedModel(name=model.name, version=model.version, created=model.created, about=dict(model.about))


def _new(training: Training, model: ModelVersion) -> NewTraining:
    return NewTraining(training=training.name, name=model.name, version=model.version, about=dict(model.about))

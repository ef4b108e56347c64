"""A site's models, of every family: training them, which there are, why which is in use, and putting another in use.

Site + Viewer -> train_jobs, train_traces, train_events, fit_generator -> receipts; trainings_of_all -> RegisteredTrainings;
show_model -> ShownTraining or ModelVersions; promote, roll_back -> PromotionReceipt; run_night -> NightlyReceipt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpetrel.answers.schemas.history import WorkingPointLine
from stormpetrel.answers.schemas.registry import (
    CompactedTable,
    FamilyNightLine,
    ListedTraining,
    ModelVersionLine,
    ModelVersions,
    MomentComparison,
    NewTraining,
    NightlyReceipt,
    PromotionReceipt,
    PutInUse,
    RegisteredTrainings,
    RepeatReceipt,
    ShadowReceipt,
    ShownTraining,
    TrainedModel,
    TrainingReceipt,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.answers.workload.input import make_generator
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.prior.shipped import LEARNT, PRIOR_VERSION, prior_of
from stormpetrel.learn.family import TrainingRecord, Unit
from stormpetrel.lifecycle.contests import repeat, shadow
from stormpetrel.lifecycle.contests.shadow import shadow_figures, shadow_name
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.lifecycle.families import describe_all, describe_training, family_named, promote_training
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.job_models import missing_text, model_name, train_job_models, uses_prior
from stormpetrel.lifecycle.nightly import run_nightly
from stormpetrel.lifecycle.trace_learning import campaign_windows
from stormpetrel.lifecycle.trace_models import train_trace_model
from stormpetrel.lifecycle.trace_regions import labelled_types
from stormpetrel.lifecycle.working_points import read_working_points
from stormpetrel.lifecycle.workload_models import fit_site_generator
from stormpetrel.records.predictions import version_text
from stormpetrel.sources.trace_files import read_campaigns

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.registry.models import ModelVersion, Training
    from stormpetrel.store.site import Site
    from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
Progress = Callable[[float, str], None]  # the share that is done, what is being done


def trainings_of_all(site: Site, viewer: Viewer) -> RegisteredTrainings:
    """Return every training of every family, oldest first within its family."""
    viewer.require(READ)
    lines = (
        ListedTraining(**_fields(record), problem=record.problem, shadow=shadow_text(site, record.family, record.name))
        for record in describe_all(site)
    )
    return RegisteredTrainings(trainings=[*_prior_in_use(site), *lines])


def _prior_in_use(site: Site) -> list[ListedTraining]:
    """The prior as a training in use, while it speaks for the site."""
    if not uses_prior(site):
        return []
    name, learnt = version_text(PRIOR_VERSION), prior_of(Moment.SUBMIT).n_train_
    return [
        ListedTraining(
            training=name,
            created=LEARNT.isoformat(),
            trained_until=LEARNT,
            jobs=learnt,
            windows=0,
            buckets=0,
            current=True,
            previous=None,
            why="no model of this site yet: general experience from other sites, shipped with the package",
            promoted=None,
            models={model_name(moment): PRIOR_VERSION for moment in MOMENTS},
            comparisons={},
            family="jobs",
            sort="",
            learnt_from=f"{learnt:,} jobs",
            problem=None,
        )
    ]


def show_model(site: Site, viewer: Viewer, name: str) -> ShownTraining | ModelVersions:
    """Return a training (`jobs-7`), or every version of a model (`jobs-submit`); NotThereError where there is neither."""
    viewer.require(READ)
    versions = site.models.versions(name)
    if not versions:
        record = describe_training(site, name)
        about = {model.name: dict(model.about) for model in record.models}
        summaries = {model.name: model.summary for model in record.models}
        return ShownTraining(
            **_fields(record),
            about=about,
            summaries=summaries,
            shadow=shadow_text(site, record.family, record.name),
            working_points=working_points(site) if record.current and record.family == "jobs" else [],
        )
    family = family_named(versions[0].family)
    return ModelVersions(
        versions=[
            ModelVersionLine(
                name=version.name,
                version=version.version,
                created=version.created,
                current=version.current,
                about=dict(version.about),
                summary=family.summary_of(version),
            )
            for version in versions
        ]
    )


def promote(site: Site, viewer: Viewer, name: str) -> PromotionReceipt:
    """Put the models of a training in use, all together, once they have been read; nothing changes where they are so."""
    viewer.require(MANAGE)
    before = describe_training(site, name)
    if before.current:
        return _receipt(before, before=None, changed=False)
    after = promote_training(site, name, user=viewer.user or None)
    return _receipt(after, before=after.previous, changed=True)


def roll_back(site: Site, viewer: Viewer, family: str) -> PromotionReceipt:
    """Put the models of a family in use again that were so before; ModelError where there are none."""
    viewer.require(MANAGE)
    before = site.models.current_training(family)
    after = family_named(family).roll_back(site, user=viewer.user or None)
    return _receipt(after, before=before.name if before else None, changed=True)


def working_points(site: Site) -> list[WorkingPointLine]:
    """Where flags of jobs begin now, moment by moment; empty until enough predictions have settled."""
    return [WorkingPointLine(**asdict(point), words=point.words()) for point in read_working_points(site).values()]


def shadow_text(site: Site, family: str, training: str) -> str | None:
    """How a training does in shadow, in words; None where it does not run there."""
    if shadow_name(site, family) != training:
        return None
    figures = shadow_figures(site, family)
    return "nothing scored yet; the next night does" if figures is None else figures.words()


def set_shadow(site: Site, viewer: Viewer, name: str, *, stop: bool = False) -> ShadowReceipt:
    """Let a training run in shadow beside the model in use, or no longer; it never alarms."""
    viewer.require(MANAGE)
    user = viewer.user or operator()
    if stop:
        shadow.stop_shadow(site, name, user=user)
    else:
        shadow.set_shadow(site, name, user=user)
    return ShadowReceipt(training=name, family=site.models.training(name).family, runs=not stop)


def repeat_training(site: Site, viewer: Viewer, name: str, *, progress: Callable[[float, str], None]) -> RepeatReceipt:
    """Train a training again from its record, and say whether the same files came out; nothing is put in use."""
    viewer.require(MANAGE)
    repeated = repeat.repeat_training(site, name, progress=progress)
    return RepeatReceipt(
        training=repeated.training,
        same=repeated.same,
        why=repeated.why,
        files={model: dict(files) for model, files in repeated.models.items()},
        skipped=list(repeated.skipped),
        **repeated.compute.as_dict(),
    )


def run_night(site: Site, viewer: Viewer, *, progress: Callable[[str], None]) -> NightlyReceipt:
    """Train again where there is a reason to, delete what is too old, and compact the tables; `progress` gets each step."""
    viewer.require(MANAGE)
    night = run_nightly(site, progress=progress)
    return NightlyReceipt(
        promoted=night.jobs.promoted,
        why=night.jobs.why,
        training=night.jobs.training,
        previous=night.jobs.previous,
        comparisons=[MomentComparison(**asdict(comparison)) for comparison in night.jobs.comparisons],
        events=next((family.sentence() for family in night.families if family.family == "events"), None),
        families=[
            FamilyNightLine(
                family=family.family,
                sentence=family.sentence(),
                promoted=family.promoted,
                why=family.why,
                training=family.training,
                previous=family.previous,
                challengers=[dict(challenger) for challenger in family.challengers],
                **asdict(family.compute),
            )
            for family in night.families
        ],
        reconciled=night.reconciled,
        outdated=list(night.outdated),
        shadows=list(night.shadows),
        deleted_jobs=night.deleted_jobs,
        deleted_trainings=list(night.deleted_trainings),
        compacted=[CompactedTable(**asdict(table)) for table in night.compacted],
        keep_days=site.settings.store.keep_days,
    )


def _receipt(record: TrainingRecord, *, before: str | None, changed: bool) -> PromotionReceipt:
    taken_up = family_named(record.family).taken_up_by_watch
    return PromotionReceipt(**_fields(record), before=before, changed=changed, taken_up=taken_up)


def _fields(record: TrainingRecord) -> dict[str, Any]:
    """The fields of RegisteredTraining; of the units of data, only that counts which it learnt from."""
    data, put = record.data, record.promotion
    return {
        "training": record.name,
        "created": record.created,
        "trained_until": record.trained_until,
        **{str(unit): data.rows if unit is data.unit else 0 for unit in Unit},
        "current": record.current,
        "previous": record.previous,
        "why": record.why,
        "promoted": None if put is None else PutInUse(time=put.time, action=put.action),
        "models": {model.name: model.version for model in record.models},
        "comparisons": record.comparisons,
        "family": record.family,
        "sort": record.main.sort,
        "learnt_from": data.words(),
    }


def train_jobs(
    site: Site,
    viewer: Viewer,
    moments: Collection[Moment],
    *,
    answers: bool | None = None,
    engine: Engine = ONE_PROCESS,
    progress: Callable[[str], None],
) -> TrainingReceipt:
    """Train a model of each moment that there are enough jobs for; `missing` says what the others lack.

    `answers`: whether what administrators said of single jobs counts; as the settings say where it is None.
    """
    viewer.require(MANAGE)
    models = train_job_models(site, moments, user=viewer.user or None, answers=answers, engine=engine, progress=progress)
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
    viewer.require(MANAGE)
    training = train_event_model(site, name, seed=seed, user=viewer.user or None, progress=progress)
    return _new(training, next(model for model in training.models if model.about.get("role") != "forecast"))


def fit_generator(
    site: Site, viewer: Viewer, name: str, *, seed: int, settings: dict[str, Any], progress: Progress
) -> NewTraining:
    """Fit a generator to the site's jobs; settings that it does not know are refused before anything is read."""
    viewer.require(MANAGE)
    make_generator(name, seed=seed, **settings)
    chosen = {option: value for option, value in settings.items() if value is not None}
    training = fit_site_generator(site, name, seed=seed, user=viewer.user or None, progress=progress, **chosen)
    return _new(training, training.models[0])


def _trained(model: ModelVersion) -> TrainedModel:
    return TrainedModel(name=model.name, version=model.version, created=model.created, about=dict(model.about))


def _new(training: Training, model: ModelVersion) -> NewTraining:
    return NewTraining(training=training.name, name=model.name, version=model.version, about=dict(model.about))

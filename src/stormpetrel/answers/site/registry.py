"""The registry of a site's models, of every family: what there is, why which is in use, and putting another in use.

Site + Viewer -> trainings_of_all -> RegisteredTrainings; show_model -> ShownTraining or ModelVersions; acts of who manages the
site: promote, roll_back -> PromotionReceipt; run_night -> NightlyReceipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stormpetrel.answers.schemas.quality import WorkingPointLine
from stormpetrel.answers.schemas.registry import (
    CompactedTable,
    FamilyNightLine,
    ListedTraining,
    ModelVersionLine,
    ModelVersions,
    MomentComparison,
    NightlyReceipt,
    PromotionReceipt,
    PutInUse,
    RegisteredTrainings,
    RepeatReceipt,
    ShadowReceipt,
    ShownTraining,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.learn.family import TrainingRecord, Unit
from stormpetrel.lifecycle.families import describe_all, describe_training, family_named, promote_training

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def trainings_of_all(site: Site, viewer: Viewer) -> RegisteredTrainings:
    """Return every training of every family, oldest first within its family."""
    viewer.require(READ)
    lines = (
        ListedTraining(**_fields(record), problem=record.problem, shadow=shadow_text(site, record.family, record.name))
        for record in describe_all(site)
    )
    return RegisteredTrainings(trainings=list(lines))


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
    from stormpetrel.lifecycle.working_points import read_working_points

    return [WorkingPointLine(**asdict(point), words=point.words()) for point in read_working_points(site).values()]


def shadow_text(site: Site, family: str, training: str) -> str | None:
    """How a training does in shadow, in words; None where it does not run there."""
    from stormpetrel.lifecycle.contests.shadow import shadow_figures, shadow_name

    if shadow_name(site, family) != training:
        return None
    figures = shadow_figures(site, family)
    return "nothing scored yet; the next night does" if figures is None else figures.words()


def set_shadow(site: Site, viewer: Viewer, name: str, *, stop: bool = False) -> ShadowReceipt:
    """Let a training run in shadow beside the model in use, or no longer; it never alarms."""
    from stormpetrel.lifecycle.contests import shadow
    from stormpetrel.lifecycle.family import operator

    viewer.require(MANAGE)
    user = viewer.user or operator()
    if stop:
        shadow.stop_shadow(site, name, user=user)
    else:
        shadow.set_shadow(site, name, user=user)
    return ShadowReceipt(training=name, family=site.models.training(name).family, runs=not stop)


def repeat_training(site: Site, viewer: Viewer, name: str, *, progress: Callable[[float, str], None]) -> RepeatReceipt:
    """Train a training again from its record, and say whether the same files came out; nothing is put in use."""
    from stormpetrel.lifecycle.contests import repeat

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
    from stormpetrel.lifecycle.nightly import run_nightly

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
                **family.compute.as_dict(),
            )
            for family in night.families
        ],
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

"""Job models of a site: train them on its table, enter them in its registry, load the current ones.

Site -> train_job_models -> registry -> load_predictor -> JobPredictor.
preparation_of, training_of and limits_of translate the section `jobs` of site.toml, for whoever trains or evaluates.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel import __version__
from stormpetrel.config import Settings
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.jobs.advice.outlook import follow_from
from stormpetrel.jobs.groups import GroupLimits
from stormpetrel.jobs.history.keys import SIZE_COLUMNS
from stormpetrel.jobs.model import FORMAT_VERSION as OUTCOME_FORMAT
from stormpetrel.jobs.model import KIND as OUTCOME_KIND
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.needs.model import FORMAT_VERSION as NEEDS_FORMAT
from stormpetrel.jobs.needs.model import KIND as NEEDS_KIND
from stormpetrel.jobs.needs.model import NeedsModel
from stormpetrel.jobs.needs.past_use import RESOURCES
from stormpetrel.jobs.needs.training import MOST_JOBS, TrainedOutlook, train_outlook
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.jobs.preparation import PreparationSettings
from stormpetrel.jobs.prior.shipped import PRIOR_VERSION, NoProfiles, shipped_prior
from stormpetrel.jobs.profiles import FORMAT_VERSION as PROFILES_FORMAT
from stormpetrel.jobs.profiles import KIND as PROFILES_KIND
from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.jobs.training import ClassCounts, LabelledJobs, Progress, TrainingSettings, label_jobs, silent, train
from stormpetrel.jobs.wait.model import FORMAT_VERSION as WAIT_FORMAT
from stormpetrel.jobs.wait.model import KIND as WAIT_KIND
from stormpetrel.jobs.wait.model import WaitModel
from stormpetrel.learn.family import BY_HAND, Role, Unit
from stormpetrel.lifecycle.case_answers import answered_jobs, with_answers
from stormpetrel.lifecycle.contests.decision import Stopwatch
from stormpetrel.lifecycle.family import SiteFamily, TrainingRequest, operator
from stormpetrel.lifecycle.history_snapshot import carry_history, recall_history
from stormpetrel.lifecycle.job_telemetry import FEWEST_JOBS, with_telemetry
from stormpetrel.lifecycle.outlook_snapshot import site_past
from stormpetrel.lifecycle.training_needs import training_needs
from stormpetrel.lifecycle.training_pieces import is_large, label_site
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.store.registry.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site

if TYPE_CHECKING:
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.training import TrainingSettings


def preparation_of(section: JobsSection, time_zone: str, *, allocation_as_request: bool = False) -> PreparationSettings:
    """Return how jobs are prepared; `allocation_as_request` is for logs that tell no requests."""
    return PreparationSettings(
        missing=section.missing,
        min_run_s=section.min_run_s or None,
        time_zone=time_zone,
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        allocation_as_request=allocation_as_request,
    )


def training_of(section: JobsSection, time_zone: str = "UTC") -> TrainingSettings:
    """Return how models of jobs are trained."""
    return TrainingSettings(
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        time_zone=time_zone,
        min_run_s=section.min_run_s or None,
        similar_names=section.similar_names,
    )


def limits_of(section: JobsSection) -> GroupLimits:
    """Return where one group of users or jobs ends and the next begins."""
    return GroupLimits(
        short_below_s=section.short_below_s,
        long_above_s=section.long_above_s,
        new_below_jobs=section.new_below_jobs,
        frequent_from_jobs=section.frequent_from_jobs,
        mem_factor=section.memory_factor,
    )


FAMILY: Final = ModelFamily.JOBS
PROFILES: Final = "jobs-profiles"
NEEDS: Final = {resource: f"jobs-needs-{resource.replace('_', '-')}" for resource in RESOURCES}
WAIT: Final = "jobs-wait"
OUTLOOK: Final = (*NEEDS.values(), WAIT)  # what jobs will need and how long they will wait


@dataclass(frozen=True, slots=True)
class FittedModels:
    """The models of one training before they are entered: of each moment, and the profiles that they read."""

    models: Mapping[Moment, JobOutcomeModel]
    profiles: JobProfiles
    about: Mapping[str, Any]
    outlook: TrainedOutlook = field(default_factory=TrainedOutlook)
    missing: tuple[ClassCounts, ...] = ()  # what there is of the moments that were requested and could not be learnt


def model_name(moment: Moment) -> str:
    """The name of a moment's model in the registry."""
    return f"jobs-{moment}"


def training_settings(settings: Settings) -> TrainingSettings:
    """What a site's settings say about training; its models begin with the prior, which an evaluation of a log never does."""
    own = training_of(settings.jobs, settings.site.time_zone)
    return replace(own, prior=settings.jobs.prior, similar_names=settings.allows_similar_names)


def train_job_models(
    site: Site,
    moments: Collection[Moment] = MOMENTS,
    *,
    until: datetime | None = None,
    why: str = BY_HAND,
    user: str | None = None,
    answers: bool | None = None,
    engine: Engine = ONE_PROCESS,
    progress: Progress = silent,
) -> list[ModelVersion]:
    """Train a model for each moment on the jobs of the site, save them and make them current together.

    With `until` on what was known then, so that later jobs can be judged as if they were to come. Where only some moments are
    asked for, or there are enough jobs for some only, the current models of the others stay in use, over the same profiles.
    """
    until = until or site.now()
    jobs = None if is_large(site, until) else known_by(site.jobs.read_jobs(until=until).collect(), until)
    able = training_needs(site, training_settings(site.settings), until=until, jobs=jobs).able(moments)
    current = site.models.current_training(FAMILY)
    others = other_models(current, able)
    profiles = load_fitted(site, current).profiles if current and others else None
    fitted = fit_job_models(
        site, moments, until=until, jobs=jobs, profiles=profiles, answers=answers, engine=engine, progress=progress
    )
    progress("saving")
    training = enter_job_models(site, fitted, why=why, carried=others, promoted_by=user or operator())
    progress("snapshot of the history")
    carry_history(site, load_models(site), until=until)  # `check`, `watch` and `serve` begin with it
    carry_outlook(site, until=until)
    trained = _names(able) - set(OUTLOOK)
    return [model for model in JOBS.in_order(training) if model.name in trained]


def other_models(current: Training | None, moments: Collection[Moment]) -> list[ModelVersion]:
    """The models of the training in use that a new one of these moments does not replace."""
    return [model for model in current.models if model.name not in _names(moments)] if current else []


def lacking_moments(current: Training | None) -> tuple[Moment, ...]:
    """The moments that the training in use has no model of."""
    return tuple(moment for moment in MOMENTS if current is None or current.model(model_name(moment)) is None)


def missing_text(model: ModelVersion) -> list[str]:
    """What was missing, when a model was trained, for the moments that were not: a part of a sentence for each."""
    return [ClassCounts(Moment(moment), **counts).words() for moment, counts in model.about.get("missing", {}).items()]


def fit_job_models(
    site: Site,
    moments: Collection[Moment] = MOMENTS,
    *,
    until: datetime,
    jobs: pl.DataFrame | None = None,
    settings: TrainingSettings | None = None,
    profiles: JobProfiles | None = None,
    labelled: LabelledJobs | None = None,
    answers: bool | None = None,
    engine: Engine = ONE_PROCESS,
    progress: Progress = silent,
    outlook: bool = True,
) -> FittedModels:
    """A model for each moment that there are enough jobs for, out of what was known at `until`; nothing is saved.

    NotEnoughJobsError where there is none. `jobs` saves reading the table again, `labelled` (the same jobs, known at `until`)
    saves computing their history again. With `answers` (by default as `jobs.answers` says) what administrators said of single
    jobs counts in place of what accounting says. With `outlook` also needs and waits, where `jobs.outlook` is set.
    """
    answers = site.settings.jobs.answers if answers is None else answers
    watch, about = Stopwatch(), about_training(site, until)
    by_pieces = jobs is None and labelled is None and is_large(site, until)
    if by_pieces:
        known = _latest_jobs(site, until)
    else:
        known = known_by(site.jobs.read_jobs(until=until).collect() if jobs is None else jobs, until)
    if not known.height:
        raise NotEnoughJobsError("The site has no jobs yet.", hint="Run: stormpetrel ingest jobs --live")
    chosen = settings or training_settings(site.settings)
    needs = training_needs(site, chosen, until=until, jobs=None if by_pieces else known)
    able, missing = needs.able(moments), needs.missing(moments)
    if not able:
        raise needs.refusal(missing)
    used_answers = len(answered_jobs(site)) if answers else 0
    about["answers"] = used_answers
    if by_pieces:
        progress("history and features, piece by piece")
        labelled = label_site(site, chosen, able, until=until, answers=bool(used_answers), profiles=profiles, engine=engine)
    elif labelled is None:
        ready = with_telemetry(site, with_answers(site, known) if used_answers else known, fewest=FEWEST_JOBS)
        progress("history and features")
        labelled = label_jobs(ready, chosen, able, profiles=profiles)
    fitted = fit_labelled(labelled, able, chosen, about, watch=watch, progress=progress)
    trained_outlook = TrainedOutlook()
    if outlook and site.settings.jobs.outlook:
        progress("needs and waits")
        trained_outlook = train_outlook(known, now=until.timestamp(), seed=chosen.seed, metadata=about)
    return replace(fitted, outlook=trained_outlook, missing=missing)


def about_training(site: Site, until: datetime) -> dict[str, Any]:
    """What a training on the site's jobs was made of, as the registry keeps it."""
    version = site.jobs.table.version()
    return {"table_version": version, "code_version": __version__, "trained_until": until.isoformat()}


def fit_labelled(
    labelled: LabelledJobs,
    moments: Collection[Moment],
    settings: TrainingSettings,
    about: Mapping[str, Any],
    *,
    watch: Stopwatch | None = None,
    progress: Progress = silent,
) -> FittedModels:
    """A model for each moment out of labelled jobs: without the site, so that any worker can do it."""
    watch = watch or Stopwatch()
    models, _ = train(labelled.jobs, settings, moments, metadata=about, labelled=labelled, progress=progress)
    more: dict[str, Any] = {} if labelled.optimism is None else {"optimistic": labelled.optimism.as_json()}
    more |= {"settings": asdict(settings), "seed": settings.seed, "learn_days": settings.learn_days}
    return FittedModels(models, labelled.profiles, {**about, **more, "compute": watch.read().as_dict()})


def _latest_jobs(site: Site, until: datetime) -> pl.DataFrame:
    """The jobs that needs and waits are learnt from."""
    jobs = site.jobs.read_jobs(until=until)
    since = jobs.select(pl.col("submit_time").top_k(MOST_JOBS).min()).collect().item()
    return known_by(jobs.filter(pl.col("submit_time") >= since).collect(), until)


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
    kept_in_use = {entry.name for entry in carried}
    missing = [counts for counts in fitted.missing if model_name(counts.moment) not in kept_in_use]
    why = "; ".join([why, *(counts.words() for counts in missing)])
    shared: dict[str, Any] = {**fitted.about, "why": why}
    if missing:
        shared["missing"] = {str(counts.moment): counts.as_dict() for counts in missing}
    new = {PROFILES: NewModel(fitted.profiles.save, {**shared, "profiles": fitted.profiles.k_})}
    for moment, model in fitted.models.items():
        figures = {"threshold": model.threshold, "n_train": model.n_train_, "failed_share": model.failed_share_}
        more = (about or {}).get(model_name(moment), {})
        new[model_name(moment)] = NewModel(model.save, {**shared, **figures, **more})
    for resource, need in fitted.outlook.needs.items():
        new[NEEDS[resource]] = NewModel(need.save, {**shared, "n_train": need.n_train_, "policy": need.policy.as_json()})
    if fitted.outlook.wait is not None:
        new[WAIT] = NewModel(fitted.outlook.wait.save, {**shared, "n_train": fitted.outlook.wait.n_train_})
    for entry in carried:  # copied, so that a training is always whole
        source = site.models.verified_folder(entry.name, entry.version)
        kept = {
            name: value for name, value in entry.about.items() if name not in ("previous", "promoted", "comparison", "missing")
        }
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
    known = JobProfiles.load(site.models.verified_folder(PROFILES, profiles.version))
    return FittedModels(ordered, known, profiles.about, _load_outlook(site, {entry.name: entry for entry in training.models}))


def load_outlook(site: Site) -> TrainedOutlook:
    """The models of needs and waits in use, as far as there are; none where the site's models were trained without them."""
    return _load_outlook(site, site.models.in_use())


def _load_outlook(site: Site, entries: Mapping[str, ModelVersion]) -> TrainedOutlook:
    folders = {name: site.models.verified_folder(name, entries[name].version) for name in OUTLOOK if name in entries}
    needs = {resource: NeedsModel.load(folders[name]) for resource, name in NEEDS.items() if name in folders}
    return TrainedOutlook(needs, WaitModel.load(folders[WAIT]) if WAIT in folders else None)


def carry_outlook(site: Site, *, until: datetime) -> None:
    """Keep the past of the outlook for whoever asks next, where models of needs and waits are in use."""
    trained = load_outlook(site)
    if trained.needs or trained.wait is not None:
        site_past(site, trained.needs, follow_from(trained.wait, until), now=until)


def load_predictor(site: Site, *, now: datetime, moments: Collection[Moment] | None = None, few: bool = False) -> JobPredictor:
    """The site's current models over its history as it was known at `now`: of these moments, or of those that there are.

    With `few` it is for one job or a few, and says the same without XGBoost.
    """
    predictor = load_models(site, moments=moments, few=few, now=now)
    recall_history(site, predictor, now=now)
    return predictor


def load_models(
    site: Site, *, moments: Collection[Moment] | None = None, few: bool = False, now: datetime | None = None
) -> JobPredictor:
    """The site's current models over a history that has seen nothing yet.

    A site that has none is judged by the prior, unless its settings say otherwise.
    """
    in_use = site.models.in_use()  # in one look: models and profiles of two trainings must not meet
    if uses_prior(site, in_use):
        return _prior_predictor(site, now=now or site.now(), moments=moments)
    models, versions = {}, {}
    there = [moment for moment in MOMENTS if model_name(moment) in in_use] or MOMENTS[:1]
    for moment in there if moments is None else moments:
        current = in_use.get(model_name(moment)) or site.models.current(model_name(moment))
        versions[moment] = current.version
        models[moment] = JobOutcomeModel.load(site.models.verified_folder(current.name, current.version), few=few)
        if not site.settings.allows_similar_names:  # from now on, not from the next training on
            models[moment].metadata["similar_names"] = False
    profiles = in_use.get(PROFILES) or site.models.current(PROFILES)
    predictor = JobPredictor(
        models,
        JobProfiles.load(site.models.verified_folder(PROFILES, profiles.version)),
        threshold=site.settings.jobs.threshold,
        versions=versions,
    )
    from stormpetrel.lifecycle.working_points import read_working_points, use_working_points

    use_working_points(predictor, read_working_points(site).values())
    return predictor


def uses_prior(site: Site, in_use: Mapping[str, ModelVersion] | None = None) -> bool:
    """Whether general experience speaks for a site: it has no model of any moment, and `jobs.prior` allows it."""
    own = site.models.in_use() if in_use is None else in_use
    return site.settings.jobs.prior and not any(model_name(moment) in own for moment in MOMENTS)


def _prior_predictor(site: Site, *, now: datetime, moments: Collection[Moment] | None) -> JobPredictor:
    section = site.settings.jobs
    models = shipped_prior(
        MOMENTS if moments is None else moments,
        failure_states=section.failure_states,
        dropped_states=section.dropped_states,
        time_zone=site.settings.site.time_zone,
        similar_names=site.settings.allows_similar_names,
        past=site.jobs.read_jobs(until=now).select(SIZE_COLUMNS).collect(),
    )
    versions = dict.fromkeys(models, PRIOR_VERSION)
    return JobPredictor(models, NoProfiles(), threshold=section.threshold, versions=versions)


class JobFamily(SiteFamily[FittedModels]):
    """Models of jobs: one for each moment of a job's life, and the profiles of requests that they read."""

    name = ModelFamily.JOBS
    unit = Unit.JOBS
    metrics = ("threshold", "failed_share", "comparison", "optimistic")
    taken_up_by_watch = True

    def train_and_enter(self, site: Site, request: TrainingRequest) -> str:
        """Train the model of each moment, or of the one that is named; the others stay in use."""
        moments = MOMENTS if request.sort is None else (Moment(request.sort),)
        models = train_job_models(
            site, moments, why=request.why, user=request.user, progress=lambda message: request.progress(0.0, message)
        )
        return str(models[0].about["training"])

    def formats(self) -> Mapping[str, int]:
        """Those of outcome models, profiles, needs and waits."""
        return {
            OUTCOME_KIND: OUTCOME_FORMAT,
            PROFILES_KIND: PROFILES_FORMAT,
            NEEDS_KIND: NEEDS_FORMAT,
            WAIT_KIND: WAIT_FORMAT,
        }

    def read(self, site: Site, training: Training) -> FittedModels:
        """The models of all moments that there are, and the profiles."""
        return load_fitted(site, training)

    def role_of(self, model: ModelVersion) -> Role:
        """Profiles, needs and waits come with the forecasts of failures."""
        return Role.BESIDE if model.name in (PROFILES, *OUTLOOK) else Role.MODEL

    def rows_of(self, about: Mapping[str, Any]) -> int:
        """Jobs that had come to the moment."""
        return int(about.get("n_train", 0))

    def in_order(self, training: Training) -> Sequence[ModelVersion]:
        """The profiles, then the moments in the order of a job's life, then needs and waits."""
        names = [PROFILES, *(model_name(moment) for moment in MOMENTS), *OUTLOOK]
        return sorted(training.models, key=lambda model: names.index(model.name) if model.name in names else len(names))

    def summary_of(self, model: ModelVersion) -> str:
        """Jobs, failed ones among them, and the risk from which one is flagged."""
        about = model.about
        if model.name == PROFILES:
            return f"{about['profiles']} profiles of requests" if "profiles" in about else ""
        if model.name in OUTLOOK:
            return f"{about.get('n_train', 0):,} jobs"
        if not {"n_train", "failed_share", "threshold"} <= set(about):
            return ""
        flags = f"flags from a risk of {about['threshold']:.0%} on"
        return f"{about['n_train']:,} jobs, {about['failed_share']:.1%} failed; {flags}"


JOBS: Final = JobFamily()


def _names(moments: Collection[Moment]) -> set[str]:
    return {PROFILES, *OUTLOOK, *(model_name(moment) for moment in moments)}


def _copied(source: Path) -> Any:
    def save(folder: Path) -> None:
        shutil.copytree(source, folder)

    return save

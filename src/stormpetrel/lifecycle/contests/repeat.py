"""Training again from a record: the same data version, window, settings and seed, and whether the same files come out.

Site, name of a training -> repeat_training -> Repeated. Nothing is entered in the registry: what is trained again is compared
file by file with what the training saved, and dropped. Labels and settings of today are used where a record does not keep them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from stormpetrel import __version__
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.learn.saving import saved_format
from stormpetrel.lifecycle.contests.decision import Compute, Stopwatch, one_thread
from stormpetrel.lifecycle.contests.traces import renewed_model
from stormpetrel.lifecycle.event_models import EVENTS, refit_event_models
from stormpetrel.lifecycle.families import family_named
from stormpetrel.lifecycle.job_models import PROFILES, fit_job_models, load_fitted, model_name
from stormpetrel.lifecycle.trace_learning import learning_windows
from stormpetrel.lifecycle.trace_models import FAMILY, TRACES, fit_trace_model
from stormpetrel.lifecycle.workload_models import of_last_days, site_workload
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.times import moment_of
from stormpetrel.store.registry.entries import ENTRY_FILE
from stormpetrel.store.registry.models import ModelVersion, Training
from stormpetrel.store.site import Site
from stormpetrel.store.tables import Table
from stormpetrel.synth.choose import new_generator
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings

Saves = dict[str, Callable[[Path], None]]


@dataclass(frozen=True, slots=True)
class Repeated:
    """What came of a training that was repeated: of each model, which of its files came out the same."""

    training: str
    models: Mapping[str, Mapping[str, bool]]
    skipped: tuple[str, ...]  # models that were copied from an earlier training, not trained
    why: str  # what differs, or that nothing does, in one sentence
    compute: Compute

    @property
    def same(self) -> bool:
        """Whether every file of every model came out the same."""
        return all(same for files in self.models.values() for same in files.values())


def repeat_training(site: Site, name: str, *, progress: Progress = no_progress) -> Repeated:
    """Train again what a training made, on the data that it saw, and compare; ModelError where its record does not say enough."""
    training = site.models.training(name)
    family_named(training.family)
    repeat = _FAMILIES[ModelFamily(training.family)]
    watch = Stopwatch()
    threads = one_thread() if training.family == ModelFamily.TRACES else nullcontext()
    with _table_then(site, training), threads, tempfile.TemporaryDirectory(prefix="stormpetrel-repeat-") as temporary:
        progress(0.1, f"training {name} again")
        saves = repeat(site, training)
        models = {
            entry.name: _compared(site, entry, saves[entry.name], Path(temporary) / entry.name)
            for entry in training.models
            if entry.name in saves
        }
    skipped = tuple(entry.name for entry in training.models if entry.name not in saves)
    return Repeated(name, models, skipped, _why(training, models), watch.read())


def _compared(site: Site, entry: ModelVersion, save: Callable[[Path], None], folder: Path) -> dict[str, bool]:
    save(folder)
    kept = site.models.verified_folder(entry.name, entry.version)
    names = {path.name for path in (*kept.iterdir(), *folder.iterdir()) if not path.name.lstrip(".").startswith(ENTRY_FILE)}
    return {file: _content(kept / file) == _content(folder / file) for file in sorted(names)}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _why(training: Training, models: Mapping[str, Mapping[str, bool]]) -> str:
    other = [f"{name}/{file}" for name, files in models.items() for file, same in files.items() if not same]
    if not other:
        return "every file came out the same"
    code = training.models[0].about.get("code_version")
    reason = f"; it was trained by version {code} of Stormpetrel, this is {__version__}" if code != __version__ else ""
    return f"not the same: {', '.join(other[:5])}{', …' if len(other) > 5 else ''}{reason}"


@contextmanager
def _table_then(site: Site, training: Training) -> Iterator[None]:
    """The table that the family learns from, as it was then; as it is where the record names no version."""
    version = training.models[0].about.get("table_version")
    table = _table_of(site, training.family)
    if not isinstance(version, int) or version == table.version():
        yield
        return
    with table.as_of(version):
        yield


def _table_of(site: Site, family: str) -> Table:
    if family == ModelFamily.TRACES:
        return site.cpu_windows.table
    return site.event_counts.table if family == ModelFamily.EVENTS else site.jobs.table


def _about(training: Training, *needed: str) -> Mapping[str, Any]:
    """What the registry keeps of the first model that was trained, not copied."""
    about = next((entry.about for entry in training.models if "copy_of" not in entry.about), training.models[0].about)
    missing = [name for name in needed if name not in about]
    if missing:
        raise ModelError(
            f"The record of {training.name} does not say enough to repeat it ({', '.join(missing)} not noted).",
            hint="Trainings of this version keep everything: train anew.",
        )
    return about


def _jobs(site: Site, training: Training) -> Saves:

    about = _about(training, "settings", "trained_until")
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in about["settings"].items()
    }
    copied = {entry.name for entry in training.models if "copy_of" in entry.about}
    moments = [moment for moment in MOMENTS if training.model(model_name(moment)) and model_name(moment) not in copied]
    profiles = load_fitted(site, training).profiles if copied else None  # they were there before
    until = moment_of(str(about["trained_until"]))
    fitted = fit_job_models(site, moments, until=until, settings=TrainingSettings(**settings), profiles=profiles)
    saves: Saves = {model_name(moment): model.save for moment, model in fitted.models.items()}
    return saves if copied else {PROFILES: fitted.profiles.save, **saves}


def _traces(site: Site, training: Training) -> Saves:

    entry, about = training.models[0], _about(training, "from", "table_version")
    days, until = float(about.get("learn_days", 0.0)), about.get("learn_until")
    end = None if until is None else datetime.fromisoformat(str(until))
    since = end - timedelta(days=days) if end is not None and days else None
    seen = learning_windows(site, since=since, until=end)
    if "network_of" in about:
        return {entry.name: renewed_model(site, TRACES.read(site, _with_version(site, entry, about["network_of"])), seen).save}
    saved = saved_format(site.models.verified_folder(entry.name, entry.version))
    settings = AutoencoderSettings.of_record(about.get("settings") or (saved.settings if saved else {}))
    fitted = fit_trace_model(site, seen, Architecture(entry.name.removeprefix(f"{FAMILY}-")), settings=settings, device="cpu")
    return {entry.name: fitted.save}


def _with_version(site: Site, entry: ModelVersion, version: int) -> Training:
    for training in site.models.trainings(entry.family):
        if any((model.name, model.version) == (entry.name, version) for model in training.models):
            return training
    raise ModelError(f"Version {version} of {entry.name}, whose network this model has, is no longer kept.")


def _events(site: Site, training: Training) -> Saves:

    about = _about(training, "until", "bucket_s", "seed")
    return {name: model.save for name, model in refit_event_models(site, EVENTS.sort_of(training), about).items()}


def _workloads(site: Site, training: Training) -> Saves:

    about = _about(training, "generator", "seed", "trained_until", "settings")
    workload = of_last_days(site_workload(site, until=moment_of(str(about["trained_until"]))), float(about.get("learn_days", 0)))
    generator = new_generator(str(about["generator"]), seed=int(about["seed"]), **about["settings"])
    generator.fit(workload)
    return {training.models[0].name: generator.save}


_FAMILIES: Final[dict[ModelFamily, Callable[[Site, Training], Saves]]] = {
    ModelFamily.JOBS: _jobs,
    ModelFamily.TRACES: _traces,
    ModelFamily.EVENTS: _events,
    ModelFamily.SYNTH: _workloads,
}

"""The generator of a site's workload: fitted on its jobs, judged, entered in the registry, loaded.

Site -> fit_site_generator -> registry (family `synth`) -> load_site_generator -> GeneratorInUse -> batches. How good it is, is
measured on the site's own weeks at the same time and kept with it, so that whoever opens the page sees it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from stormpetrel import __version__
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.learn.family import BY_HAND, TrainingRecord, Unit
from stormpetrel.lifecycle.contests.decision import Stopwatch
from stormpetrel.lifecycle.family import SiteFamily, TrainingRequest, incomplete_entry, operator
from stormpetrel.records.model_families import ModelFamily, how_to_train
from stormpetrel.records.states import FINISHED
from stormpetrel.store.registry.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site
from stormpetrel.synth.choose import DEFAULT, GENERATORS, RETIRED, load_generator, new_generator
from stormpetrel.synth.contract import WorkloadGenerator
from stormpetrel.synth.workload import ARRAY, SUBMIT, WAIT, Workload, workload_of

FAMILY: Final = ModelFamily.SYNTH
MOST_JOBS: Final = 1_000_000  # the newest: older ones say little about how people work now, and must fit in memory
MOST_SCORED: Final = 60_000  # the newest of these: scoring takes longer than fitting
_FITTED, _SCORED = 0.3, 0.8  # how much is done by then; the figures take longest, and report nothing meanwhile
# What a workload is made of. `extra` stays out: what a source adds there may be anything, and would be passed on word by word.
_NEEDED: Final = (
    "submit_time", "user", "group", "account", "partition", "qos", "cpus", "req_cpus", "nodes", "req_nodes", "gpus", "req_gpus",
    "req_mem_bytes", "mem_bytes", "time_limit_s", "elapsed_s", "state", "array_task", "job_id", "start_time",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class GeneratorInUse:
    """The generator of the site, and what the registry knows of it."""

    generator: WorkloadGenerator
    training: str  # such as synth-3
    name: str  # such as sessions
    version: int
    about: Mapping[str, Any]


def site_workload(site: Site, *, until: datetime | None = None, most: int = MOST_JOBS) -> Workload:
    """The finished jobs of a site as a workload, the newest `most` of them; a job that was requeued counts once."""
    finished = pl.col("state").is_in([str(state) for state in FINISHED]) & (pl.col("restart") == 0)
    rows = site.jobs.read_jobs(until=until or site.now()).filter(finished)
    jobs = rows.select(_NEEDED).sort("submit_time").tail(most).collect()
    if not jobs.height:
        raise NotEnoughJobsError(
            "The site has no job that has ended: there is nothing to learn from.", hint="Take jobs in: stormpetrel ingest jobs"
        )
    return workload_of(jobs)


def fit_site_generator(
    site: Site,
    name: str = DEFAULT,
    *,
    seed: int = 0,
    learn_days: float = 0.0,
    why: str = BY_HAND,
    user: str | None = None,
    action: str = "synth fit",
    about: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    **settings: Any,
) -> Training:
    """Fit a generator on the site's jobs, measure it, save it and make it current; one that is killed changes nothing.

    StoreBusyError at once where another one is being fitted on this site. `learn_days` leaves earlier jobs out (0: none),
    `about` is kept with the figures, `settings` are those of the generator's class.
    """
    with site.state.sole("generator"):
        progress(0.0, "reading jobs")
        watch, version, until = Stopwatch(), site.jobs.table.version(), site.now()
        workload = of_last_days(site_workload(site, until=until), learn_days)
        generator = new_generator(name, seed=seed, **settings)
        generator.fit(workload, progress=lambda share, message: progress(_FITTED * share, message))
        kept = {
            **(about or {}),
            "generator": name,
            "settings": dict(settings),
            "learn_days": learn_days,
            "n_train": workload.height,
            "columns": [column for column in workload.jobs.columns if column not in (SUBMIT, ARRAY, WAIT)],
            "groups": generator.groups(),
            "notes": list(workload.notes),
            "since": workload.start().isoformat(),
            "trained_until": until.astimezone(UTC).isoformat(),
            "table_version": version,
            "seed": seed,
            "why": why,
            "code_version": __version__,
            **_scored(workload, name, seed, settings, progress),
        }
        kept["compute"] = watch.read().as_dict()
        progress(1.0, "saving")
        models = {f"{FAMILY}-{name}": NewModel(generator.save, kept)}
        return site.models.add_together(models, promoted_by=user or operator(), action=action)


def of_last_days(workload: Workload, days: float) -> Workload:
    """The jobs of a workload that were submitted in the days before its last one; all where that is 0."""
    if not days:
        return workload
    submit_s = workload.submit_s()
    return workload.between(int((submit_s < submit_s.max() - 86_400.0 * days).sum()))


def _scored(workload: Workload, name: str, seed: int, settings: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """The scorecard of the same generator, fitted on odd weeks and scored on even ones; or why there is none."""
    from stormpetrel.synth.score.scorecard import evaluate_odd_even

    newest = workload.between(max(0, workload.height - MOST_SCORED))

    def make(seed: int) -> WorkloadGenerator:
        return new_generator(name, seed=seed, **settings)

    def report(share: float, message: str) -> None:
        progress(_FITTED + (_SCORED - _FITTED) * share, f"measuring how good it is ({message})")

    try:
        measured = evaluate_odd_even(newest, make, seeds=(seed,), progress=report)
    except NotEnoughJobsError as error:
        return {"scorecard": None, "not_scored": error.what}
    return {"scorecard": measured.as_dict(), "scored_jobs": newest.height}


def load_site_generator(site: Site) -> GeneratorInUse:
    """The generator in use; ModelError says how to make one where there is none."""
    return SYNTH.load(site)


def loaded_generator(site: Site, training: Training) -> GeneratorInUse:
    """The generator of a training, read and checked."""
    entry = training.models[0]
    name = entry.name.removeprefix(f"{FAMILY}-")
    if name not in GENERATORS and name not in RETIRED:
        raise incomplete_entry(training)
    generator = load_generator(site.models.verified_folder(entry.name, entry.version))
    return GeneratorInUse(generator, training.name, name, entry.version, entry.about)


class SynthFamily(SiteFamily[GeneratorInUse]):
    """Generators of workloads: one of them, with its scorecard."""

    name = ModelFamily.SYNTH
    unit = Unit.JOBS
    metrics = ("scorecard", "scored_jobs", "not_scored")

    def train_and_enter(self, site: Site, request: TrainingRequest) -> str:
        """Fit the generator that is named, or the default one, and measure it."""
        sort = request.sort or DEFAULT
        return fit_site_generator(site, sort, why=request.why, user=request.user, progress=request.progress).name

    def sort_of(self, training: Training) -> str:
        """The generator's name; the default in place of one that this version no longer has."""
        sort = super().sort_of(training)
        return DEFAULT if sort in RETIRED else sort

    def train_again(self, site: Site, training: Training, *, why: str, progress: Progress = no_progress) -> TrainingRecord:
        """Fit the same generator again; a private one only by hand."""
        if self.sort_of(training) == "private":
            raise ModelError(
                "A private generator is not fitted again by itself: each fit tells a little more about the same people.",
                hint="Decide yourself: stormpetrel synth fit --model private",
            )
        return super().train_again(site, training, why=why, progress=progress)

    def formats(self) -> Mapping[str, int]:
        """Of each generator by name."""
        from stormpetrel.synth.private.generator import FORMAT_VERSION as PRIVATE_FORMAT
        from stormpetrel.synth.rows.row_generator import FORMAT_VERSION as ROWS_FORMAT
        from stormpetrel.synth.sessions.saving import FORMAT_VERSION as SESSIONS_FORMAT

        own = {"private": PRIVATE_FORMAT, "sessions": SESSIONS_FORMAT}
        return {f"{FAMILY}-{name}": own.get(name, ROWS_FORMAT) for name in GENERATORS}

    def read(self, site: Site, training: Training) -> GeneratorInUse:
        """The generator."""
        return loaded_generator(site, training)

    def without_model(self, site: Site) -> GeneratorInUse:
        """There is none to fall back on."""
        raise ModelError("The site has no generator of its workload yet.", hint=how_to_train(FAMILY))

    def rows_of(self, about: Mapping[str, Any]) -> int:
        """Jobs of the workload."""
        return int(about.get("n_train", 0))

    def summary_of(self, model: ModelVersion) -> str:
        """How many jobs it learnt from."""
        return f"{self.rows_of(model.about):,} jobs; makes new ones"


SYNTH: Final = SynthFamily()

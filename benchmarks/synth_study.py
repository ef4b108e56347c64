"""The study of synthetic workloads: every figure that is claimed of them, log by log and generator by generator.

folder of public logs -> study_parts -> Part … -> run_part -> plain dictionaries. Figures over seeds are `{"mean", "std", "n"}`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.engine import Engine, Progress, Work, cpu_seconds, no_progress
from stormpetrel.errors import UsageError
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.rehearse.workload_usefulness import (
    Make,
    RealLog,
    Scheduling,
    cut_log,
    over_seeds,
    schedule,
    synthetic_jobs,
    train_on_synthetic,
    usefulness,
)
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from stormpetrel.synth.choose import DEFAULT, GENERATORS, GeneratorMaker
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.score.scorecard import Scorecard, evaluate_odd_even, floor_scorecard, odd_even_split, scorecard
from stormpetrel.synth.workload import SUBMIT, Workload, tidy, workload_of

SEEDS: Final = (0, 1, 2, 3, 4)
ROWS: Final = "rows"  # the trivial baseline


@dataclass(frozen=True, slots=True)
class PublicLog:
    """A public log: its file, what is left out of it, and which of its jobs count as failed."""

    file: str
    since: datetime | None = None
    skip: int = 0
    is_table: bool = False  # intervals and attributes, no job records
    failure_states: tuple[str, ...] = ("FAILED", "TIMEOUT", "CANCELLED")
    dropped_states: tuple[str, ...] = ()

    @property
    def settings(self) -> TrainingSettings:
        """How a failure model is trained on it."""
        return TrainingSettings(failure_states=self.failure_states, dropped_states=self.dropped_states)


_YEAR_2023: Final = datetime(2023, 1, 1, tzinfo=UTC)  # a few stray jobs of the Theta machines are months older
LOGS: Final = {
    "theta": PublicLog("jobs/theta.csv.gz", since=_YEAR_2023),
    "kth": PublicLog("jobs/KTH-SP2-1996-2.1-cln.swf.gz", failure_states=("FAILED",)),
    "hpc2n": PublicLog("jobs/HPC2N-2002-2.1-cln.swf.gz", failure_states=("FAILED",)),
    "thetagpu": PublicLog("jobs/thetagpu.csv.gz", since=_YEAR_2023),
    "supercloud": PublicLog("jobs/mit_supercloud_sample.csv.gz"),
    "curie": PublicLog("jobs/CEA-Curie-2011-2.1-cln.swf.gz", failure_states=("FAILED",), dropped_states=("CANCELLED",)),
    "mira": PublicLog("jobs/mira.csv.gz"),
    # The file that the published generators learnt from. Its first 50 rows span months: a ramp-up.
    "theta-intervals": PublicLog("synthetic/theta_real.csv.gz", skip=50, is_table=True),
}
# What the authors of that file made of it, by the generator that they used.
PUBLISHED: Final = {
    "published-copulagan": PublicLog("synthetic/theta_cg.csv.gz", is_table=True),
    "published-ctgan": PublicLog("synthetic/theta_ctgan.csv.gz", is_table=True),
    "published-tvae": PublicLog("synthetic/theta_tvae.csv.gz", is_table=True),
    "published-gaussian-copula": PublicLog("synthetic/theta_gc.csv.gz", is_table=True),
}


class Kind(StrEnum):
    """What is asked of a generator."""

    PUBLISHED = "published"  # the log it learnt from, beside the files that others published
    ODD_EVEN = "odd-even"  # learnt from the odd weeks, judged on the even ones
    TRAINING = "training"  # a failure model trained on synthetic jobs, tested on real ones
    SCHEDULE = "schedule"  # mean wait and utilisation of a scheduler


LOGS_OF: Final = {
    Kind.PUBLISHED: ("theta-intervals",),
    Kind.ODD_EVEN: ("theta", "kth", "hpc2n", "thetagpu", "supercloud"),
    Kind.TRAINING: ("mira", "curie", "theta"),
    Kind.SCHEDULE: ("mira", "curie", "kth", "hpc2n", "theta"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One generator on one log, asked one thing."""

    kind: Kind
    log: str
    generator: str

    def __str__(self) -> str:
        return f"{self.kind}, {self.log}, {self.generator}"


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Where the logs are, the seeds and how many at a time, and settings of generators by name (`{"ctgan": {"epochs": 30}}`)."""

    folder: Path
    seeds: tuple[int, ...] = SEEDS
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workers: int = 1

    def make(self, name: str) -> Make:
        """Untrained generators of a name, by seed."""
        return GeneratorMaker(name, self.settings.get(name, {}))

    def over_seeds(self, work: Work[int, dict[str, Any]], part: Part, progress: Progress) -> list[dict[str, Any]]:
        """What each seed found."""
        named = Engine(self.workers).map(work, self.seeds, name=lambda seed: f"{part.generator}, seed {seed}", progress=progress)
        return list(named)


def study_parts(
    kinds: Sequence[str] = tuple(Kind), generators: Sequence[str] = (DEFAULT, ROWS), logs: Sequence[str] = ()
) -> list[Part]:
    """The parts of a study, in order; all logs of each kind where none is named. What cannot work is said here."""
    _refuse_unknown("kind", kinds, tuple(Kind))
    _refuse_unknown("log", logs, tuple(LOGS))
    _refuse_unknown("generator", generators, (*GENERATORS, *PUBLISHED))
    parts = []
    for kind in map(Kind, kinds):
        files = tuple(PUBLISHED) if kind is Kind.PUBLISHED else ()
        names = dict.fromkeys((*files, *(name for name in generators if name not in PUBLISHED)))
        parts += [Part(kind, log, name) for log in LOGS_OF[kind] if not logs or log in logs for name in names]
    return parts


def run_part(part: Part, plan: StudyPlan, *, progress: Progress = no_progress) -> dict[str, Any]:
    """What one part found, with the seconds it took."""
    if not plan.seeds:
        raise UsageError("No seed was named.", hint="Ask for one or more: --seeds 0-4")
    began, cpu_began = time.perf_counter(), cpu_seconds()
    found = _RUN[part.kind](part, plan, progress)
    seconds = {"wall": round(time.perf_counter() - began, 1), "cpu": round(cpu_seconds() - cpu_began, 1)}
    return {**found, "seeds": list(plan.seeds), "seconds": seconds}


def read_jobs(folder: Path, log: PublicLog) -> pl.DataFrame:
    """The job frame of a public log, without what is left out of it."""
    jobs = read_log([str(folder / log.file)], None, ReadOptions()).jobs
    return jobs.filter(pl.col(SUBMIT) >= log.since) if log.since else jobs


def read_workload(folder: Path, log: PublicLog) -> Workload:
    """The workload of a public log, without what is left out of it."""
    if not log.is_table:
        return workload_of(read_jobs(folder, log))
    from stormpetrel.sources.tables.workload_table import read_workload_table

    table = read_workload_table(folder / log.file)
    return tidy(table.jobs, has_clock=table.has_clock, notes=table.notes).between(log.skip)


def _run_published(part: Part, plan: StudyPlan, progress: Progress) -> dict[str, Any]:
    """Every figure of a workload against the log that its generator learnt from; the jobs to be forecast are part of that log."""
    log = LOGS[part.log]
    real = read_workload(plan.folder, log)
    cut, floor = cut_log(synthetic_jobs(real), log.settings), floor_scorecard(*odd_even_split(real))
    if part.generator in PUBLISHED:
        made = read_workload(plan.folder, PUBLISHED[part.generator])
        return over_seeds([_published_figures(real, made, cut, floor, replace(log.settings, seed=plan.seeds[0]))])
    work = _Published(real, cut, floor, plan.make(part.generator), log.settings)
    return over_seeds(plan.over_seeds(work, part, progress))


@dataclass(frozen=True, slots=True)
class _Published:
    """The figures of as many jobs as the log has, made by the generator of one seed."""

    real: Workload
    cut: RealLog
    floor: Scorecard
    make: Make
    settings: TrainingSettings

    def __call__(self, seed: int, progress: Progress) -> dict[str, Any]:
        generator = self.make(seed).fit(self.real, progress=progress)
        made = sample(generator, Wanted(jobs=self.real.height, seed=seed))
        return _published_figures(self.real, made, self.cut, self.floor, replace(self.settings, seed=seed))


def _published_figures(
    real: Workload, made: Workload, cut: RealLog, floor: Scorecard, settings: TrainingSettings
) -> dict[str, Any]:
    card = scorecard(real, made, floor=floor, seed=settings.seed)
    training = train_on_synthetic(cut, made, settings)
    return replace(card, tstr=training, schedule=schedule(real, made)).as_dict()


def _run_odd_even(part: Part, plan: StudyPlan, progress: Progress) -> dict[str, Any]:
    real = read_workload(plan.folder, LOGS[part.log])
    engine = Engine(plan.workers)
    return evaluate_odd_even(real, plan.make(part.generator), plan.seeds, progress, engine=engine).as_dict()


def _run_training(part: Part, plan: StudyPlan, progress: Progress) -> dict[str, Any]:
    log = LOGS[part.log]
    jobs = read_jobs(plan.folder, log)
    make, engine = plan.make(part.generator), Engine(plan.workers)
    return usefulness(jobs, make, log.settings, seeds=plan.seeds, progress=progress, engine=engine)


def _run_schedule(part: Part, plan: StudyPlan, progress: Progress) -> dict[str, Any]:
    """The whole log against as many synthetic jobs; how far apart its own odd and even weeks are is the floor."""
    real = read_workload(plan.folder, LOGS[part.log])
    found = over_seeds(plan.over_seeds(Scheduling(real, real, plan.make(part.generator)), part, progress))
    odd, even = odd_even_split(real)
    return {**found, "floor": schedule(even, odd)}


def _refuse_unknown(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"Unknown {what} '{name}'.", hint=f"Known: {', '.join(known)}.")


_RUN: Final[dict[Kind, Callable[[Part, StudyPlan, Progress], dict[str, Any]]]] = {
    Kind.PUBLISHED: _run_published,
    Kind.ODD_EVEN: _run_odd_even,
    Kind.TRAINING: _run_training,
    Kind.SCHEDULE: _run_schedule,
}

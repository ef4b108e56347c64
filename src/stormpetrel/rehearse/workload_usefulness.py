"""Usefulness: whether a synthetic workload can stand in for the real one where somebody works with it.

A failure model (real job frame + generator -> train on synthetic, test on real -> areas and those of the same model trained on
the real log), and a scheduler (two workloads -> one machine -> mean wait and utilisation under each).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.exam.baselines import last_outcome
from stormpetrel.jobs.exam.evaluation import FEWEST_TEST_JOBS, PROFILE_SHARE
from stormpetrel.jobs.model import FEWEST_OF_A_CLASS
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.learn.splits import TIME_CUT, Split, splits_at
from stormpetrel.records.arrays import Floats
from stormpetrel.records.jobs import conform
from stormpetrel.simulate.replay import machine_of, mean_wait_s, replay, utilisation
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.synth.workload import ARRAY, KNOWN, SIZES, STATE, SUBMIT, WAIT, WHERE, WHO, Workload, workload_of

if TYPE_CHECKING:
    from stormpetrel.simulate.replay import Machine

Make = Callable[[int], WorkloadGenerator]
_MOMENTS: Final = (Moment.SUBMIT,)
_ORDER: Final = ("submit_time", "job_id", "array_task")  # that of `label_jobs`
_CLUSTER: Final = "synthetic"
_KEPT: Final = frozenset(
    "cluster job_id array_task submit_time restart start_time end_time state time_limit_s elapsed_s extra".split()
) | {*WHO, *WHERE}
_ROW: Final = "row"
_APPLICATION: Final = "executable"  # the one own column of a log that the features of a job look at


@dataclass(frozen=True, slots=True, eq=False)
class RealLog:
    """A real log, cut at 80 % of its submissions: what a generator and a model may see, and what they are judged on."""

    jobs: pl.DataFrame  # job frame with what a workload tells of each job, in the order of submission
    labelled: LabelledJobs
    split: Split  # `train` had ended by the cut, `test` was submitted after it

    def seen(self) -> Workload:
        """The workload a generator may learn from: every job that had ended by the cut, whatever became of it."""
        cut = datetime.fromtimestamp(self.split.cut, UTC)
        return workload_of(self.jobs.filter((pl.col(SUBMIT) < cut) & (pl.col("end_time") < cut)))


def usefulness(
    jobs: pl.DataFrame,
    make: Make,
    settings: TrainingSettings,
    *,
    seeds: Sequence[int] = (0,),
    machine: Machine | None = None,
    progress: Progress = no_progress,
    engine: Engine = ONE_PROCESS,
) -> dict[str, Any]:
    """Train a failure model on synthetic jobs, test it on the last fifth of the real ones, and one trained on the real ones.

    For each seed a generator is fitted on what had ended by the cut and makes as many jobs as it saw; a scheduler gives them
    their waits. Figures are numbers where there is one seed, else `{"mean", "std", "n"}`.
    """
    if not seeds:
        raise UsageError("No seed was named.", hint="Ask for one or more: --seeds 3")

    log = cut_log(jobs, settings)
    seen = log.seen()
    machine = machine or machine_of(seen.jobs)
    work = _Training(log, seen, make, settings, machine)
    return over_seeds(list(engine.map(work, seeds, name=lambda seed: f"seed {seed}", progress=progress)))


@dataclass(frozen=True, slots=True)
class _Training:
    """A failure model of the jobs that the generator of one seed makes, compared with the real one."""

    log: RealLog
    seen: Workload
    make: Make
    settings: TrainingSettings
    machine: Machine

    def __call__(self, seed: int, progress: Progress) -> dict[str, Any]:
        progress(0.0, f"fitting on {self.seen.height:,} jobs")
        generator = self.make(seed).fit(self.seen)
        progress(0.5, "a failure model of synthetic jobs")
        synthetic = sample(generator, Wanted(jobs=self.seen.height, seed=seed))
        return train_on_synthetic(self.log, synthetic, replace(self.settings, seed=seed), machine=self.machine)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a scheduler makes of a real workload, and of as many jobs of the generator of one seed that has learnt `seen`."""

    real: Workload
    seen: Workload
    make: Make

    def __call__(self, seed: int, progress: Progress) -> dict[str, Any]:
        """Waits and utilisation under both, for one seed."""
        generator = self.make(seed).fit(self.seen, progress=progress)
        return schedule(self.real, sample(generator, Wanted(jobs=self.real.height, seed=seed)))


def train_on_synthetic(
    log: RealLog, synthetic: Workload, settings: TrainingSettings, *, machine: Machine | None = None
) -> dict[str, Any]:
    """The areas of two failure models on the same real jobs: one learnt the real log, one a synthetic workload."""
    test = log.split.test
    truth = log.labelled.failed[test]
    features = log.labelled.features[Moment.SUBMIT]
    of_real = fit_risk_at(log.labelled, Moment.SUBMIT, log.split.train, settings).risk(features.rows(test))
    labelled = label_jobs(synthetic_jobs(synthetic, machine), settings, _MOMENTS, profiles_from=PROFILE_SHARE)
    rows = labelled.reached(Moment.SUBMIT)
    if not _has_both(labelled.failed[rows]):
        bad = int(labelled.failed[rows].sum())
        raise NotEnoughJobsError(
            f"{int(rows.sum()):,} synthetic jobs have ended, {bad:,} of them failed: too few for a failure model.",
            hint="Make more of them, from a log that tells how its jobs ended and how long they ran.",
        )
    # The kinds of requests are part of what was learnt: the real jobs are sorted into those of the synthetic log.
    judged = label_jobs(log.jobs, settings, _MOMENTS, profiles=labelled.profiles).features[Moment.SUBMIT]
    of_synthetic = fit_risk_at(labelled, Moment.SUBMIT, rows, settings).risk(judged.rows(test))
    simple = last_outcome(features.rows(log.split.train), log.labelled.failed[log.split.train], features.rows(test))
    areas = {"real": _areas(truth, of_real), "synthetic": _areas(truth, of_synthetic)}
    return {
        **{f"{area}_{which}": figures[area] for which, figures in areas.items() for area in figures},
        "ratio": _ratio(areas["synthetic"]["pr_auc"], areas["real"]["pr_auc"]),
        "baseline": {"last_outcome": _areas(truth, simple)},
        "failed_share": {
            "real": float(log.labelled.failed[log.split.train].mean()),
            "synthetic": float(labelled.failed[rows].mean()),
            "test": float(truth.mean()),
        },
        "n_train": {"real": int(log.split.train.sum()), "synthetic": int(rows.sum())},
        "n_test": int(test.sum()),
        "cut": datetime.fromtimestamp(log.split.cut, UTC).isoformat(),
    }


def cut_log(jobs: pl.DataFrame, settings: TrainingSettings) -> RealLog:
    """A job frame with what a workload tells of each job, labelled, and cut at 80 % of the submissions."""
    plain = as_in_workload(jobs).sort(_ORDER, maintain_order=True)
    labelled = label_jobs(plain, settings, _MOMENTS, profiles_from=PROFILE_SHARE)
    (split,) = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.reached(Moment.SUBMIT)) or (None,)
    few = split is None or split.test.sum() < FEWEST_TEST_JOBS or not labelled.failed[split.test].any()
    if split is None or few or not _has_both(labelled.failed[split.train]):
        raise NotEnoughJobsError(
            "This log tells of too few jobs that failed after others had ended: a failure model cannot be judged on it.",
            hint="Use a longer log, or say with --failed and --drop which states count.",
        )
    return RealLog(plain, labelled, split)


def as_in_workload(jobs: pl.DataFrame) -> pl.DataFrame:
    """A job frame without what no workload has (names, folders, what was used): both models are to know the same of a job."""
    return conform(
        jobs.select(
            *(name for name in jobs.columns if name in _KEPT),
            *_both("cpus", pl.coalesce("cpus", "req_cpus")),
            *_both("nodes", pl.coalesce("nodes", "req_nodes")),
            *_both("gpus", pl.coalesce("gpus", "req_gpus")),
            *_both("mem_bytes", pl.coalesce("req_mem_bytes", "mem_bytes")),
        )
    )


def synthetic_jobs(workload: Workload, machine: Machine | None = None) -> pl.DataFrame:
    """The job frame of a workload; waits that it does not tell are given by a scheduler on the machine (one that fits it)."""
    jobs = workload.jobs if WAIT in workload.jobs.columns else with_waits(workload, machine)
    known = jobs.select(pl.col(name) if name in jobs.columns else pl.lit(None, KNOWN[name]).alias(name) for name in KNOWN)
    in_array, row = pl.col(ARRAY).is_not_null(), pl.col(_ROW)
    start = pl.col(SUBMIT) + _duration(WAIT)
    frame = known.with_row_index(_ROW).select(
        SUBMIT,
        *WHO,
        *WHERE,
        STATE,
        "time_limit_s",
        pl.lit(_CLUSTER).alias("cluster"),
        pl.lit(0, dtype=pl.Int32).alias("restart"),
        pl.when(in_array).then(row.min().over(ARRAY)).otherwise(row).alias("job_id"),
        pl.when(in_array).then(pl.int_range(pl.len()).over(ARRAY)).alias("array_task"),
        *(expression for name in SIZES for expression in _both("cpus" if name == "cores" else name, pl.col(name))),
        pl.col("runtime_s").alias("elapsed_s"),
        start.alias("start_time"),
        # A job without a wait never started: it is over when it is submitted.
        (pl.coalesce(start, SUBMIT) + _duration("runtime_s")).alias("end_time"),
    )
    if _APPLICATION in jobs.columns:
        application = pl.struct(key=pl.lit(_APPLICATION), value=jobs[_APPLICATION].cast(pl.String))
        frame = frame.with_columns(extra=pl.concat_list(application).cast(pl.Map(pl.String, pl.String)))
    return conform(frame)


def with_waits(workload: Workload, machine: Machine | None = None) -> pl.DataFrame:
    """The jobs of a workload with the waits that a scheduler gives them on a machine, the smallest that suits it by default."""
    return replay(workload.jobs, machine or machine_of(workload.jobs))


def schedule(real: Workload, synthetic: Workload, machine: Machine | None = None) -> dict[str, Any]:
    """Mean wait and utilisation of the same machine and scheduler, fed with the submissions and run times of each workload."""
    machine = machine or machine_of(real.jobs)
    figures = {}
    for name, workload in (("real", real), ("synthetic", synthetic)):
        replayed = replay(workload.jobs, machine)
        figures[name] = {"mean_wait_s": mean_wait_s(replayed), "utilisation": utilisation(replayed, machine)}
    return {
        "machine": {"cores": machine.cores, "gpus": machine.gpus},
        **figures,
        "wait_ratio": _ratio(figures["synthetic"]["mean_wait_s"], figures["real"]["mean_wait_s"]),
        "utilisation_ratio": _ratio(figures["synthetic"]["utilisation"], figures["real"]["utilisation"]),
    }


def over_seeds(by_seed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several results of the same shape as one: each number that differs becomes `{"mean", "std", "n"}`."""
    if len(by_seed) == 1:
        return dict(by_seed[0])
    names = dict.fromkeys(name for figures in by_seed for name in figures)
    return {name: _together([figures.get(name) for figures in by_seed]) for name in names}


def _together(values: Sequence[Any]) -> Any:
    there = [value for value in values if value is not None]
    if there and isinstance(there[0], Mapping):
        return over_seeds(there)
    if all(value == values[0] for value in values) or not all(isinstance(value, int | float) for value in there):
        return there[0] if there else None
    return {"mean": float(np.mean(there)), "std": float(np.std(there)), "n": len(there)}


def _both(name: str, value: pl.Expr) -> Iterable[pl.Expr]:
    """The same amount as asked for and as given."""
    return value.alias(f"req_{name}"), value.alias(name)


def _duration(seconds: str) -> pl.Expr:
    return pl.duration(microseconds=pl.col(seconds) * 1e6)


def _has_both(failed: NDArray[np.bool_]) -> bool:
    return min(int(failed.sum()), int((~failed).sum())) >= FEWEST_OF_A_CLASS


def _areas(truth: NDArray[np.bool_], probability: Floats) -> dict[str, float | None]:
    return {"pr_auc": pr_auc(truth, probability), "roc_auc": roc_auc(truth, probability)}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None

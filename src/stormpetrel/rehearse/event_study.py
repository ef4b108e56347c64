"""The study of the alarm of the grid: every data set × every seed × every model, two at a time, in processes of one thread.

StudyPlan -> run_study -> Run … -> events/evaluation_summary.py. Needs what the models need: numpy, scipy, scikit-learn, XGBoost,
torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.events.contract import Progress, no_progress
from stormpetrel.events.evaluation import PER_WEEK, Dataset, contestants, judge_contestants
from stormpetrel.events.evaluation_summary import Run
from stormpetrel.records.event_series import EventSeries
from stormpetrel.rehearse.event_datasets import (
    SIMULATED,
    SIMULATED_HOURS,
    injected_dataset,
    labelled_dataset,
    outage_functions,
    simulated_dataset,
)

SEEDS: Final = 10
WORKERS: Final = 2
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make a data set from a seed; a simulated one has no series."""

    name: str = SIMULATED
    series: EventSeries | None = None
    has_labels: bool = False  # outages that somebody labelled, in place of injected ones
    hours: int = SIMULATED_HOURS  # of a simulated one
    plug_ins: tuple[str, ...] = ()  # outages of others, MODULE:FUNCTION

    def dataset(self, seed: int) -> Dataset:
        """The data set of one seed."""
        if self.series is None:
            return simulated_dataset(seed, hours=self.hours, plug_ins=self.plug_ins)
        if self.has_labels:
            return labelled_dataset(self.name, self.series, seed)
        return injected_dataset(self.name, self.series, seed, plug_ins=self.plug_ins)


@dataclass(frozen=True, slots=True, eq=False)
class StudyPlan:
    """What to judge, on what, and how often."""

    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    models: tuple[str, ...] = ()  # all of them if none is named
    per_week: float = PER_WEEK
    workers: int = WORKERS


def run_study(plan: StudyPlan, *, progress: Progress = no_progress) -> Iterator[list[Run]]:
    """The runs of one data set and seed after the other, as they are done.

    What cannot work (an unknown model, a plug-in that is not there, a series that is too short) is said before the work begins.
    """
    contestants(plan.models)
    if not plan.seeds:
        raise UsageError("No seed was named.", hint="Ask for one or more: --seeds 3")
    for recipe in plan.recipes:
        outage_functions(recipe.plug_ins)
    tasks = [(recipe, seed) for seed in plan.seeds for recipe in plan.recipes]
    if plan.workers <= 1:
        for place, (recipe, seed) in enumerate(tasks):
            progress(place / len(tasks), f"{recipe.name}, seed {seed}")
            yield judge_one(recipe, seed, plan.models, plan.per_week)
        return
    yield from _in_processes(plan, tasks, progress)


def judge_one(recipe: Recipe, seed: int, models: Sequence[str], per_week: float) -> list[Run]:
    """All models on one data set with one seed."""
    found = judge_contestants(recipe.dataset(seed), contestants(models), per_week=per_week)
    return [Run.of(recipe.name, seed, name, judged) for name, judged in found.items()]


def _in_processes(plan: StudyPlan, tasks: Sequence[tuple[Recipe, int]], progress: Progress) -> Iterator[list[Run]]:
    with ProcessPoolExecutor(plan.workers, mp_context=get_context("spawn")) as pool:
        with _one_thread_each():
            waiting = {pool.submit(judge_one, *task, plan.models, plan.per_week): task for task in tasks}
        progress(0.0, f"{len(tasks)} data sets")
        try:
            for done, one in enumerate(as_completed(waiting), 1):
                runs = one.result()
                recipe, seed = waiting[one]
                progress(done / len(tasks), f"{recipe.name}, seed {seed}")
                yield runs
        except BrokenProcessPool:
            raise ModelError(
                "A process of the evaluation died, most likely for want of memory.", hint="Use fewer hours."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started here use one thread: several of them share the cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

"""The study of the alarm of the grid: every data set × every seed × every model, through the engine.

StudyPlan -> run_study -> Run … -> events/evaluation_summary.py. Needs what the models need: numpy, scipy, scikit-learn, XGBoost,
torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stormpetrel.engine import Engine, Progress, no_progress
from stormpetrel.errors import UsageError
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
    """The runs of one data set and seed after the other, in the order of the plan.

    What cannot work (an unknown model, a plug-in that is not there, a series that is too short) is said before the work begins.
    """
    contestants(plan.models)
    if not plan.seeds:
        raise UsageError("No seed was named.", hint="Ask for one or more: --seeds 3")
    for recipe in plan.recipes:
        outage_functions(recipe.plug_ins)
    tasks = [(recipe, seed) for seed in plan.seeds for recipe in plan.recipes]
    judge = _Judge(plan.models, plan.per_week)
    yield from Engine(plan.workers).map(judge, tasks, name=lambda task: f"{task[0].name}, seed {task[1]}", progress=progress)


@dataclass(frozen=True, slots=True)
class _Judge:
    """All models on one data set with one seed."""

    models: tuple[str, ...]
    per_week: float

    def __call__(self, task: tuple[Recipe, int], _progress: Progress) -> list[Run]:
        recipe, seed = task
        found = judge_contestants(recipe.dataset(seed), contestants(self.models), per_week=self.per_week)
        return [Run.of(recipe.name, seed, name, judged) for name, judged in found.items()]

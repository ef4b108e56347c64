"""The study: all data sets, seeds and models, here or in processes."""

from __future__ import annotations

import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.events.evaluation import merged
from stormpetrel.rehearse.event_study import Recipe, StudyPlan, run_study
from tests.events.rhythmic import broken, rhythmic_series

QUICK = ("seasonal", "pca")


def recipes():
    series = rhythmic_series(12)
    return Recipe("log", series), Recipe("counts", broken(series, (300, 310), (1900, 1910)), has_labels=True)


def runs_of(plan, **options):
    return merged([], [run for some in run_study(plan, **options) for run in some])


def test_every_data_set_seed_and_model_has_its_run():
    runs = runs_of(StudyPlan(recipes(), (0, 3), QUICK, engine=Engine(1)))
    assert {(run.dataset, run.seed, run.model) for run in runs} == {
        (name, seed, model) for name in ("log", "counts") for seed in (0, 3) for model in QUICK
    }
    assert not any(run.error for run in runs)


def test_processes_give_what_one_process_gives_and_tell_how_far_they_are():
    told = []
    alone = runs_of(StudyPlan(recipes(), (0,), ("seasonal",), engine=Engine(1)))
    apart = runs_of(StudyPlan(recipes(), (0,), ("seasonal",), engine=Engine(2)), progress=lambda *step: told.append(step))
    assert [(run.dataset, run.seed, run.figures, run.caught) for run in alone] == [
        (run.dataset, run.seed, run.figures, run.caught) for run in apart
    ]
    assert told[0][0] == 0.0 and told[-1][0] == 1.0 and {words for _, words in told[1:]} == {"log, seed 0", "counts, seed 0"}


def test_a_simulated_grid_is_made_from_hours_and_seed():
    (run,) = runs_of(StudyPlan((Recipe(hours=1680),), (5,), ("seasonal",), engine=Engine(1)))
    assert (run.dataset, run.seed) == ("simulated", 5) and run.figures["pr_auc"] > 0


def test_what_cannot_work_is_said_before_the_work_begins():
    told = []
    for plan, said in (
        (StudyPlan(recipes(), (0,), ("lstm",)), "Unknown model"),
        (StudyPlan(recipes(), ()), "No seed"),
        (StudyPlan((Recipe(plug_ins=("nowhere_x:f",)),), (0,), QUICK), "cannot be loaded"),
    ):
        with pytest.raises(UsageError, match=said):
            runs_of(plan, progress=lambda share, words: told.append(words))
    assert not told


def test_an_error_of_a_data_set_reaches_the_caller_from_a_process():
    plan = StudyPlan((Recipe(hours=500),), (0,), QUICK, engine=Engine(2))
    with pytest.raises(UsageError, match="too few to judge models by"):
        runs_of(plan)

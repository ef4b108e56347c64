"""Table I under honest time."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.exam.seed_protocol import OURS, honest_table
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings, label_jobs
from tests.jobs.logs import make_log, one_thread

QUICK = TrainingSettings(rounds=20)


@pytest.fixture(scope="module")
def labelled():
    return label_jobs(make_log(800), QUICK, [Moment.SUBMIT])


def test_our_model_stands_beside_the_recipes_on_the_same_later_jobs(labelled):
    with one_thread():
        table = honest_table(labelled, Moment.SUBMIT, QUICK, recipes=["decision_tree", "xgboost_smote"])
    assert [(row.model, row.part) for row in table.rows] == [
        (name, part) for name in (OURS, "decision_tree", "xgboost_smote") for part in ("train", "test")
    ]
    truths = [table.forecasts[name].truth for name in (OURS, "decision_tree", "xgboost_smote")]
    assert all(np.array_equal(truths[0], truth) for truth in truths)
    cut = np.quantile(labelled.submit[labelled.usable], 0.8)
    assert truths[0].size == int((labelled.usable & (labelled.submit >= cut)).sum())


def test_the_seeds_columns_of_the_end_are_not_among_those_of_a_moment(labelled):
    with one_thread():
        table = honest_table(labelled, Moment.SUBMIT, QUICK, recipes=["decision_tree"])
    assert not {"run_time_s", "cpu_time_s"} & set(table.columns)
    assert {name.partition(".")[0] for name in table.columns} >= {"request", "user", "retry"}


def test_a_log_without_a_judged_job_is_refused(labelled):
    nobody = label_jobs(make_log(30).with_columns(state=pl.lit("PENDING")), QUICK, [Moment.SUBMIT])
    with pytest.raises(NotEnoughJobsError):
        honest_table(nobody, Moment.SUBMIT, QUICK)

"""Rows drawn again."""

from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.rows.row_generator import RowBootstrap
from tests.synth.made_workloads import made_workload


def test_every_row_is_one_of_the_log_and_the_order_is_lost():
    real = made_workload(400)
    columns = ["partition", "cores", "time_limit_s", "runtime_s", "state"]
    made = sample(RowBootstrap().fit(real), Wanted(jobs=400)).jobs
    assert set(made.select(columns).rows()) <= set(real.jobs.select(columns).rows())
    same = [(jobs["cores"] == jobs["cores"].shift(1)).mean() for jobs in (real.jobs, made)]
    assert same[0] > 0.6 > 0.4 > same[1]

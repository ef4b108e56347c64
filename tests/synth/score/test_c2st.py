"""The classifier two-sample test: what it sees, and what it does not."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.score import c2st as module
from stormpetrel.synth.score.c2st import c2st
from stormpetrel.synth.workload import Workload
from tests.synth.made_workloads import made_workload, shuffled, workload_at


def test_two_draws_of_one_site_cannot_be_told_apart():
    assert c2st(made_workload(seed=1), made_workload(seed=2)) == pytest.approx(0.5, abs=0.12)


def test_another_run_time_is_seen_at_once():
    jobs = made_workload(1000)
    slower = Workload(jobs.jobs.with_columns(pl.col("runtime_s") * 50 + 0.05))
    assert c2st(jobs, slower) > 0.9


def test_the_sequence_test_sees_a_lost_order_that_rows_do_not_show():
    generator = np.random.default_rng(0)
    runtime = np.repeat(generator.choice([10.0, 2000.0], 100), 10)  # sessions of ten jobs alike, one a minute
    real = workload_at(np.arange(1000) * 60, runtime_s=runtime)
    mixed = workload_at(np.arange(1000) * 60, runtime_s=generator.permutation(runtime))
    assert c2st(real, mixed) < 0.6 < 0.75 < c2st(real, mixed, sequence=True)


def test_it_repeats_itself_and_takes_sides_of_any_size():
    one, other = made_workload(800), shuffled(made_workload(300, seed=4))
    assert c2st(one, other, seed=3) == c2st(one, other, seed=3)


def test_a_column_that_one_side_lacks_is_left_out():
    jobs = made_workload(600)
    without = Workload(jobs.jobs.drop("user", "cores", "time_limit_s", "runtime_s"))
    assert module._shared_columns(jobs, without) == ("interval", "hour_of_day")
    assert c2st(jobs, without) < 0.6  # the remaining columns are the same


def test_features_are_those_of_the_definition():
    jobs = workload_at(
        np.array([0.0, 7200.0, 7209.0]),
        user=["a", "a", "b"],
        cores=[1, 2, 3],
        time_limit_s=[60.0, 70, 80],
        runtime_s=[0.0, 9, 99],
    )
    x, fold = module._rows(jobs, tuple(module._COLUMNS), 0)
    expected = [[np.log1p(7200), np.log(10), 2, 70, 2, 1], [np.log(10), np.log(100), 3, 80, 2, 0]]
    assert x == pytest.approx(np.array(expected), rel=1e-6) and fold.tolist() == [0, 1]


def test_the_sequence_adds_the_two_rows_before():
    jobs = workload_at(np.array([0, 1, 3, 7, 15]), cores=[1, 2, 3, 4, 5])
    x, _ = module._rows(jobs, ("cores",), 2)
    assert x.tolist() == [[4, 3, 2], [5, 4, 3]]


def test_blocks_are_contiguous_and_a_long_trace_keeps_the_first_rows_of_each(monkeypatch):
    monkeypatch.setattr(module, "MOST", 10)
    x, fold = module._rows(workload_at(np.arange(26), cores=np.arange(26)), ("cores",), 0)
    assert fold.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert x[:, 0].tolist() == [1, 2, 6, 7, 11, 12, 16, 17, 21, 22]


@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_a_handful_of_jobs_is_not_judged(n):
    assert c2st(made_workload(200).between(0, n), made_workload(200), sequence=True) is None
    assert c2st(made_workload(200), made_workload(200).between(0, n)) is None


def test_constant_columns_and_missing_values_are_no_trouble():
    same = workload_at(np.arange(60) * 60, user=[None, "a"] * 30, cores=[None, 4] * 30, runtime_s=[5.0] * 60)
    assert 0 <= c2st(same, same, sequence=True) <= 1

"""How alike two workloads are: each figure against a hand count or another implementation."""

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats

from stormpetrel.synth.score.fidelity import (
    LAGS,
    autocorrelation,
    cdf,
    dispersion,
    fidelity,
    hour_of_week,
    kolmogorov_smirnov,
    same_user_share,
    wasserstein,
)
from stormpetrel.synth.workload import SUBMIT, Workload
from tests.synth.made_workloads import made_workload, shuffled, workload_at


@pytest.mark.parametrize("seed", range(3))
def test_distances_of_columns_are_those_of_scipy(seed):
    generator = np.random.default_rng(seed)
    one = generator.integers(0, 30, 400).astype(float)  # many ties
    other = np.concatenate([generator.exponential(9, 150), np.zeros(100)])
    assert kolmogorov_smirnov(one, other) == pytest.approx(stats.ks_2samp(one, other).statistic)
    assert wasserstein(one, other) == pytest.approx(stats.wasserstein_distance(one, other))


def test_a_workload_is_at_no_distance_from_itself():
    jobs = made_workload(500)
    found = fidelity(jobs, jobs)
    assert all(distance.ks == 0 and distance.w1 == 0 for distance in found.columns.values())
    assert all(distance.tv == 0 for distance in found.categories.values())
    assert found.acf_mae == 0 and found.hour_profile_tv == 0 and found.dispersion.ratio == 1 and found.notes == ()


def test_the_order_of_jobs_is_seen_where_distributions_are_the_same():
    jobs = made_workload(2000)
    found = fidelity(jobs, shuffled(jobs))
    assert found.columns["interval_s"].ks < 0.001 and found.columns["cores"].ks == 0
    assert abs(found.lag1.synthetic) < 0.1 and abs(found.lag1.real) > 0.1
    assert found.same_user_share.real > found.same_user_share.synthetic + 0.3


def test_main_columns_come_first_and_then_the_other_numbers_of_both():
    one = workload_at(np.arange(60), nodes=[2] * 60, cores=[4] * 60, runtime_s=[1.0] * 60, power=[0.5] * 60, only_here=[1] * 60)
    other = workload_at(np.arange(60), power=[1] * 60, cores=[4] * 60, runtime_s=[3.0] * 60, nodes=[2] * 60)
    found = fidelity(one, other)
    assert list(found.columns) == ["interval_s", "runtime_s", "cores", "nodes", "power"]
    assert found.columns["runtime_s"].as_dict() == {"ks": 1.0, "w1": 2.0}
    assert "Only the real jobs have only_here: not compared." in found.notes


def test_categories_are_compared_by_name_and_people_by_rank():
    one = workload_at(np.arange(4), partition=["a", "a", "b", "c"], user=["x", "x", "x", "y"])
    other = workload_at(np.arange(4), partition=["a", "b", "b", "d"], user=["new2", "new1", "new1", "new1"])
    found = fidelity(one, other).categories
    assert found["partition"].as_dict() == {"tv": 0.5, "by": "name"}
    assert found["user"].as_dict() == {"tv": 0.0, "by": "rank"}


def test_a_column_of_text_against_one_of_numbers_is_said_and_not_compared():
    found = fidelity(workload_at(np.arange(60), power=["a"] * 60), workload_at(np.arange(60), power=[1.0] * 60))
    assert "power" not in found.columns and "power" not in found.categories
    assert any("'power' is a number on one side" in note for note in found.notes)


def test_empty_cells_are_left_out_and_said():
    one = workload_at(np.arange(60), cores=[1, None] * 30)
    found = fidelity(one, workload_at(np.arange(60), cores=[1] * 60))
    assert found.columns["cores"].ks == 0
    assert "'cores' is empty in 50.0% of the real and 0.0% of the synthetic jobs." in found.notes


def test_autocorrelation_of_an_alternating_rhythm():
    rho = autocorrelation(np.tile([0.0, 99.0], 500), 4)
    assert rho == pytest.approx([-1, 1, -1, 1], abs=0.01)


def test_autocorrelation_is_that_of_logarithms():
    intervals = np.random.default_rng(0).exponential(100, 3000)
    logs = np.log1p(intervals)
    assert autocorrelation(intervals, 1)[0] == pytest.approx(np.corrcoef(logs[1:], logs[:-1])[0, 1], abs=1e-3)


def test_autocorrelation_of_few_or_equal_intervals_is_not_a_number():
    assert np.isnan(autocorrelation(np.full(100, 7.0), 3)).all()
    assert np.isnan(autocorrelation(np.array([1.0, 2.0, 5.0]), 3)).tolist() == [False, True, True]
    assert np.isnan(autocorrelation(np.empty(0), 2)).all()


def test_dispersion_counts_hours_without_jobs():
    submit_s = np.array([0.0, 10, 20, 3 * 3600 + 5])  # hourly counts 3, 0, 0, 1
    counts = np.array([3, 0, 0, 1])
    assert dispersion(submit_s + 1234) == pytest.approx(counts.var() / counts.mean())


def test_dispersion_of_a_poisson_stream_is_one_and_of_one_hour_is_unknown():
    submit_s = np.sort(np.random.default_rng(0).uniform(0, 3600 * 2000, 20_000))
    assert dispersion(submit_s) == pytest.approx(1, abs=0.1)
    assert dispersion(np.array([5.0, 9.0])) is None and dispersion(np.empty(0)) is None


def test_a_stray_date_of_the_far_future_costs_no_memory():
    submit_s = np.array([0.0, 1.0, 3600.0 * 24 * 366 * 9000])
    assert dispersion(submit_s) == pytest.approx(5 / 3, abs=1e-3)


def test_the_week_begins_on_monday_at_midnight():
    profile = hour_of_week(workload_at(np.array([0, 59 * 60, 3600, 6 * 86400 + 23 * 3600, 7 * 86400])))
    assert profile[0] == 0.6 and profile[1] == 0.2 and profile[167] == 0.2


def test_share_of_jobs_from_the_user_before_leaves_out_nameless_jobs():
    assert same_user_share(workload_at(np.arange(5), user=["a", "a", "b", None, "b"])) == 0.5
    assert same_user_share(workload_at(np.arange(3))) is None


def test_cdf_rises_to_one():
    values, share = cdf(workload_at(np.array([0, 5, 10, 40])), "interval_s")
    assert values.tolist() == [5, 30] and share == pytest.approx([2 / 3, 1])
    assert cdf(workload_at(np.arange(3)), "cores")[0].size == 0


ODD_WORKLOADS = {
    "one job": workload_at(np.zeros(1), user=["a"], cores=[1]),
    "thirty jobs": workload_at(np.arange(30) * 100, user=["a"] * 30, cores=[1] * 30),
    "no users, equal intervals": workload_at(np.arange(100) * 60, cores=[4] * 100),
    "mostly zero intervals": workload_at(np.repeat(np.arange(40) * 500, 5)),
    "an outage of a month": workload_at(np.concatenate([np.arange(100) * 900, np.arange(100) * 900 + 35 * 86400])),
    "no job": Workload(made_workload(20).jobs[:0]),
    "infinite and absent": workload_at(
        np.arange(60) * 60, runtime_s=[float("inf"), float("nan"), None] * 20, odd=[1.0, None] * 30
    ),
}


@pytest.mark.parametrize("name", ODD_WORKLOADS)
def test_odd_workloads_give_numbers_or_none_with_a_note_and_never_nan(name):
    usual = made_workload(300)
    for pair in ((usual, ODD_WORKLOADS[name]), (ODD_WORKLOADS[name], usual), (ODD_WORKLOADS[name],) * 2):
        found = fidelity(*pair)
        json.dumps(found.as_dict(), allow_nan=False)
        if found.acf_mae is None or found.dispersion.ratio is None or found.same_user_share.error is None:
            assert found.notes


def test_unsorted_times_are_sorted_before_they_are_compared():
    mixed = made_workload(300).jobs.sample(fraction=1, shuffle=True, seed=1)
    offsets = (mixed[SUBMIT].dt.epoch("us").to_numpy() - 1_704_067_200_000_000) / 1e6
    found = fidelity(made_workload(300), workload_at(offsets, cores=mixed["cores"]))
    assert found.columns["interval_s"].ks == 0 and found.lag1.error == pytest.approx(0)


def test_too_few_jobs_for_all_lags_are_said():
    found = fidelity(workload_at(np.arange(LAGS) ** 2), made_workload(200))
    assert found.acf_mae is None
    assert any(note.startswith("acf_mae needs 53 jobs on each side; the real part has 50") for note in found.notes)


def test_a_trace_without_a_clock_is_said():
    jobs = made_workload(200)
    counted = Workload(jobs.jobs, has_clock=False)
    assert any("arbitrary Monday" in note for note in fidelity(jobs, counted).notes)
    assert isinstance(counted.jobs, pl.DataFrame)

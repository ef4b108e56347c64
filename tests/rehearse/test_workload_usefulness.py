"""Usefulness: a failure model of synthetic jobs tested on real ones, and a scheduler fed with both."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.rehearse.workload_usefulness import (
    cut_log,
    over_seeds,
    schedule,
    synthetic_jobs,
    train_on_synthetic,
    usefulness,
)
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.replay import Machine
from stormpetrel.synth.choose import GeneratorMaker
from stormpetrel.synth.workload import Workload, workload_of
from tests.jobs.logs import one_thread

SETTINGS = TrainingSettings(rounds=40)


@lru_cache
def simulated():
    return pl.concat(simulate(ClusterSpec(nodes=8, jobs=2500, days=None, seed=3)))


@lru_cache
def cut():
    return cut_log(simulated(), SETTINGS)


class Parrot:
    """A generator that says again what it was told, and notes what that was."""

    def __init__(self, change=lambda jobs: jobs):
        self.change = change
        self.learnt: list[Workload] = []
        self.wanted = []

    def fit(self, workload, *, progress=None):
        self.learnt.append(workload)
        return self

    def batches(self, wanted):
        self.wanted.append(wanted)
        yield self.change(self.learnt[-1].jobs.drop("wait_s")).head(wanted.jobs)

    def groups(self):
        return {}

    def save(self, folder):
        raise NotImplementedError


def with_chance_states(jobs):
    return jobs.with_columns(jobs["state"].sample(fraction=1.0, shuffle=True, seed=5))


def test_a_model_of_the_same_jobs_is_as_good_as_the_real_one_and_one_of_chance_outcomes_is_not():
    log = cut()
    same = train_on_synthetic(log, log.seen(), SETTINGS)
    chance = train_on_synthetic(log, Workload(with_chance_states(log.seen().jobs)), SETTINGS)
    assert same["ratio"] == pytest.approx(1.0, abs=0.1)
    assert same["n_train"]["synthetic"] == same["n_train"]["real"] and same["n_test"] == int(log.split.test.sum())
    assert same["pr_auc_synthetic"] > 1.3 * chance["pr_auc_synthetic"]
    assert same["pr_auc_real"] > same["baseline"]["last_outcome"]["pr_auc"] > same["failed_share"]["test"]


def test_the_generator_sees_only_what_had_ended_by_the_cut_and_makes_as_many_jobs():
    parrot = Parrot()
    found = usefulness(simulated(), lambda _seed: parrot, SETTINGS, seeds=(4,))
    (learnt,) = parrot.learnt
    (wanted,) = parrot.wanted
    end = learnt.jobs.select(
        pl.col("submit_time") + pl.duration(microseconds=(pl.col("wait_s").fill_null(0.0) + pl.col("runtime_s")) * 1e6)
    )
    assert end.to_series().max().isoformat() < found["cut"]
    assert learnt.height < 0.8 * simulated().height + 1
    assert (wanted.jobs, wanted.seed) == (learnt.height, 4)
    assert found["ratio"] == pytest.approx(1.0, abs=0.25)


def test_both_models_know_the_same_of_a_job():
    jobs = cut().jobs
    for name in ("job_name", "script_path", "work_dir", "submit_line", "max_rss_bytes", "uid"):
        assert jobs[name].null_count() == jobs.height, name
    assert jobs["req_cpus"].equals(jobs["cpus"].alias("req_cpus"), null_equal=True)


def test_a_log_without_failures_is_refused_in_a_sentence():
    calm = simulated().with_columns(state=pl.lit("COMPLETED"))
    with pytest.raises(NotEnoughJobsError, match="cannot be judged"):
        usefulness(calm, lambda _seed: Parrot(), SETTINGS)
    with pytest.raises(NotEnoughJobsError, match="30 synthetic jobs have ended, 3 of them failed"):
        train_on_synthetic(cut(), cut().seen().between(0, 30), SETTINGS)
    with pytest.raises(UsageError, match="No seed"):
        usefulness(simulated(), lambda _seed: Parrot(), SETTINGS, seeds=())


def test_a_workload_becomes_jobs_whose_times_add_up():
    real = workload_of(simulated())
    jobs = synthetic_jobs(Workload(real.jobs.drop("wait_s")), Machine(256))
    sums = jobs.select(
        wait=(pl.col("start_time") - pl.col("submit_time")).dt.total_seconds(),
        run=(pl.col("end_time") - pl.col("start_time")).dt.total_seconds(),
        told="elapsed_s",
    )
    assert sums["wait"].min() >= 0 and sums["wait"].max() > 0
    assert np.allclose(sums["run"], sums["told"], atol=1.0)
    assert jobs["req_cpus"].equals(real.jobs["cores"].alias("req_cpus"))
    assert jobs.select("job_id", "array_task").n_unique() == jobs.height


def test_tasks_of_an_array_share_a_job_id_and_are_counted():
    jobs = synthetic_jobs(Workload(workload_of(simulated()).jobs.head(6).with_columns(array=pl.Series([None, 7, 7, None, 7, 9]))))
    assert jobs["array_task"].to_list() == [None, 0, 1, None, 2, 0]
    assert jobs["job_id"].to_list() == [0, 1, 1, 3, 1, 5]


def test_an_application_number_reaches_the_features():
    jobs = workload_of(simulated()).jobs.head(3).with_columns(executable=pl.Series([4, None, 12]))
    assert [dict(row).get("executable") for row in synthetic_jobs(Workload(jobs))["extra"]] == ["4", None, "12"]


def test_a_scheduler_tells_equal_workloads_apart_from_heavier_ones():
    real = workload_of(simulated())
    heavier = Workload(real.jobs.with_columns(pl.col("runtime_s") * 1.5))
    same, more = schedule(real, real), schedule(real, heavier)
    assert same["wait_ratio"] == same["utilisation_ratio"] == 1.0
    assert more["wait_ratio"] > 1.3 and more["utilisation_ratio"] > 1.05
    assert same["machine"] == more["machine"] and same["machine"]["cores"] >= real.jobs["cores"].max()


def test_figures_over_seeds_have_a_mean_and_a_spread_and_what_is_the_same_stays():
    one = {"a": 1.0, "b": {"c": 2.0, "d": None}, "e": "words", "f": 3, "g": ["x"]}
    other = {"a": 2.0, "b": {"c": 4.0, "d": 5.0}, "e": "words", "f": 3, "g": ["y"]}
    assert over_seeds([one, other]) == {
        "a": {"mean": 1.5, "std": 0.5, "n": 2},
        "b": {"c": {"mean": 3.0, "std": 1.0, "n": 2}, "d": {"mean": 5.0, "std": 0.0, "n": 1}},
        "e": "words",
        "f": 3,
        "g": ["x"],
    }
    assert over_seeds([one]) == one


def test_seeds_in_processes_give_what_one_process_gives():
    make, log, settings = GeneratorMaker("rows"), simulated().head(900), TrainingSettings(rounds=5)  # nothing is said of how good
    with one_thread():
        alone, apart = (usefulness(log, make, settings, seeds=(0, 1), engine=Engine(workers)) for workers in (1, 2))
    assert apart == alone and alone["ratio"]["n"] == 2

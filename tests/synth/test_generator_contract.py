"""Every generator × every check: what anybody who uses one by its name may rely on."""

from __future__ import annotations

from functools import cache

import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.synth.choose import GENERATORS, load_generator, new_generator
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.synth.workload import SUBMIT
from tests.parts import need
from tests.synth.made_workloads import site_workload

# The networks, which need torch.
_FAST = {"ctgan": {"epochs": 1}, "tvae": {"epochs": 1}, "copulagan": {"epochs": 1}}
OURS = [name for name in GENERATORS if not name.startswith("sdv-")]
SAVED = [name for name in OURS if name != "rows"]  # rows of the log are never saved
OF_ROWS = [name for name in OURS if name not in ("sessions", "private")]


@pytest.fixture(autouse=True)
def _networks_need_torch(request):
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") in _FAST:
        need("torch")


@cache
def fitted(name: str) -> WorkloadGenerator:
    return new_generator(name, **_FAST.get(name, {})).fit(site_workload(1200))


@pytest.mark.parametrize("name", OURS)
def test_the_same_seed_makes_the_same_jobs_and_another_seed_others(name):
    generator = fitted(name)
    first, again, other = (sample(generator, Wanted(jobs=200, seed=seed)).jobs for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


@pytest.mark.parametrize("name", OURS)
def test_there_are_as_many_jobs_as_asked_for_in_the_order_of_submission(name):
    jobs = sample(fitted(name), Wanted(jobs=333, seed=0)).jobs
    assert jobs.height == 333
    assert jobs[SUBMIT].is_sorted()


@pytest.mark.parametrize("name", OURS)
def test_no_name_of_a_person_comes_out_again(name):
    learnt, made = site_workload(1200).jobs, sample(fitted(name), Wanted(jobs=500, seed=0)).jobs
    for column in ("user", "group", "account"):
        assert not set(learnt[column].drop_nulls()) & set(made[column].drop_nulls()) if column in made.columns else True


@pytest.mark.parametrize("name", OURS)
def test_a_job_runs_no_longer_than_its_limit_unless_it_is_a_time_out(name):
    jobs = sample(fitted(name), Wanted(jobs=1000, seed=3)).jobs
    over = jobs.filter((pl.col("runtime_s") > pl.col("time_limit_s")) & (pl.col("state") != "TIMEOUT"))
    assert over.height == 0


@pytest.mark.parametrize("name", OURS)
def test_no_job_at_all_can_be_asked_for(name):
    assert sample(fitted(name), Wanted(jobs=0)).height == 0


@pytest.mark.parametrize("name", SAVED)
def test_what_was_saved_makes_the_same_jobs(name, tmp_path):
    generator = fitted(name)
    generator.save(tmp_path / "model")
    wanted = Wanted(jobs=150, seed=5)
    assert sample(load_generator(tmp_path / "model"), wanted).jobs.equals(sample(generator, wanted).jobs)


# Not `private`: whether it refuses must not depend on how many jobs there are.
@pytest.mark.parametrize("name", [name for name in OURS if name != "private"])
def test_one_job_is_too_few_to_learn_from(name):
    with pytest.raises(NotEnoughJobsError):
        new_generator(name, **_FAST.get(name, {})).fit(site_workload(1200).between(0, 1))


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_generator_of_rows_says_that_it_knows_no_users(name):
    with pytest.raises(UsageError, match="sessions"):
        sample(fitted(name), Wanted(jobs=10, users=2.0))


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean 'sessions'"):
        new_generator("session")

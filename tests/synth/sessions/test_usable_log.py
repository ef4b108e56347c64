"""Odd logs: each is learnt and made anew, or one sentence says what would help."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.sessions.columns import usable
from stormpetrel.synth.sessions.generator import SessionGenerator
from stormpetrel.synth.workload import SUBMIT, Workload, tidy
from tests.synth.made_workloads import MONDAY, made_workload, site_workload, with_columns, workload_at

ROW = pl.int_range(pl.len())
CORES = np.arange(400) % 7 + 1


def every(step, column):
    """The column, null in every so many rows."""
    return pl.when(ROW % step != 0).then(column)


ODD = {
    "thirty jobs": lambda: site_workload(30),
    "twenty jobs": lambda: site_workload(20),
    "one user": lambda: made_workload(300, users=1),
    "no users": lambda: tidy(made_workload(300).jobs.drop("user")),
    "users all null": lambda: Workload(made_workload(300).jobs.with_columns(user=pl.lit(None, pl.String))),
    "some users null": lambda: with_columns(made_workload(300), user=every(3, "user")),
    "columns that never change": lambda: workload_at(np.arange(300) * 900.0, cores=[1] * 300, state=["COMPLETED"] * 300),
    "submit times only": lambda: tidy(made_workload(300).jobs.select(SUBMIT)),
    "mostly zero intervals": lambda: workload_at(np.repeat(np.arange(160) * 500.0, 5)[:400], user=["a"] * 400, cores=CORES),
    "all at one second": lambda: workload_at(np.full(400, 10.0), user=["a"] * 400, cores=CORES),
    "all at one second, many users": lambda: workload_at(np.full(400, 10.0), user=[f"u{n % 9}" for n in range(400)]),
    "unsorted": lambda: Workload(made_workload(300).jobs.sample(fraction=1.0, shuffle=True, seed=0)),
    "nulls everywhere": lambda: with_columns(
        site_workload(300), runtime_s=every(3, "runtime_s"), time_limit_s=every(4, "time_limit_s"), state=every(5, "state")
    ),
    "a giant session": lambda: workload_at(np.arange(3000.0), user=["a"] * 3000),
    "users with one job each": lambda: workload_at(np.arange(400) * 600.0, user=[f"u{n}" for n in range(400)], cores=CORES),
    "huge numbers": lambda: with_columns(made_workload(300), mem_bytes=10**15 + ROW % 3, runtime_s=10**15 + ROW % 9),
    "fractions of seconds": lambda: workload_at(np.cumsum(np.arange(400) % 7 * 3.217), user=["a"] * 400, runtime_s=CORES / 3),
    "one hour": lambda: workload_at(np.arange(400) * 9.0, user=[f"u{n % 7}" for n in range(400)]),
    "a hundred jobs in ten years": lambda: workload_at(np.arange(100) * 3.1e6, user=[f"u{n % 7}" for n in range(100)]),
    "every job three times": lambda: tidy(pl.concat([made_workload(150).jobs] * 3)),
    "before 1970": lambda: tidy(made_workload(300).jobs.with_columns(pl.col(SUBMIT) - timedelta(days=36_500))),
    "as many states as jobs": lambda: workload_at(np.arange(300) * 60.0, state=[f"S{n}" for n in range(300)]),
    "odd texts": lambda: with_columns(made_workload(300), partition=pl.lit("a\0;\u202e\n'\""), note=pl.lit("{}")),
}


@pytest.mark.parametrize("log", ODD.values(), ids=ODD)
def test_an_odd_log_is_learnt_and_made_anew(log):
    real = log()
    new = sample(SessionGenerator(trees=3).fit(real), Wanted()).jobs
    assert dict(new.schema) == dict(real.jobs.schema) and new[SUBMIT].is_sorted()
    assert new.height == pytest.approx(real.height, rel=0.1)


@pytest.mark.parametrize("jobs", [0, 1, 19])
def test_fewer_than_twenty_jobs_are_one_sentence(jobs):
    with pytest.raises(NotEnoughJobsError, match=f"{jobs} jobs are too few.*it takes 20.*Read a longer log"):
        SessionGenerator().fit(made_workload(20).between(0, jobs))


def test_jobs_without_a_time_do_not_count():
    timeless = tidy(made_workload(40).jobs.with_columns(every(2, SUBMIT).alias(SUBMIT)))
    assert usable(timeless).height == 20
    with pytest.raises(NotEnoughJobsError, match="13 jobs"):
        SessionGenerator().fit(tidy(made_workload(26).jobs.with_columns(every(2, SUBMIT).alias(SUBMIT))))


def test_a_month_without_jobs_stays_a_month_without_jobs():
    log = made_workload(800, weeks=14).jobs
    gap = (MONDAY + timedelta(weeks=5), MONDAY + timedelta(weeks=9))
    real = tidy(log.filter(~pl.col(SUBMIT).is_between(*gap)))
    new = sample(SessionGenerator(trees=3).fit(real), Wanted()).jobs
    assert new[SUBMIT].diff().max() > timedelta(weeks=3, days=5) and new.height == pytest.approx(real.height, rel=0.02)


def test_zero_intervals_stay_zero_intervals():
    real = ODD["mostly zero intervals"]()
    new = sample(SessionGenerator(trees=3).fit(real), Wanted(jobs=2000))
    assert (new.interval_s() == 0).mean() == pytest.approx((real.interval_s() == 0).mean(), abs=0.08)


def test_missing_values_stay_as_frequent_as_they_are():
    real = ODD["nulls everywhere"]()
    new = sample(SessionGenerator().fit(real), Wanted(jobs=8000)).jobs
    for name in ("runtime_s", "time_limit_s", "state"):
        assert new[name].null_count() / new.height == pytest.approx(real.jobs[name].null_count() / 300, abs=0.06)


def test_numbers_that_are_none_count_as_missing_and_are_told():
    odd = pl.when(ROW % 4 == 0)
    real = with_columns(
        made_workload(300),
        runtime_s=odd.then(float("nan")).otherwise("runtime_s"),
        time_limit_s=odd.then(float("inf")).otherwise("time_limit_s"),
        cores=odd.then(-1).otherwise("cores"),
        load=odd.then(float("-inf")).otherwise(ROW % 5 + 0.5),
    )
    generator = SessionGenerator(trees=3).fit(real)
    new = sample(generator, Wanted(jobs=2000)).jobs
    assert all("75 values of" in note for note in generator.notes[:3]) and "'cores'" in generator.notes[0]
    for name in ("runtime_s", "time_limit_s", "cores", "load"):
        known = new[name].drop_nulls()
        assert 0.5 < len(known) / new.height < 1 and bool(known.is_finite().all()) and known.min() >= 0


def test_unknown_columns_are_kept_as_numbers_or_as_categories():
    shuffled = np.random.default_rng(0).permutation(400)
    real = with_columns(
        made_workload(400),
        few=ROW % 3,
        many=pl.Series(shuffled * 1000),
        real=pl.Series(shuffled / 7),
        text=pl.format("kind{}", ROW % 4),
        same=pl.lit("same"),
        different=pl.format("text{}", ROW),
        len=ROW % 3,
        count=pl.lit("x"),
        largest=(2**63 - 1) - pl.Series(shuffled),
        vast=1e300 * (ROW % 3),
    )
    generator = SessionGenerator(trees=3).fit(real)
    new = sample(generator, Wanted(jobs=1000)).jobs
    assert dict(new.schema) == dict(real.jobs.schema)
    for name in ("few", "many", "real", "text", "same", "len", "count", "vast"):
        assert set(new[name]) <= set(real.jobs[name])
    assert set(new["different"]) == {"other"} and any("'different': 400 texts" in note for note in generator.notes)


def test_other_types_become_those_of_a_workload():
    real = with_columns(
        made_workload(300),
        small=(ROW % 3).cast(pl.Int8),
        single=(ROW % 3 / 2).cast(pl.Float32),
        flag=ROW % 2 == 0,
        kind=pl.format("k{}", ROW % 2).cast(pl.Categorical),
    )
    new = sample(SessionGenerator(trees=3).fit(real), Wanted(jobs=100)).jobs
    assert [new[name].dtype for name in ("small", "single", "flag", "kind")] == [pl.Int64, pl.Float64, pl.String, pl.String]


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("jobnumber", 10_000 + 3 * ROW, "numbers the jobs"),
        ("finished", pl.col(SUBMIT) + timedelta(hours=1), "neither numbers nor texts"),
        ("list", pl.concat_list(ROW, ROW), "neither numbers nor texts"),
        ("_at", ROW % 3, "its name"),
        (" ", ROW % 3, "its name"),
    ],
)
def test_a_column_that_cannot_be_kept_is_left_out_with_the_reason(name, column, why):
    generator = SessionGenerator(trees=3).fit(with_columns(made_workload(300), **{name: column}))
    assert any(f"Column '{name}' is left out: " in note and why in note for note in generator.notes)
    assert name not in sample(generator, Wanted(jobs=20)).jobs.columns


def test_jobs_beyond_their_limit_are_learnt_as_timeouts_whatever_the_log_says():
    real = workload_at(np.arange(40.0), runtime_s=[70.0] * 40, time_limit_s=[60.0] * 40, state=["COMPLETED", None] * 20)
    learnt = usable(real)
    assert set(learnt.jobs["state"]) == {"TIMEOUT"} and learnt.notes[0].startswith("40 jobs ran beyond the limit")

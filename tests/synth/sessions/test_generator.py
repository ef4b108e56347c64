"""The default generator: what it promises of new jobs, and what can be asked of it."""

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.sessions.columns import OTHER
from stormpetrel.synth.sessions.generator import ROWS_AT_ONCE, SessionGenerator
from stormpetrel.synth.workload import SUBMIT
from tests.synth.made_workloads import MONDAY, fitted_site, site_workload, with_columns, workload_at

REQUEST = ("partition", "cores", "gpus", "mem_bytes", "time_limit_s", "app")


@pytest.fixture(scope="module")
def real():
    return site_workload().jobs


@pytest.fixture(scope="module")
def made():
    return sample(fitted_site(), Wanted(jobs=130_000, seed=5)).jobs


def jobs(**wanted):
    return sample(fitted_site(), Wanted(**wanted)).jobs


def gpu_share(frame):
    return float((frame["gpus"] > 0).mean())


def test_a_seed_makes_the_same_jobs_again():
    assert jobs(jobs=2000, seed=3).equals(jobs(jobs=2000, seed=3))


def test_another_seed_makes_other_jobs():
    one, other = jobs(jobs=2000, seed=3), jobs(jobs=2000, seed=4)
    assert (one[SUBMIT] == other[SUBMIT]).mean() < 0.1 and (one["runtime_s"] == other["runtime_s"]).mean() < 0.5


def test_a_log_fitted_twice_gives_the_same_generator():
    small = site_workload(400)
    one, other = (sample(SessionGenerator(seed=2).fit(small), Wanted(jobs=500)).jobs for _ in range(2))
    assert one.equals(other)


def test_batches_one_behind_the_other_are_the_sample_and_none_is_large(made):
    batches = list(fitted_site().batches(Wanted(jobs=130_000, seed=5)))
    assert len(batches) > 2 and max(batch.height for batch in batches) <= ROWS_AT_ONCE
    assert pl.concat(batches).equals(made)


def test_submit_times_never_decrease(made):
    assert made[SUBMIT].is_sorted() and made.height == 130_000


def test_columns_and_types_are_those_of_the_log(real, made):
    assert dict(made.schema) == dict(real.schema)


def test_whole_numbers_stay_whole(made):
    assert bool((made["runtime_s"] % 1 == 0).all())
    assert int((made[SUBMIT].dt.epoch("us") % 1_000_000).sum()) == 0


def test_no_job_outlives_its_limit_unless_it_timed_out(made):
    assert made.filter((pl.col("runtime_s") > pl.col("time_limit_s")) & (pl.col("state") != "TIMEOUT")).is_empty()
    assert made.filter((pl.col("runtime_s") > pl.col("time_limit_s")) & (pl.col("state") == "TIMEOUT")).height > 0


def test_a_fractional_limit_is_kept_by_whole_run_times():
    frame = site_workload(400)
    limited = with_columns(
        frame, time_limit_s=pl.col("time_limit_s") + 0.4, runtime_s=pl.min_horizontal("runtime_s", "time_limit_s")
    )
    new = sample(SessionGenerator().fit(limited), Wanted(jobs=5000)).jobs
    assert bool((new["runtime_s"] <= new["time_limit_s"]).all()) and bool((new["runtime_s"] % 1 == 0).all())


def test_only_requests_that_were_seen_are_made(real, made):
    assert made.join(real, on=REQUEST, how="anti").is_empty()


def test_minima_and_rare_values_are_kept():
    log = site_workload(1500)
    rare = with_columns(
        log,
        partition=pl.when(pl.int_range(pl.len()) == 700).then(pl.lit("visual")).otherwise("partition"),
        runtime_s=pl.when(pl.int_range(pl.len()) % 400 == 7).then(1.0).otherwise(pl.max_horizontal("runtime_s", pl.lit(5.0))),
    )
    new = sample(SessionGenerator().fit(rare), Wanted(jobs=30_000)).jobs
    assert 1 <= new.filter(partition="visual").height < 300
    assert new["runtime_s"].min() == 1.0 and new["cores"].min() == log.jobs["cores"].min()


def test_run_times_are_not_those_of_the_log_to_the_second(real, made):
    long = set(real.filter(pl.col("runtime_s").is_between(3000, 60_000) & (pl.col("state") != "TIMEOUT"))["runtime_s"])
    new = made.filter(pl.col("runtime_s").is_between(3000, 60_000) & (pl.col("state") != "TIMEOUT"))["runtime_s"]
    assert new.is_in(pl.Series(list(long)).implode()).mean() < 0.5


def test_names_are_new(real, made):
    for name in ("user", "group", "account"):
        assert not set(made[name]) & set(real[name]) and not made[name].str.contains("zz").any()
    assert made["user"].n_unique() == real["user"].n_unique()


def test_names_are_new_even_where_the_log_has_such_names():
    alike = with_columns(site_workload(600), user=pl.col("user").str.replace("zz-user-", "user000"), group=pl.lit("group01"))
    new = sample(SessionGenerator().fit(alike), Wanted(jobs=2000)).jobs
    assert not set(new["user"]) & set(alike.jobs["user"]) and not set(new["group"]) & {"group01"}


def test_the_most_active_user_stays_as_active(real, made):
    def largest(frame):
        return frame["user"].value_counts()["count"].max() / frame.height

    assert largest(made) == pytest.approx(largest(real), rel=0.05)


def test_an_array_belongs_to_one_user_and_one_request(made):
    tasks = made.filter(pl.col("array").is_not_null())
    assert 0.1 < tasks.height / made.height < 0.3
    span = pl.col(SUBMIT).max() - pl.col(SUBMIT).min()
    each = tasks.group_by("array").agg(pl.col("user", *REQUEST).n_unique(), jobs=pl.len(), span=span)
    assert each.select(pl.col("user", *REQUEST).max()).row(0) == (1,) * 7
    assert each["jobs"].max() > 5 and each["span"].max() < timedelta(days=1)


def script():
    """A job every 700 seconds, for more than three weeks."""
    return workload_at(np.arange(3000) * 700.0, user=["zz"] * 3000, cores=[4] * 3000)


@pytest.mark.parametrize(("factor", "seed"), [(2.0, 0), (0.5, 0), (0.5, 1), (1.3, 0), (1.3, 2)])
def test_so_many_times_the_users_make_so_many_times_the_jobs(real, factor, seed):
    new = jobs(users=factor, seed=seed)
    assert new["user"].n_unique() == pytest.approx(factor * real["user"].n_unique(), rel=0.06)
    assert new.height == pytest.approx(factor * real.height, rel=0.06)


def test_one_user_can_become_half_or_more_as_much():
    alone = SessionGenerator().fit(script())
    assert sample(alone, Wanted(users=0.5)).height == pytest.approx(1500, rel=0.1)
    assert sample(alone, Wanted(users=1.3)).height == pytest.approx(3900, rel=0.1)


def test_a_script_that_never_pauses_is_in_every_week_of_a_new_log():
    new = sample(SessionGenerator().fit(script()), Wanted(days=15, seed=1)).jobs
    per_day = new.group_by(pl.col(SUBMIT).dt.date()).len()["len"]
    assert len(per_day) >= 15 and per_day.median() == pytest.approx(86400 / 700, rel=0.1)


def test_twice_the_users_are_not_everybody_twice():
    twice = jobs(users=2)
    first, second = (twice.filter(pl.col("user").str.slice(4).cast(pl.Int64).is_between(*span)) for span in ((1, 40), (41, 80)))
    per_day = [frame.group_by(pl.col(SUBMIT).dt.date()).len().sort(SUBMIT)["len"].to_numpy() for frame in (first, second)]
    assert np.corrcoef(*(days[:70] for days in per_day))[0, 1] < 0.5


@pytest.mark.parametrize("factor", [1.33, 0.5])
def test_the_share_of_gpu_jobs_becomes_the_one_asked_for(real, factor):
    assert gpu_share(jobs(jobs=40_000, gpu_jobs=factor)) == pytest.approx(factor * gpu_share(real), rel=0.07)


def test_the_share_of_gpu_jobs_is_that_of_the_whole_log_not_of_its_first_weeks():
    late = with_columns(site_workload(weeks=20), gpus=pl.when(pl.int_range(pl.len()) > pl.len() // 2).then("gpus").otherwise(0))
    new = sample(SessionGenerator().fit(late), Wanted(gpu_jobs=1.5)).jobs
    assert gpu_share(new) == pytest.approx(1.5 * gpu_share(late.jobs), rel=0.12)


@pytest.mark.parametrize(
    ("gpus", "factor", "why"), [(0, 1.3, "No job"), (1, 0.5, "Every job"), (None, 40.0, "more than all.*less than")]
)
def test_a_share_of_gpu_jobs_that_cannot_be_is_one_sentence(gpus, factor, why):
    log = site_workload(300)
    generator = SessionGenerator().fit(log if gpus is None else with_columns(log, gpus=pl.lit(gpus)))
    with pytest.raises(UsageError, match=why):
        sample(generator, Wanted(gpu_jobs=factor))


def test_one_group_alone_is_only_that_group(real):
    name = next(iter(fitted_site().groups()))
    new = jobs(group=name)
    assert set(new["group"]) == {name}
    assert new["user"].n_unique() == int(fitted_site().groups()[name].split()[0])
    assert new.height == pytest.approx(real.filter(pl.col("group") == "zz-group-0").height, rel=0.1)


def test_a_group_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError, match=r"no group 'groop01'.*Did you mean 'group01'\?.*group02"):
        jobs(group="groop01")


def test_a_part_of_the_users_of_a_group_is_never_endless():
    name = list(fitted_site().groups())[-1]
    for seed in range(3):
        new = jobs(group=name, users=0.05, jobs=50, seed=seed)
        assert new.height == 50 and new["user"].n_unique() == 1


def test_next_year_goes_on_at_the_growth_of_the_log():
    growing = site_workload(3000, weeks=26, growth=4.0)
    generator = SessionGenerator().fit(growing)
    assert generator.learnt.book.growth > 3
    later = sample(generator, Wanted(later_years=0.5))
    assert later.height == pytest.approx(growing.height * generator.learnt.book.growth**0.5, rel=0.15)
    assert later.start() - growing.start() > timedelta(weeks=25) and later.start().weekday() == growing.start().weekday()


def test_a_group_that_left_long_ago_has_no_next_year():
    log = site_workload(1200, weeks=80)
    old = pl.col(SUBMIT) < MONDAY + timedelta(weeks=20)
    gone = with_columns(
        log,
        user=pl.when(old).then(pl.format("gone-{}", pl.int_range(pl.len()) % 4)).otherwise("user"),
        group=pl.when(old).then(pl.lit("gone")).otherwise(pl.lit("here")),
    )
    generator = SessionGenerator().fit(gone)
    with pytest.raises(UsageError, match="Nothing is left"):
        sample(generator, Wanted(group="group02", later_years=1, jobs=10))


def office_hours():
    """Sixteen weeks of jobs from Monday to Friday, nine to five."""
    generator = np.random.default_rng(0)
    days = np.array([day for day in range(112) if day % 7 < 5])
    submit = np.sort(generator.choice(days, 3000) * 86400.0 + generator.uniform(9, 17, 3000) * 3600 // 1)
    return workload_at(submit, user=[f"u{number}" for number in generator.integers(0, 9, 3000)], cores=[1] * 3000)


@pytest.mark.parametrize("start", [datetime(2031, 5, 1, 15), datetime(2030, 12, 28, tzinfo=timezone(timedelta(hours=5)))])
def test_a_start_date_keeps_the_rhythm_of_day_and_week(start):
    new = sample(SessionGenerator().fit(office_hours()), Wanted(start=start, days=30)).jobs
    begin = start if start.tzinfo else start.replace(tzinfo=UTC)
    assert begin <= new[SUBMIT].min() < begin + timedelta(days=3) and new[SUBMIT].max() < begin + timedelta(days=30)
    assert set(new[SUBMIT].dt.weekday()) <= {1, 2, 3, 4, 5}
    assert bool(new[SUBMIT].dt.hour().is_between(8, 18).all())


@pytest.mark.parametrize("count", [0, 1, 777, 70_000])
def test_as_many_jobs_as_asked_for(count):
    assert jobs(jobs=count).height == count


def test_as_many_days_as_asked_for(real):
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    new = jobs(days=140, start=begin)
    assert begin <= new[SUBMIT].min() and begin + timedelta(days=139) < new[SUBMIT].max() < begin + timedelta(days=140)
    assert new.height == pytest.approx(2 * real.height, rel=0.15)


def test_without_a_length_it_is_as_long_as_the_log(real):
    new = jobs()
    assert new.height == pytest.approx(real.height, rel=0.02)
    assert abs(new[SUBMIT].max() - real[SUBMIT].max()) < timedelta(hours=3)


def test_a_piece_of_an_hour_may_be_empty_but_has_its_columns(real):
    assert dict(jobs(days=0.0001).schema) == dict(real.schema)


def test_a_start_that_no_calendar_has_is_one_sentence():
    with pytest.raises(UsageError, match="cannot begin in 9999"):
        jobs(start=datetime(9999, 12, 31), jobs=5)


def test_a_negative_seed_is_one_sentence():
    with pytest.raises(UsageError, match="seed -1 is negative"):
        jobs(seed=-1)
    with pytest.raises(UsageError, match="seed"):
        SessionGenerator(seed=-1)


def test_more_users_than_can_be_remembered_are_one_sentence():
    many = SessionGenerator().fit(workload_at(np.arange(6000) * 60.0, user=[f"u{number}" for number in range(6000)]))
    with pytest.raises(UsageError, match="1000 times 6,000 users are too many"):
        sample(many, Wanted(users=1000, jobs=10))


def test_before_it_is_fitted_it_says_so():
    with pytest.raises(ModelError, match="not learnt from a log yet"):
        sample(SessionGenerator(), Wanted(jobs=1))


def test_settings_below_one_are_refused():
    with pytest.raises(UsageError, match="above 0"):
        SessionGenerator(trees=0)


def test_progress_rises_and_says_what_is_learnt():
    told = []
    SessionGenerator().fit(site_workload(300), progress=lambda share, words: told.append((share, words)))
    assert [share for share, _ in told] == sorted(share for share, _ in told) and "requests" in [words for _, words in told]


def test_rare_texts_of_unknown_columns_become_other():
    log = with_columns(
        site_workload(800), note=pl.when(pl.int_range(pl.len()) < 5).then(pl.lit("zz-secret")).otherwise(pl.lit("usual"))
    )
    assert set(sample(SessionGenerator().fit(log), Wanted(jobs=5000)).jobs["note"]) == {"usual", OTHER}


def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_two_million_jobs_need_no_more_memory_than_some_hundred_thousand():
    done, peak = 0, {200_000: 0.0, 2_000_000: 0.0}
    for batch in fitted_site().batches(Wanted(jobs=2_000_000)):
        done += batch.height
        for mark in peak:
            peak[mark] = max(peak[mark], resident_mib()) if done <= mark else peak[mark]
    assert done == 2_000_000 and peak[2_000_000] < peak[200_000] + 60


def test_not_even_the_number_of_sessions_of_a_small_user_is_kept():
    day_s = 86_400.0
    often = np.arange(15) * day_s  # fifteen sessions of one job
    once = np.arange(10) * day_s + 7200.0  # ten users with one job each
    large = np.arange(300) * 3000.0 + 60.0
    names = ["often"] * 15 + [f"once{number}" for number in range(10)] + ["large"] * 300
    log = workload_at(np.concatenate([often, once, large]), user=names, cores=[1] * 325)
    book = SessionGenerator(fewest_jobs=20).fit(log).learnt.book
    sessions_of = np.bincount(book.user)[1:]  # 0 is the user with most jobs
    assert sessions_of.sum() == 25
    assert sessions_of.max() < 15

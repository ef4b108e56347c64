"""When waits become long: on clusters whose growth, capacity and waits are known, and on the simulators."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.events.capacity.capacity import RULE_OF_THUMB, CapacitySource, Outlook, plan_capacity
from stormpetrel.events.capacity.text import headline, reasons, wait_text
from stormpetrel.events.capacity.weeks import load_of_counts
from stormpetrel.simulate.cluster import ClusterSpec, simulate
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.grid.rhythm import RUN_HOURS, groups_of
from tests.events.loads import end_of, load_of_jobs, steady_jobs


def plan_of(weeks=20, *, cores=None, now=None, **how):
    return plan_capacity(load_of_jobs(steady_jobs(weeks, **how), now=now or end_of(weeks + 1), zone="UTC"), cores=cores)


def test_a_growing_load_gets_the_date_at_which_it_reaches_the_knee():
    plan = plan_of(26, growth=0.02, load=0.62, cores=400)
    assert plan.outlook is Outlook.DATED and plan.knee.learnt and plan.knee.utilisation == pytest.approx(0.8, abs=0.051)
    low, high = plan.trend.growth_range
    assert low <= 0.02 <= high and plan.utilisation == pytest.approx(0.62, rel=0.08)
    median, earliest, latest = plan.hurts_from
    reached = plan.record.end + timedelta(weeks=np.log(0.8 / 0.62) / np.log(1.02))  # by arithmetic
    assert earliest <= reached <= latest and abs((median - reached).days) <= 35


@pytest.mark.parametrize("seed", range(6))
def test_a_flat_load_gets_no_date(seed):
    plan = plan_of(26, growth=0.0, load=0.55, cores=400, seed=seed)
    assert plan.outlook is Outlook.NOT_WITHIN and plan.hurts_from == (None, None, None) and plan.reach.share < 0.1


def test_a_load_above_the_knee_hurts_already():
    plan = plan_of(20, load=1.1, cores=400)
    assert plan.outlook is Outlook.ALREADY and "hurts already" in headline(plan)


def test_seven_weeks_are_too_short_and_one_sentence_says_so():
    plan = plan_of(7)
    assert plan.outlook is Outlook.TOO_SHORT and plan.trend is None and plan.forecast is None
    assert headline(plan) == "There are 6 whole weeks of data yet; it takes 8 to tell a trend."


def test_the_capacity_is_what_ran_at_once_and_one_odd_hour_is_not():
    jobs = steady_jobs(20, load=0.7)
    odd = jobs.head(1).with_columns(cpus=pl.lit(1_000_000, dtype=pl.Int64), job_id=pl.lit(-1, dtype=pl.Int64))
    plan = plan_capacity(load_of_jobs(pl.concat([jobs, odd]), now=end_of(21), zone="UTC"))
    assert plan.capacity_source is CapacitySource.SEEN and 350 <= plan.capacity <= 450
    given = plan_of(20, load=0.7, cores=2000)
    assert given.capacity == 2000 and given.capacity_source is CapacitySource.GIVEN
    assert given.utilisation == pytest.approx(0.7 * 400 / 2000, rel=0.1)


def test_where_waits_never_grew_the_rule_of_thumb_is_taken_and_called_one():
    plan = plan_of(20, load=0.5, knee=9.0, cores=400)
    assert not plan.knee.learnt and plan.knee.utilisation == RULE_OF_THUMB
    assert any("rule of thumb" in words for words in reasons(plan))


def test_a_growth_that_chance_explains_gets_no_date_but_is_told():
    plan = plan_of(12, growth=0.02, load=0.7, noise=0.25, cores=400, seed=2)
    assert plan.outlook is Outlook.UNSURE and "no date" in headline(plan)


def test_groups_have_their_share_and_growth():
    groups = plan_of(26, growth=0.02, cores=400).groups
    assert groups["group"].to_list() == ["physics", "chemistry"]
    assert groups["share"].to_list() == pytest.approx([0.75, 0.25], abs=0.02)
    assert (groups["growth_low"] <= 0.02).all() and (groups["growth_high"] >= 0.02).all()


def test_the_same_record_gives_the_same_plan():
    record = load_of_jobs(steady_jobs(20, growth=0.02), now=end_of(21), zone="UTC")
    first, second = (plan_capacity(record) for _ in range(2))
    assert first.hurts_from == second.hurts_from and np.array_equal(first.forecast.high, second.forecast.high)


@pytest.mark.parametrize("cores", [0, -4, 1e-310, float("nan"), float("inf"), 1e12])
def test_a_number_of_cores_that_is_none_is_refused(cores):
    with pytest.raises(UsageError, match="cores"):
        plan_of(9, cores=cores)


# --- the simulators ----------------------------------------------------------------------------------------------------------


def grown(series, growth, seed):
    """The same grid with fewer events in the past: a growth of so much a week, planted by leaving events out at random."""
    weeks = (np.arange(len(series)) - len(series)) / 168
    kept = np.exp(np.log1p(growth) * weeks)[:, None]
    counts = np.random.default_rng(seed).binomial(series.counts.astype(np.int64), kept).astype(float)
    return replace(series, counts=counts)


def own_growth(spec):
    """What the groups of a simulated grid grow by in a week, all together: nobody asked for it, but it is there."""
    groups = groups_of(spec)
    level = np.exp(np.outer(np.arange(spec.hours) / 4368 - 0.5, groups.growth))
    total = level / level.mean(axis=0) @ (groups.weight / (groups.run_mix @ RUN_HOURS))
    return (total[-1] / total[0]) ** (168 / spec.hours) - 1


def test_a_growth_planted_into_the_simulated_grid_is_found():
    found = []
    for seed in range(4):
        spec = GridSpec(seed=seed, outages_per_week=0.5)
        trend = plan_capacity(load_of_counts(grown(simulate_grid(spec).series, 0.03, seed))).trend
        low, high = trend.growth_range
        assert trend.is_growing
        found.append(low <= 1.03 * (1 + own_growth(spec)) - 1 <= high)
    assert sum(found) >= 3, found


@pytest.fixture(scope="module")
def simulated():
    """The jobs of a small simulated cluster; its weeks are far from even, as those of small clusters are."""
    spec = ClusterSpec(nodes=8, cores_per_node=16, days=126, load=0.7, growth_per_year=0.0, seed=4)
    return pl.concat(list(simulate(spec)))


def thinned(jobs, share, seed=0):
    """So many of the jobs, at random."""
    return jobs.filter(pl.Series(np.random.default_rng(seed).random(jobs.height) < share))


def test_twice_the_arrivals_on_the_simulated_cluster_are_twice_the_load_and_nearer_to_hurting(simulated):
    plans = [
        plan_capacity(load_of_jobs(jobs, now=end_of(60), zone="UTC"), cores=128) for jobs in (thinned(simulated, 0.5), simulated)
    ]
    once, twice = plans
    assert twice.record.weeks["load"].sum() / once.record.weeks["load"].sum() == pytest.approx(2.0, rel=0.2)
    assert twice.utilisation > 1.5 * once.utilisation and twice.reach.share > once.reach.share + 0.1


def test_a_growth_planted_into_the_simulated_cluster_is_found(simulated):
    weeks_ago = (simulated["submit_time"].max() - simulated["submit_time"]).dt.total_seconds().to_numpy() / 604_800
    records = [
        load_of_jobs(jobs, now=end_of(60), zone="Europe/Berlin")
        for jobs in (simulated, thinned(simulated, np.exp(-0.06 * weeks_ago)))
    ]
    before, after = (plan_capacity(record).trend for record in records)
    low, high = after.growth_range
    assert low <= (1 + before.growth) * np.exp(0.06) - 1 <= high


# --- words -------------------------------------------------------------------------------------------------------------------


def test_the_headline_names_growth_range_and_months():
    words = headline(plan_of(26, growth=0.02, load=0.62, cores=400))
    assert words.startswith("Load grows ") and "at this rate the queue hurts from " in words and "2025 on" in words


def test_old_data_is_called_old():
    plan = plan_of(20)
    assert any("The data ends with" in words for words in reasons(plan, today=date(2026, 1, 1)))
    assert not any("The data ends with" in words for words in reasons(plan, today=plan.record.end))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h"), (90_000, "25 h"), (260_000, "3.0 days"), (None, "–")],
)
def test_a_wait_is_said_as_people_say_it(seconds, words):
    assert wait_text(seconds) == words

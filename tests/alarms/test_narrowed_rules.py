from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

import polars as pl
import pytest

from stormpetrel.alarms import batch_rules, narrowed_rules, node_rules
from stormpetrel.alarms.known_jobs import as_known_at, known_jobs, touching
from stormpetrel.alarms.triggers import MEMBERS
from stormpetrel.simulate.cluster import ClusterSpec, Fault, simulate

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY_S = 86_400


def of_wave(rule, outcome):
    return lambda jobs, after, now: rule(jobs, outcome, after, now)


RULES = {
    "lost_at_once": (narrowed_rules.lost_at_once, node_rules.lost_at_once),
    "node_failures": (narrowed_rules.node_failures, node_rules.node_failures),
    "batches_failing": (narrowed_rules.batches_failing, batch_rules.batches_failing),
    "applications_failing": (narrowed_rules.applications_failing, batch_rules.applications_failing),
    "time-outs": (of_wave(narrowed_rules.wave, "TIMEOUT"), of_wave(batch_rules.wave, "TIMEOUT")),
    "out of memory": (of_wave(narrowed_rules.wave, "OUT_OF_MEMORY"), of_wave(batch_rules.wave, "OUT_OF_MEMORY")),
}


@cache
def troubled_jobs(seed):
    """Three weeks in which nodes are sick, with every kind of end made more frequent than it is, and a second cluster."""
    faults = (Fault(6, 14 * DAY_S, 17 * DAY_S), Fault(2, 15 * DAY_S, 16 * DAY_S))
    jobs = pl.concat(simulate(ClusterSpec(nodes=12, days=20, load=0.7, seed=seed, start=START, faults=faults)))
    rng = Random(seed)
    ends = ["NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "FAILED", "BOOT_FAIL", "CANCELLED"]
    bad_days = [START + timedelta(days=rng.uniform(13, 19)) for _ in range(12)]
    for day in bad_days:  # hours in which many jobs end in one way
        hour = pl.col("end_time").is_between(day, day + timedelta(hours=rng.choice([1, 3])))
        jobs = jobs.with_columns(state=pl.when(hour).then(pl.lit(rng.choice(ends))).otherwise("state"))
    return known_jobs(pl.concat([jobs, jobs.sample(fraction=0.5, seed=seed).with_columns(cluster=pl.lit("other"))]))


def moments(seed):
    """Steps of seconds, hours and days, at any time of the last week."""
    rng = Random(seed)
    for length in (5, 60, 600, 3600, 40_000, 5 * DAY_S, 7 * DAY_S):
        for _ in range(2):
            now = START + timedelta(seconds=rng.randint(13 * DAY_S, 20 * DAY_S))
            yield now - timedelta(seconds=length), now


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_over_the_jobs_that_matter_fires_as_it_does_over_all_jobs_and_counts_the_same_ones(rule):
    narrowed, whole = RULES[rule]
    fired = 0
    for seed in (0, 1):
        for after, now in moments(seed):
            jobs = as_known_at(troubled_jobs(seed), now)
            wanted, given = whole(jobs, after, now), narrowed(jobs, after, now)
            assert given.rows.equals(wanted.rows)
            fired += wanted.rows.height
            # The members that an episode can count: those of who is named, from its beginning on.
            assert counted(given).equals(counted(wanted))
    assert fired > 0


def counted(triggers):
    keys = ["cluster", "name", "part"]
    since = triggers.rows.group_by(keys).agg(pl.col("since").min())
    mine = triggers.members.join(since, on=keys).filter(pl.col("at") >= pl.col("since"))
    return mine.select(list(MEMBERS)).sort("cluster", "name", "part", "at", "ref")


def test_what_touches_a_node_is_found_in_lists_of_its_own_cluster():
    jobs = pl.DataFrame({"cluster": ["a", "a", "b", "a"], "node_list": ["n[1-3]", "n4", "n[1-3]", None]})
    nodes = pl.DataFrame({"cluster": ["a"], "node": ["n2"]})
    assert touching(jobs, nodes).to_list() == [True, False, False, False]

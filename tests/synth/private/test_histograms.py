"""The histograms behind the guarantee: no user moves one of them by more than its bound."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.synth.private.histograms import count_tables
from stormpetrel.synth.private.layout import COLUMN, GAPS, REPEATS, SHAPES, SPANS, STARTS, USERS, Layout
from tests.synth.made_workloads import MONDAY, made_workload, workload_at

COLUMNS = ("partition", "cores", "time_limit_s", "runtime_s", "state", "colour")


def layout(**changes):
    given_ = {"columns": COLUMNS, "types": {"colour": "text"}, "most_jobs": 6, "most_sessions": 3, "weeks": 4, "has_users": True}
    return Layout(begin_s=MONDAY.timestamp(), **(given_ | changes))


def moved(one, other):
    return {name: int(np.abs(one[name] - other[name]).sum()) for name in one}


def frame(jobs):
    """Jobs of (user, seconds, cores, limit, runtime, state)."""
    names = ("user", "at", "cores", "time_limit_s", "runtime_s", "state")
    rows = {name: [job[place] for job in jobs] for place, name in enumerate(names)}
    at = rows.pop("at")
    return workload_at(np.array(at, dtype=float), **rows).jobs.with_columns(
        pl.lit("q").alias("partition"), pl.lit("blue").alias("colour"),
        *(pl.lit(None).cast(pl.Float64).alias(name) for name in ("time_limit_s", "runtime_s") if not any(rows[name])),
    )  # fmt: skip


JOB = st.tuples(
    st.sampled_from(["ada", "bob", "cem"]),
    st.one_of(st.integers(0, 30_000), st.integers(0, 30 * 86_400)),
    st.integers(0, 2**22),
    st.one_of(st.none(), st.floats(1, 1e6)),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.sampled_from(["COMPLETED", "FAILED", "a state that is none"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=60), st.integers(0, 2**64 - 1), st.sampled_from([1, 3]))
def test_without_one_user_no_table_differs_by_more_than_its_bound(jobs, salt, classes):
    whole = frame([*jobs, ("dan", 5, 1, 60.0, 5.0, "FAILED")])
    public = layout(classes=classes)
    counts = count_tables(whole, public, salt)
    for user in ("ada", "bob", "cem"):
        differs = moved(counts, count_tables(whole.filter(pl.col("user") != user), public, salt))
        assert all(differs[name] <= table.bound for name, table in public.tables().items())


def test_a_user_with_ten_thousand_jobs_moves_every_table_by_its_bound_and_no_more():
    rng = np.random.default_rng(0)
    others = made_workload(300, weeks=4, users=5).jobs.with_columns(colour=pl.lit("red"))
    many = workload_at(
        np.repeat(np.arange(50) * 43_200.0, 200) + np.tile(np.arange(200) * 10.0, 50),
        user=["whale"] * 10_000, partition=["p"] * 10_000,
        cores=rng.integers(1, 5000, 10_000), time_limit_s=rng.uniform(60, 1e5, 10_000), runtime_s=rng.uniform(0, 1e5, 10_000),
        state=["FAILED"] * 10_000, colour=["green"] * 10_000,
    ).jobs  # fmt: skip
    public = layout()
    both = pl.concat([others.select(many.columns), many])
    differs = moved(count_tables(both, public, 7), count_tables(others, public, 7))
    bounds = {name: table.bound for name, table in public.tables().items()}
    assert all(differs[name] <= bounds[name] for name in bounds)
    reached = {USERS: 1, SPANS: 1, STARTS: 3, SHAPES: 3, REPEATS: 6, COLUMN + "cores": 6, COLUMN + "state": 6}
    assert {name: differs[name] for name in reached} == reached


def test_bounds_and_shares_are_the_stated_ones():
    tables = layout(most_jobs=16, most_sessions=8).tables()
    assert sum(table.share for table in tables.values()) == 1
    assert {tables[name].bound for name in (USERS, SPANS)} == {1}
    assert {tables[name].bound for name in (STARTS, SHAPES)} == {8}
    assert {table.bound for name, table in tables.items() if name in (GAPS, REPEATS) or name.startswith(COLUMN)} == {16}


def test_jobs_without_a_user_and_outside_the_period_are_not_counted():
    jobs = frame(
        [("ada", 10, 1, None, None, "FAILED"), (None, 20, 1, None, None, "FAILED"), ("bob", 40 * 86_400, 1, None, None, "FAILED")]
    )
    counts = count_tables(jobs, layout(), 0)
    assert counts[USERS].sum() == counts[STARTS].sum() == counts[COLUMN + "cores"].sum() == 1
    empty = count_tables(jobs.head(0), layout(), 0)
    assert not any(table.any() for table in empty.values())


def test_counts_say_what_the_log_is_like():
    # Two sessions: three jobs ten seconds apart, and one the day after.
    jobs = frame([("ada", at, 4, 3600.0, 3600.0, "TIMEOUT") for at in (36_000, 36_010, 36_020, 122_400)])
    counts = count_tables(jobs, layout(), 0)
    assert counts[STARTS][10] == 1 and counts[STARTS][34] == 1
    assert counts[SHAPES][0, 1, 2] == 1 and counts[SHAPES][0, 0, 0] == 1  # 2-3 jobs at 4-32 s; one job
    assert counts[GAPS][2, 0, 4] == 1 and counts[GAPS][2, 2, 4] == 1  # gaps of 8-15 s: the first, and after one like it
    assert counts[REPEATS].tolist()[0] == [1, 0, 0, 1] and counts[REPEATS][2, 3] == 2
    assert counts[COLUMN + "runtime_s"][0, 1, -1] == 4 and counts[COLUMN + "state"][1].sum() == 4  # at the limit


@pytest.mark.parametrize("unit_has_users", [True, False])
def test_each_job_is_a_user_of_its_own_only_where_asked_for(unit_has_users):
    public = layout(has_users=unit_has_users, most_jobs=6 if unit_has_users else 1, most_sessions=3 if unit_has_users else 1)
    jobs = frame([("ada", at, 4, 60.0, 5.0, "FAILED") for at in range(5)])
    assert count_tables(jobs, public, 0)[USERS].sum() == (1 if unit_has_users else 5)

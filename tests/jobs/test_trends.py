"""Failure rates over time, and whose have changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.errors import UsageError
from stormpetrel.jobs.trends import MOVER_SCHEMA, TREND_SCHEMA, benjamini_hochberg, failure_trend, fisher_exact, movers
from stormpetrel.records.jobs import job_frame
from tests.builders import T0


def week_of(number, *, total, failed, **fields):
    """Jobs that end on the Monday of a week, the first `failed` of them failed."""
    end = T0 + timedelta(weeks=number)
    return [{"job_id": k, "state": "FAILED" if k < failed else "COMPLETED", "end_time": end, **fields} for k in range(total)]


def ann_breaks_something():
    rows = [row for week in range(4) for row in week_of(week, total=50, failed=3, user="ann")]
    rows += [row for week in range(5) for row in week_of(week, total=50, failed=10, user="bob")]
    return job_frame(rows + week_of(4, total=40, failed=31, user="ann"))


def test_a_job_counts_in_the_week_in_which_it_ended():
    late = {"job_id": 1, "user": "ann", "state": "FAILED", "submit_time": T0 - timedelta(weeks=3), "end_time": T0}
    trend = failure_trend(job_frame([late] * 20), by="user")
    assert trend.select("group", "period", "jobs", "failed").rows() == [("ann", date(2024, 3, 4), 20, 20)]


def test_the_period_is_in_the_sites_zone():
    rows = week_of(0, total=20, failed=5, user="ann")
    frame = job_frame([{**row, "end_time": datetime(2024, 3, 3, 23, 30, tzinfo=UTC)} for row in rows])
    assert failure_trend(frame, by="user")["period"].item() == date(2024, 2, 26)
    assert failure_trend(frame, by="user", time_zone="Europe/Stockholm")["period"].item() == date(2024, 3, 4)


def test_a_day_whose_midnight_the_clock_skips_is_still_a_day():
    rows = week_of(0, total=20, failed=5, user="ann")
    frame = job_frame([{**row, "end_time": datetime(2023, 9, 3, 18, tzinfo=UTC)} for row in rows])
    assert failure_trend(frame, by="user", every="1d", time_zone="America/Santiago")["period"].item() == date(2023, 9, 3)


def test_intervals_hold_their_rate_and_stay_between_zero_and_one():
    frame = job_frame(week_of(0, total=20, failed=0, user="ann") + week_of(1, total=20, failed=20, user="ann"))
    trend = failure_trend(frame, by="user")
    assert trend["low"].to_list()[0] == 0.0
    assert trend["high"].to_list()[1] == 1.0
    assert trend.filter(~pl.col("rate").is_between("low", "high")).is_empty()


def test_wilsons_interval_is_the_textbooks():
    trend = failure_trend(job_frame(week_of(0, total=40, failed=10, user="ann")), by="user")
    assert trend.select("low", "high").row(0) == pytest.approx((0.1419, 0.4019), abs=1e-4)


def test_small_groups_are_left_out_and_the_most_failures_come_first():
    rows = week_of(0, total=19, failed=19, user="rare")
    for number in range(4):
        rows += week_of(0, total=30, failed=number, user=f"user{number}")
    assert set(failure_trend(job_frame(rows), by="user", top=2)["group"]) == {"user3", "user2"}
    assert failure_trend(job_frame(rows), by="user", top=None)["group"].n_unique() == 4


def test_nodes_are_expanded_and_each_counts_the_job():
    rows = week_of(0, total=20, failed=4, node_list="n[1-2]") + week_of(0, total=10, failed=1, node_list="n2,n2")
    trend = failure_trend(job_frame(rows), by="node")
    assert trend.select("group", "jobs", "failed").rows() == [("n1", 20, 4), ("n2", 30, 5)]


def test_projects_applications_and_profiles_have_trends_too():
    frame = job_frame(week_of(0, total=20, failed=4, account="lab", job_name="fit_17")).with_columns(profile=pl.lit(2))
    assert [failure_trend(frame, by=by)["group"].to_list() for by in ("account", "application", "profile")] == [
        ["lab"],
        ["fit"],
        ["2"],
    ]


@pytest.mark.parametrize("by", ["user", "account", "application", "node", "profile", "partition"])
@pytest.mark.parametrize("rows", [[], week_of(0, total=30, failed=3)])
def test_a_log_that_tells_no_group_has_no_trend(by, rows):
    trend = failure_trend(job_frame(rows), by=by)
    assert trend.is_empty()
    assert trend.schema == TREND_SCHEMA
    assert movers(trend).schema == MOVER_SCHEMA


def test_running_jobs_and_jobs_without_an_end_count_nowhere():
    rows = week_of(0, total=20, failed=4, user="ann")
    odd = [{"job_id": 99, "user": "ann", "state": "RUNNING", "end_time": T0}, {"job_id": 98, "user": "ann", "state": "FAILED"}]
    assert failure_trend(job_frame(rows + odd), by="user")["jobs"].item() == 20


@pytest.mark.parametrize(("by", "every"), [("colour", "1w"), ("user", "1h"), ("user", "soon"), ("user", "0w")])
def test_an_unknown_group_or_period_is_refused(by, every):
    with pytest.raises(UsageError):
        failure_trend(job_frame([]), by=by, every=every)


def test_the_one_who_changed_is_named_in_a_plain_sentence():
    found = movers(failure_trend(ann_breaks_something(), by="user"))
    assert found["sentence"].to_list() == ["user ann: 31 of 40 jobs failed in the week of 1 April; 6 % before"]
    assert found.schema == MOVER_SCHEMA


@pytest.mark.parametrize(("every", "words"), [("1d", "on 1 April"), ("1mo", "in April"), ("2w", "in the period from 1 April")])
def test_the_sentence_names_the_period(every, words):
    assert words in movers(failure_trend(ann_breaks_something(), by="user", every=every))["sentence"].item()


def test_a_steady_rate_is_no_news():
    rows = [row for week in range(5) for row in week_of(week, total=50, failed=10, user="bob")]
    assert movers(failure_trend(job_frame(rows), by="user")).is_empty()


def test_one_period_alone_has_no_movers():
    assert movers(failure_trend(job_frame(week_of(0, total=50, failed=50, user="ann")), by="user")).is_empty()


def test_one_failure_of_one_job_is_no_proof():
    rows = week_of(0, total=50, failed=10, user="ann") + week_of(1, total=1, failed=1, user="ann")
    assert movers(failure_trend(job_frame(rows), by="user")).is_empty()


def test_chance_alone_seldom_makes_a_mover():
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(40):
        counts = rng.binomial(40, 0.2, size=(2, 30))
        p_values = fisher_exact(counts[0], np.full(30, 40), counts[1], np.full(30, 40))
        found += bool(benjamini_hochberg(p_values).any())
    assert found <= 4


pairs = st.tuples(st.integers(1, 60), st.integers(1, 400)).flatmap(
    lambda sizes: st.tuples(st.integers(0, sizes[0]), st.just(sizes[0]), st.integers(0, sizes[1]), st.just(sizes[1]))
)


@settings(max_examples=80, deadline=None)
@given(pair=pairs)
def test_fishers_test_agrees_with_scipy(pair):
    from scipy import stats  # comes with scikit-learn

    hits, total, other_hits, other_total = pair
    expected = stats.fisher_exact([[hits, total - hits], [other_hits, other_total - other_hits]]).pvalue
    assert fisher_exact(*(np.array([value]) for value in pair))[0] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_benjamini_and_hochberg_let_the_rank_decide():
    assert benjamini_hochberg(np.array([0.04, 0.001, 0.03, 0.9])).tolist() == [False, True, False, False]
    assert benjamini_hochberg(np.array([0.02, 0.03, 0.035, 0.04])).tolist() == [True] * 4
    assert benjamini_hochberg(np.array([])).tolist() == []

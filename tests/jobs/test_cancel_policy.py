"""The cancel policy, replayed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.errors import UsageError
from stormpetrel.jobs.cancel_policy import cancel_curve, policy_at


def jobs(*rows):
    schema = {"risk": pl.Float64, "failed": pl.Boolean, "elapsed_s": pl.Float64, "cpus": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


THREE = jobs((0.9, True, 1120.0, 10), (0.6, False, 320.0, 4), (0.2, True, 220.0, 1))


def made(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    failed = rng.random(n) < 0.3
    risk = np.clip(rng.beta(2, 5, n) + 0.4 * failed, 0, 1)
    return pl.DataFrame({"risk": risk, "failed": failed, "elapsed_s": rng.exponential(2000, n), "cpus": rng.integers(1, 64, n)})


def test_saved_is_what_failed_jobs_held_after_the_check():
    point = policy_at(cancel_curve(THREE), 0.7)
    assert (point.cancelled, point.failed_cancelled, point.wrong_kills) == (1, 1, 0)
    assert point.saved_core_seconds == 10 * 1000


def test_a_wrong_kill_costs_its_result_and_its_first_two_minutes():
    point = policy_at(cancel_curve(THREE), 0.5)
    assert (point.wrong_kills, point.wrong_core_seconds, point.redo_core_seconds) == (1, 4 * 200, 4 * 120)
    assert point.wrong_share == 1.0
    assert point.net_core_seconds == 10_000 - 480 - 800


def test_a_job_is_cancelled_above_the_threshold_and_not_at_it():
    curve = cancel_curve(THREE)
    assert policy_at(curve, 0.9).cancelled == 0
    assert policy_at(curve, 0.89).cancelled == 1


def test_zero_cancels_every_risky_job_and_one_cancels_none():
    curve = cancel_curve(THREE)
    assert (policy_at(curve, 0.0).cancelled, policy_at(curve, 1.0).cancelled) == (3, 0)


def test_the_best_threshold_has_the_highest_net():
    assert cancel_curve(THREE).best.tau == 0.6


def test_a_higher_price_never_kills_more_good_jobs():
    kills = [cancel_curve(made(), wrong_kill_price=price).best.wrong_kills for price in (0.0, 0.5, 1.0, 3.0, 10.0)]
    assert kills == sorted(kills, reverse=True)
    assert kills[0] > kills[-1]


def test_where_nothing_pays_the_best_is_to_cancel_nothing():
    best = cancel_curve(jobs((0.9, False, 1000.0, 4), (0.1, True, 121.0, 1))).best
    assert (best.tau, best.cancelled, best.net_core_seconds) == (1.0, 0, 0.0)


def test_jobs_that_ended_within_two_minutes_are_out_of_reach():
    curve = cancel_curve(jobs((0.9, True, 120.0, 4), (0.8, True, 121.0, 4)))
    assert (curve.jobs, curve.ended_before) == (1, 1)
    assert policy_at(curve, 0.0).saved_core_seconds == 4


def test_jobs_without_risk_outcome_or_size_are_counted_apart():
    frame = jobs(
        (None, True, 500.0, 4), (0.5, None, 500.0, 4), (0.5, True, None, 4), (0.5, True, 500.0, None), (0.5, True, 500.0, 4)
    )
    curve = cancel_curve(frame)
    assert (curve.jobs, curve.unjudged) == (1, 4)


def test_core_seconds_take_the_place_of_cpus():
    given_sums = THREE.select("risk", "failed", "elapsed_s", core_seconds=(pl.col("elapsed_s") * pl.col("cpus")).cast(pl.Int64))
    assert cancel_curve(given_sums).points.equals(cancel_curve(THREE).points)


def test_the_curve_is_thinned_and_keeps_its_ends_and_its_best():
    full, thin = cancel_curve(made(), most_points=None), cancel_curve(made(), most_points=50)
    assert full.points.height > 500
    assert thin.points.height <= 50
    assert thin.best == full.best
    assert policy_at(thin, thin.best.tau) == thin.best
    assert thin.points["tau"].to_list()[:: thin.points.height - 1] == [0.0, 1.0]


def test_five_hundred_points_are_the_most_unless_told():
    assert cancel_curve(made()).points.height <= 500


@pytest.mark.parametrize("frame", [jobs(), jobs((0.5, True, 60.0, 1)), jobs((0.5, True, 500.0, None))])
def test_nothing_to_replay_gives_a_curve_that_cancels_nothing(frame):
    curve = cancel_curve(frame)
    assert curve.best.tau == 1.0
    assert curve.points["cancelled"].sum() == 0


def test_all_failed_saves_most_at_zero_and_none_failed_saves_nothing():
    assert cancel_curve(made().filter("failed")).best.tau == 0.0
    assert cancel_curve(made().filter(~pl.col("failed"))).best.cancelled == 0


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (THREE.drop("risk"), {}, "lack risk"),
        (THREE.drop("cpus"), {}, "lack cpus or core_seconds"),
        (THREE.with_columns(risk=pl.lit(1.5)), {}, "outside 0 to 1"),
        (THREE, {"wrong_kill_price": -1.0}, "cannot be -1.0"),
        (THREE, {"most_points": 1}, "cannot have 1 points"),
    ],
)
def test_a_wrong_question_is_answered_in_one_sentence(frame, options, words):
    with pytest.raises(UsageError, match=words):
        cancel_curve(frame, **options)


def test_a_threshold_outside_zero_to_one_is_refused():
    with pytest.raises(UsageError, match="not a probability"):
        policy_at(cancel_curve(THREE), 1.2)


few_risks = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.99, 1.0])
rows = st.lists(st.tuples(few_risks, st.booleans(), st.integers(0, 10_000).map(float), st.integers(1, 500)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(rows=rows, tau=st.floats(0, 1))
def test_the_curve_says_what_a_job_by_job_replay_says(rows, tau):
    point = policy_at(cancel_curve(jobs(*rows), most_points=None), tau)
    stopped = [row for row in rows if row[2] > 120 and row[0] > tau]
    assert point.cancelled == len(stopped)
    assert point.saved_core_seconds == sum(cpus * (elapsed - 120) for _, failed, elapsed, cpus in stopped if failed)
    assert point.wrong_core_seconds == sum(cpus * (elapsed - 120) for _, failed, elapsed, cpus in stopped if not failed)
    assert point.redo_core_seconds == sum(cpus * 120 for _, failed, _, cpus in stopped if not failed)

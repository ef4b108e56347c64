"""Where a flag begins: by cost, by the best expected F1, by a budget; and nothing from the future."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.learn.metrics import best_f1_threshold, scores_at
from stormpetrel.learn.recalibration import expit
from stormpetrel.learn.working_point import DAY_S, Costs, Stream, best_expected_f1, join_walks, walk


def stream(n: int, *, shift: float = 0.0, seed: int = 0, per_day: float = 100.0, lasts_s: float = 3600.0) -> Stream:
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.5, n)
    made = np.sort(rng.random(n)) * n / per_day * DAY_S
    return Stream(expit(odds), rng.random(n) < expit(odds + shift), made, made + rng.exponential(lasts_s, n))


BEFORE = stream(2000, seed=9)


def test_the_expected_f1_finds_the_threshold_that_outcomes_would():
    many = stream(50_000)
    assert best_expected_f1(many.forecast) == pytest.approx(best_f1_threshold(many.failed, many.forecast), abs=0.05)


@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.5])
def test_f1_after_a_shift_is_near_the_best_that_any_threshold_reaches(shift):
    judged = stream(3000, shift=shift)
    best = max(scores_at(judged.failed, judged.forecast, threshold)[2] for threshold in np.linspace(0, 1, 101))
    assert walk(judged, BEFORE, Costs()).figures(judged.failed)["f1"] > best - 0.03


def test_a_missed_failure_that_costs_nine_wrong_flags_is_flagged_from_ten_percent_on():
    judged = stream(2000)
    walked = walk(judged, BEFORE, Costs(missed=9.0))
    assert walked.probability[walked.flagged].min() >= 0.1
    assert walked.probability[~walked.flagged].max() < 0.1


@pytest.mark.parametrize(("shift", "per_day"), [(0.0, 100.0), (1.5, 100.0), (-1.0, 400.0)])
def test_the_budget_of_flags_is_kept_whatever_the_failure_rate(shift, per_day):
    judged = stream(3000, shift=shift, per_day=per_day)
    flags = walk(judged, BEFORE, Costs(flags_per_day=20.0)).figures(judged.failed)["flags_per_day"]
    assert flags["promised"] == 20.0
    assert 20 / 1.5 <= flags["realised"] <= 20 * 1.5


def test_no_day_has_more_than_one_and_a_half_times_the_budget():
    judged = stream(3000)
    burst = Stream(
        judged.forecast, judged.failed, np.where(judged.made_s < 10 * DAY_S, judged.made_s, 10 * DAY_S), judged.known_s
    )
    made = burst.made_s[walk(burst, BEFORE, Costs(flags_per_day=20.0)).budgeted]
    assert max(((made > time - DAY_S) & (made <= time)).sum() for time in made) <= 30


def test_the_budget_is_spent_on_the_riskier_jobs():
    judged = stream(3000)
    walked = walk(judged, BEFORE, Costs(flags_per_day=20.0))
    assert judged.failed[walked.budgeted].mean() > 2 * judged.failed.mean()


def test_what_happens_later_changes_nothing_that_was_said_before():
    judged = stream(1500)
    half = judged.made_s < np.median(judged.made_s)
    other = Stream(
        judged.forecast, np.where(judged.known_s < judged.made_s[half].max(), judged.failed, True), judged.made_s, judged.known_s
    )
    one, two = walk(judged, BEFORE, Costs()), walk(other, BEFORE, Costs())
    assert (one.probability[half] == two.probability[half]).all()
    assert (one.flagged[half] == two.flagged[half]).all()


def test_an_outcome_at_the_very_moment_of_a_forecast_is_not_known_yet():
    judged = stream(600)
    never = Stream(judged.forecast, judged.failed, judged.made_s, np.full(judged.made_s.size, judged.made_s.max()))
    assert np.allclose(
        walk(never, BEFORE, Costs()).probability,
        walk(judged.take(slice(0, 0)), BEFORE, Costs()).calibration.probability(never.forecast),
    )


def test_a_log_without_earlier_slices_is_walked_all_the_same():
    judged = stream(300)
    assert walk(judged, BEFORE.take(slice(0, 0)), Costs()).figures(judged.failed)["ece"] < 0.15


def test_walks_of_several_cuts_add_up():
    parts = [walk(stream(200, seed=seed), BEFORE, Costs()) for seed in (1, 2)]
    assert join_walks(parts).probability.size == 400
    assert join_walks(parts).days == pytest.approx(parts[0].days + parts[1].days)

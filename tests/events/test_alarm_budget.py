"""The alarm budget."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.events.alarm_budget import FEWEST_DAYS, daily_thresholds, episodes, threshold_for

HOUR = 3600


def alarms_at(*places, buckets=200):
    alarm = np.zeros(buckets, dtype=bool)
    alarm[list(places)] = True
    return alarm


def test_runs_less_than_six_hours_apart_are_one_episode():
    assert episodes(alarms_at(10, 11, 17), HOUR) == [(10, 17)]  # five calm hours between
    assert episodes(alarms_at(10, 11, 18), HOUR) == [(10, 11), (18, 18)]  # six
    assert episodes(alarms_at(), HOUR) == []


def test_six_hours_are_six_hours_in_buckets_of_any_length():
    assert len(episodes(alarms_at(10, 45), 600)) == 1  # 34 buckets of ten minutes between
    assert len(episodes(alarms_at(10, 47), 600)) == 2
    assert episodes(alarms_at(3, 4, 6), 86_400) == [(3, 4), (6, 6)]  # days that follow each other are one


def test_the_threshold_lets_through_as_many_episodes_as_the_budget_allows():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=10 * 168)
    calm = np.ones(scores.size, dtype=bool)
    for per_week in (0.5, 1.0, 3.0):
        threshold = threshold_for(scores, calm, HOUR, per_week)
        assert len(episodes(scores > threshold, HOUR)) <= 10 * per_week
        lower = np.nextafter(threshold, -np.inf)
        assert len(episodes(scores > lower, HOUR)) > 10 * per_week  # the lowest that does


def test_all_higher_thresholds_keep_the_budget_too():
    """Where all scores are above a low threshold there is one episode again: that is not what is meant."""
    scores = np.random.default_rng(1).normal(size=4 * 168)
    threshold = threshold_for(scores, np.ones(scores.size, dtype=bool), HOUR, 1.0)
    assert (scores > threshold).mean() < 0.05
    for higher in np.sort(scores[scores > threshold]):
        assert len(episodes(scores > higher, HOUR)) <= 4


def test_an_episode_that_lasts_for_weeks_is_not_within_the_budget():
    scores = np.zeros(4 * 168)
    scores[168:504] = 5 + np.arange(336) / 1000  # one run of two weeks
    threshold = threshold_for(scores, np.ones(scores.size, dtype=bool), HOUR, 1.0)
    assert 1 <= (scores > threshold).sum() <= 4 * 24


def test_a_score_that_is_always_the_same_never_alarms():
    scores = np.full(4 * 168, 2.0)
    assert not (scores > threshold_for(scores, np.ones(scores.size, dtype=bool), HOUR, 1.0)).any()


def test_what_is_not_calm_counts_neither_as_alarm_nor_as_time():
    scores = np.random.default_rng(2).normal(size=4 * 168)
    calm = np.ones(scores.size, dtype=bool)
    plain = threshold_for(scores, calm, HOUR, 1.0)
    longer, mask = np.append(scores, np.full(8 * 168, 99.0)), np.append(calm, np.zeros(8 * 168, dtype=bool))
    assert threshold_for(longer, mask, HOUR, 1.0) == plain


def test_less_than_a_week_of_calm_allows_no_alarm_at_one_a_week():
    scores = np.random.default_rng(3).normal(size=100)
    assert threshold_for(scores, np.ones(100, dtype=bool), HOUR, 1.0) == scores.max()


@pytest.mark.parametrize("scores", [np.full(10, np.nan), np.empty(0)])
def test_without_calm_scores_there_is_no_threshold(scores):
    with pytest.raises(ModelError, match="no calm bucket"):
        threshold_for(scores, np.ones(scores.size, dtype=bool), HOUR, 1.0)


def test_endless_scores_are_above_all_others():
    scores = np.random.default_rng(4).normal(size=2 * 168)
    scores[[20, 60, 100]] = np.inf
    assert threshold_for(scores, np.ones(scores.size, dtype=bool), HOUR, 1.0) == np.inf


def hours_from(day, count):
    return day * 86_400 + HOUR * np.arange(count, dtype=np.int64)


def test_the_threshold_of_a_day_follows_a_site_that_has_become_noisier():
    rng = np.random.default_rng(2)
    weeks = 60
    scale = np.repeat([1.0, 3.0], weeks // 2 * 168)
    scores = scale * rng.exponential(size=weeks * 168)
    calm = np.ones(scores.size, dtype=bool)
    first = threshold_for(scores[: 8 * 168], calm[: 8 * 168], HOUR, 1.0)
    thresholds = daily_thresholds(scores, calm, hours_from(100, scores.size), HOUR, 1.0, first=first)
    late = slice((weeks // 2 + 8) * 168, None)
    followed, stayed = (len(episodes(scores[late] > limit, HOUR)) / 22 for limit in (thresholds[late], first))
    assert 0.5 <= followed <= 1.3 and stayed > 5


def test_the_threshold_of_a_day_knows_nothing_of_that_day_or_of_later_ones():
    rng = np.random.default_rng(3)
    scores = rng.exponential(size=30 * 24)
    other = scores.copy()
    other[20 * 24 :] *= 10
    calm, start_s = np.ones(scores.size, dtype=bool), hours_from(100, scores.size)
    before, after = (daily_thresholds(one, calm, start_s, HOUR, 1.0, first=9.0) for one in (scores, other))
    assert (before[: 21 * 24] == after[: 21 * 24]).all() and before[-1] != after[-1]
    assert (before[: FEWEST_DAYS * 24] == 9.0).all() and (before[FEWEST_DAYS * 24 :] != 9.0).all()


def test_outages_that_nobody_labelled_hardly_move_the_threshold_of_a_day():
    rng = np.random.default_rng(4)
    scores = rng.exponential(size=60 * 24)
    with_outages = scores.copy()
    with_outages[5 * 24 :: 10 * 24] = 100.0  # one day in ten
    calm, start_s = np.ones(scores.size, dtype=bool), hours_from(100, scores.size)
    without, beside = (daily_thresholds(one, calm, start_s, HOUR, 1.0, first=9.0)[-1] for one in (scores, with_outages))
    assert beside == pytest.approx(without, rel=0.15)


def test_gaps_and_days_seen_in_part_say_nothing_about_the_threshold():
    scores = np.random.default_rng(5).exponential(size=40 * 24)
    start_s = hours_from(100, scores.size)
    calm = np.ones(scores.size, dtype=bool)
    calm[np.arange(scores.size) % 24 < 13] = False  # eleven hours of each day
    assert (daily_thresholds(scores, calm, start_s, HOUR, 1.0, first=9.0) == 9.0).all()
    assert (daily_thresholds(np.full(scores.size, np.nan), calm, start_s, HOUR, 1.0, first=9.0) == 9.0).all()

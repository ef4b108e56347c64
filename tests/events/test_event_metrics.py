"""Figures of an alarm."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.events import event_metrics
from stormpetrel.events.event_metrics import Caught, TestOutage, by_outage, counted_buckets, judge_alarm, outages_in
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS
from tests.events.rhythmic import broken, rhythmic_series


@pytest.fixture
def test_part():
    """Two weeks with outages at 50–55 and 200–209, and a maintenance at 100–109."""
    series = broken(rhythmic_series(2), (50, 55), (200, 209))
    series.label[100:110] = MAINTENANCE
    return series


def scores_with(series, **at):
    scores = np.zeros(len(series))
    for place in at["at"]:
        scores[place] = 9.0
    return scores


def figures(series, *places, threshold=5.0):
    return judge_alarm(scores_with(series, at=places), series, outages_in(series), threshold)


def test_an_outage_is_raised_by_one_alarm_within_it(test_part):
    found = figures(test_part, 52, 204, 205)
    assert found.recall_at_one_per_week == 1.0 and found.false_alarms_per_week == 0.0 and found.precision == 1.0
    assert [one.delay_hours for one in found.caught] == [3.0, 5.0]  # to the end of the alarming hour
    assert found.delay_hours == 4.0


def test_a_missed_outage_has_no_delay(test_part):
    found = figures(test_part, 55)
    assert found.recall_at_one_per_week == 0.5 and found.delay_hours == 6.0
    assert found.caught[1].delay_hours is None


def test_alarms_in_the_aftermath_or_a_maintenance_are_nobodys(test_part):
    found = figures(test_part, 56, 61, 103)
    assert found.false_alarms_per_week == 0.0 and found.recall_at_one_per_week == 0.0


def test_false_alarms_are_episodes_per_week_of_calm_hours(test_part):
    found = figures(test_part, 10, 12, 30, 62)  # 10 and 12 are one; 62 is the first hour after the aftermath
    calm = len(test_part) - 16 - 12 - 10
    assert found.false_alarms_per_week == pytest.approx(3 / (calm / 168))
    assert found.precision == 0.0 and found.alarm_share == pytest.approx(4 / calm)


def test_an_alarm_that_never_ends_shows_in_its_share(test_part):
    found = judge_alarm(np.full(len(test_part), 9.0), test_part, outages_in(test_part), 5.0)
    assert found.recall_at_one_per_week == 1.0 and found.alarm_share == 1.0
    assert found.pr_auc == pytest.approx(found.outage_share) == pytest.approx(16 / (336 - 22))  # no better than chance


def test_a_bucket_without_a_score_stands_below_all_others(test_part):
    scores = scores_with(test_part, at=range(200, 210))
    scores[50:56] = np.nan
    found = judge_alarm(scores, test_part, outages_in(test_part), 5.0)
    assert found.recall_at_one_per_week == 0.5 and found.pr_auc < 0.8


def test_endless_scores_count_as_the_highest(test_part):
    scores = scores_with(test_part, at=(10,))
    scores[test_part.label == ANOMALY] = np.inf
    assert judge_alarm(scores, test_part, outages_in(test_part), 5.0).pr_auc == 1.0


def test_gaps_maintenance_and_aftermath_are_not_counted(test_part):
    test_part.counts[300] = np.nan
    left_out = np.flatnonzero(~counted_buckets(test_part))
    assert left_out.tolist() == [*range(56, 62), *range(100, 110), *range(210, 216), 300]


def test_an_outage_nobody_could_see_is_not_held_against_a_model(test_part):
    test_part.counts[50:56] = np.nan
    assert len(figures(test_part, 201).caught) == 1


def test_without_outages_only_false_alarms_can_be_told():
    series = rhythmic_series(2)
    found = judge_alarm(scores_with(series, at=(7,)), series, [], 5.0)
    assert found.pr_auc is None and found.recall_at_one_per_week is None and found.delay_hours is None
    assert found.false_alarms_per_week == pytest.approx(0.5)


def test_outages_are_read_off_the_labels(test_part):
    assert outages_in(test_part) == [TestOutage(50, 55), TestOutage(200, 209)]
    assert outages_in(test_part.with_labels(np.full(len(test_part), NORMAL))) == []


def test_figures_by_type_and_severity():
    caught = [Caught("storm", "mild", None), Caught("storm", "mild", 2.0), Caught("storm", "severe", 1.0)]
    assert by_outage(caught) == {
        "storm": {"mild": {"recall": 0.5, "delay_hours": 2.0, "n": 2}, "severe": {"recall": 1.0, "delay_hours": 1.0, "n": 1}}
    }


def test_the_aftermath_is_as_long_as_the_simulated_one():
    assert event_metrics.AFTERMATH_HOURS == AFTERMATH_HOURS

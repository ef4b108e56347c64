"""A scorecard as lines: which figure, its ideal, its floor, and whether that is near."""

from __future__ import annotations

import pytest

from stormpetrel.answers.workload.scores import scores_of
from tests.answers.workload_sites import CARD


def lines(card=CARD):
    return {line.measure: line for line in scores_of(card)}


def test_a_figure_stands_beside_its_ideal_and_its_floor():
    found = lines()["Distribution: interval"]
    assert (found.value, found.ideal, found.floor, found.verdict) == (0.04, 0.0, 0.03, "near")
    assert found.times_floor == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("measure", "verdict"),
    [
        ("Distribution: nodes", "off"),  # three times the floor
        ("Distribution: outcome", "near"),  # no floor, but so small that nobody could tell
        ("Lag-1 autocorrelation", "off"),
        ("Dispersion of hourly counts", "near"),  # nearer than the floor
        ("Exact copies", "off"),  # twenty times what chance gives
        ("Told apart, three in a row", "near"),
        ("Nearest-record ratio", "near"),  # further away than unseen jobs is no fault
        ("Membership attack", "off"),
    ],
)
def test_near_is_what_real_weeks_reach_among_themselves(measure, verdict):
    assert lines()[measure].verdict == verdict


def test_what_was_not_measured_is_left_out_and_the_order_of_jobs_comes_before_other_columns():
    measures = list(lines())
    assert "Told apart, job by job" not in measures
    assert measures.index("Lag-1 autocorrelation") < measures.index("Distribution: nodes")


@pytest.mark.parametrize("card", [{}, {"columns": 3, "floor": "x"}, {"lag1": {"real": float("nan"), "synthetic": True}}])
def test_a_scorecard_that_is_none_has_no_lines(card):
    assert scores_of(card) == []

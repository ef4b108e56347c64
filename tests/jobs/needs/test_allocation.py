"""Allocation: the definition of waste, and the amount that wastes least."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.jobs.needs.allocation import Policy, allocate, judge
from stormpetrel.jobs.needs.forecast import UseForecast


def forecast_of(amounts: list[float], chance: list[float]) -> UseForecast:
    return UseForecast(np.array([amounts], np.float32), np.array([chance], np.float32))


def test_an_amount_that_is_enough_wastes_what_is_left():
    figures = judge(np.array([10.0]), np.array([4.0]), np.array([2.0]))
    assert figures.under_share == 0.0 and figures.waste_ratio == pytest.approx(6.0 / 4.0)


def test_a_failed_attempt_counts_whole_and_is_repeated_with_double():
    # 3 fails and is lost, 6 fails and is lost, 12 leaves 2: 11 of 10 used.
    figures = judge(np.array([3.0]), np.array([10.0]), np.array([1.0]))
    assert figures.under_share == 1.0 and figures.waste_ratio == pytest.approx(11.0 / 10.0)


def test_waste_is_weighted():
    figures = judge(np.array([2.0, 2.0]), np.array([1.0, 2.0]), np.array([3.0, 1.0]))
    assert figures.waste_ratio == pytest.approx(3.0 / 5.0)


def test_nothing_above_the_request_is_given():
    given = allocate(forecast_of([50.0, 200.0], [0.5, 0.5]), np.array([100.0]), np.ones(1), 1e9).granted
    assert given[0] == 100.0


def test_a_high_price_of_failures_buys_more():
    forecast = forecast_of([10.0, 90.0], [0.95, 0.05])
    cheap, dear = (allocate(forecast, np.array([100.0]), np.ones(1), price).granted[0] for price in (0.0, 1e6))
    assert cheap == pytest.approx(10.0) and dear == pytest.approx(90.0)


def test_a_risk_above_the_most_is_never_taken():
    forecast = forecast_of([1.0, 90.0], [0.7, 0.3])
    assert allocate(forecast, np.array([100.0]), np.ones(1), 0.0, most_risk=0.1).granted[0] == pytest.approx(90.0)


def test_a_policy_survives_its_own_json():
    policy = Policy(np.inf, 1.25, 0.1, 1.5, 8)
    assert Policy.from_json(policy.as_json()) == policy


def test_quantiles_are_the_smallest_amounts_that_are_enough():
    forecast = forecast_of([1.0, 2.0, 3.0], [0.5, 0.4, 0.1])
    assert forecast.quantiles((0.5, 0.9, 0.99)).tolist() == [[1.0, 2.0, 3.0]]
    assert forecast.chance_of_more(np.array([2.0]))[0] == pytest.approx(0.1)

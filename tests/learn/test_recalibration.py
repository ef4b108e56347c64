"""Risks corrected by how the latest ones turned out."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.learn.metrics import expected_calibration_error
from stormpetrel.learn.recalibration import Calibration, Recalibrator, expit, log_odds


def drawn(n: int, *, shift: float = 0.0, slope: float = 1.0, seed: int = 0):
    """Forecasts, and outcomes that follow another line in log-odds than the forecasts say."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.5, n)
    return expit(odds), rng.random(n) < expit(slope * odds + shift)


def settled(forecast, failed, *, start: int = 0) -> Recalibrator:
    recalibrator = Recalibrator().begin(forecast[:start], failed[:start])
    for odds, outcome in zip(log_odds(forecast[start:]), failed[start:], strict=True):
        recalibrator.settle(float(odds), bool(outcome), recalibrator.lines)
    return recalibrator


def test_nothing_is_corrected_before_anything_has_settled():
    forecast = np.array([0.1, 0.5, 0.9])
    assert Recalibrator().calibration.probability(forecast) == pytest.approx(forecast)


def test_risks_that_are_right_stay_nearly_as_they_are():
    forecast, failed = drawn(3000)
    corrected = settled(forecast, failed).calibration.probability(forecast)
    assert np.abs(corrected - forecast).max() < 0.08


@pytest.mark.parametrize("shift", [-1.5, 1.5])
def test_a_level_that_moved_is_found_within_three_hundred_outcomes(shift):
    before = drawn(3000)
    recalibrator = Recalibrator().begin(*before)
    forecast, failed = drawn(300, shift=shift, seed=1)
    for odds, outcome in zip(log_odds(forecast), failed, strict=True):
        recalibrator.settle(float(odds), bool(outcome), recalibrator.lines)
    later, truth = drawn(20_000, shift=shift, seed=2)
    error = expected_calibration_error(truth, recalibrator.calibration.probability(later))
    assert error < 0.5 * expected_calibration_error(truth, later)


def test_risks_that_are_too_sure_are_drawn_in():
    forecast, failed = drawn(4000, slope=0.5)
    assert settled(forecast, failed).calibration.slope == pytest.approx(0.5, abs=0.15)


def test_the_order_of_risks_never_changes():
    forecast, failed = drawn(400, slope=-1.0)  # a model that has everything the wrong way round
    corrected = settled(forecast, failed).calibration.probability(np.sort(forecast))
    assert (np.diff(corrected) >= 0).all()


def test_a_threshold_goes_there_and_back():
    calibration = Calibration(0.7, -0.4)
    forecast = calibration.forecast_of(0.3)
    assert calibration.probability(np.array([forecast]))[0] == pytest.approx(0.3)


def test_the_same_outcomes_give_the_same_correction():
    forecast, failed = drawn(500, shift=1.0)
    assert settled(forecast, failed, start=100).calibration == settled(forecast, failed, start=100).calibration

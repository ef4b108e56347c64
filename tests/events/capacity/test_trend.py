"""The trend of a weekly load: what was planted is found, what is flat stays flat, and odd weeks do not move it."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.events.capacity.trend import FEWEST_WEEKS, ahead, fit_trend, reaching


def noisy(weeks: int, growth: float, seed: int, *, noise: float = 0.12, memory: float = 0.4) -> np.ndarray:
    """Weekly loads with a growth, and deviations that last for more than a week."""
    rng = np.random.default_rng(seed)
    deviation, height = 0.0, np.zeros(weeks)
    for week in range(weeks):
        deviation = memory * deviation + rng.normal(0, noise * np.sqrt(1 - memory**2))
        height[week] = deviation
    return 1000 * np.exp(np.log1p(growth) * np.arange(weeks) + height)


def test_a_planted_growth_lies_within_the_range_nearly_always():
    """Nine times out of ten, within what 150 tries can tell; without the widening it would be about three of four."""
    ranges = [fit_trend(noisy(30, 0.015, seed), resampled=100).growth_range for seed in range(150)]
    assert 124 <= sum(low <= 0.015 <= high for low, high in ranges) <= 148


def test_a_flat_load_is_seldom_said_to_grow():
    assert sum(fit_trend(noisy(30, 0.0, seed), resampled=200).is_growing for seed in range(40, 80)) <= 4


def test_two_odd_weeks_and_a_hole_do_not_move_the_line():
    loads = 1000 * 1.02 ** np.arange(24.0)
    loads[[5, 20]] = [1.0, 90_000.0]
    loads[10:13] = np.nan
    assert fit_trend(loads).growth == pytest.approx(0.02, abs=0.002)


def test_a_week_without_load_is_a_small_one_and_not_minus_infinity():
    loads = 1000 * 1.02 ** np.arange(24.0)
    loads[7] = 0.0
    trend = fit_trend(loads)
    assert np.isfinite(trend.slopes).all() and trend.growth == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize("known", [0, 1, FEWEST_WEEKS - 1])
def test_fewer_than_eight_weeks_make_no_trend(known):
    loads = np.full(20, np.nan)
    loads[:known] = 100.0
    assert fit_trend(loads) is None


def test_nothing_but_zeros_makes_no_trend():
    assert fit_trend(np.zeros(20)) is None


def test_only_the_last_year_counts():
    loads = np.concatenate([np.full(60, 5.0), 1000 * 1.01 ** np.arange(52.0)])
    assert fit_trend(loads).growth == pytest.approx(0.01, abs=1e-6)


def test_the_band_holds_about_eighty_of_a_hundred_weeks_to_come():
    inside = []
    for seed in range(25):
        loads = noisy(60, 0.005, seed)
        band = ahead(fit_trend(loads[:40], resampled=200), weeks=20)
        inside.append((band.low <= loads[40:]) & (loads[40:] <= band.high))
    assert 0.65 <= np.mean(inside) <= 0.97


def test_the_same_seed_gives_the_same_forecast():
    first, second = (ahead(fit_trend(noisy(20, 0.01, 1), seed=3), seed=3) for _ in range(2))
    assert np.array_equal(first.low, second.low)


def test_a_load_is_reached_in_the_week_in_which_the_line_comes_there():
    trend = fit_trend(1000 * 1.02 ** np.arange(20.0))
    now = 1000 * 1.02**19
    found = reaching(trend, now * 1.02**10 * 0.999)
    assert (found.median, found.earliest, found.latest, found.share) == (10, 10, 10, 1.0)
    assert reaching(trend, now * 0.5).median == 0
    beyond = reaching(trend, now * 10)
    assert (beyond.median, beyond.latest, beyond.share) == (None, None, 0.0)


def test_a_falling_load_never_reaches_more():
    assert reaching(fit_trend(1000 * 0.98 ** np.arange(20.0)), 5000).share == 0.0

"""Tails of counts: exact, calibrated for rare kinds, and without underflow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import nbinom

from stormpetrel.events.surprise import calm_band, log_tails, normal_scores, signed_surprise

MEANS = (0.1, 3.0, 1000.0)
DISPERSIONS = (1e-6, 0.05, 1.0)


def drawn(mean, dispersion, size=40_000, seed=0):
    r = 1 / dispersion
    return np.random.default_rng(seed).negative_binomial(r, r / (r + mean), size).astype(float)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("dispersion", DISPERSIONS)
def test_tails_are_those_of_the_negative_binomial(mean, dispersion):
    counts = np.unique(np.rint(mean * np.array([0.0, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0])) + np.array([0, 0, 0, 0, 0, 1, 2]))
    law = nbinom(1 / dispersion, 1 / (1 + mean * dispersion))
    upper, lower = log_tails(counts, np.array(mean), np.array(dispersion))
    known_upper, known_lower = law.sf(counts) + law.pmf(counts) / 2, law.cdf(counts) - law.pmf(counts) / 2
    big = known_lower > 1e-12  # scipy's difference loses its digits below
    np.testing.assert_allclose(np.exp(upper), known_upper, rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(np.exp(lower)[big], known_lower[big], rtol=1e-4)


def test_the_two_tails_sum_to_one():
    counts = np.arange(60.0)
    upper, lower = log_tails(counts, np.array(20.0), np.array(0.3))
    np.testing.assert_allclose(np.exp(upper) + np.exp(lower), 1.0, rtol=1e-9)


@pytest.mark.parametrize(("mean", "dispersion"), [(0.1, 1.0), (0.1, 1e-6), (3.0, 0.5), (1000.0, 0.05)])
def test_three_is_one_in_a_thousand_for_rare_kinds_too(mean, dispersion):
    counts = drawn(mean, dispersion, 200_000)
    surprise = signed_surprise(counts, np.array(mean), np.array(dispersion))
    assert (np.abs(surprise) > 3).mean() < 0.0015
    assert (np.abs(surprise) > 2).mean() < 0.0125
    if mean > 100:
        assert (np.abs(surprise) > 3).mean() > 0.0006


def test_normal_scores_of_frequent_kinds_are_normal():
    scores = normal_scores(drawn(1000.0, 0.05), np.array(1000.0), np.array(0.05))
    assert abs(scores.mean()) < 0.02 and abs(scores.std() - 1) < 0.02


def test_a_count_a_million_times_too_large_has_a_finite_surprise():
    counts, means = np.array([1e6, 1e7, 0.0, 0.0]), np.array([0.1, 1.0, 1e5, 1e6])
    for dispersion in (1e-6, 0.1, 1.0):
        surprise, scores = (
            signed_surprise(counts, means, np.array(dispersion)),
            normal_scores(counts, means, np.array(dispersion)),
        )
        assert np.isfinite(surprise).all() and np.isfinite(scores).all()
        assert (surprise[:2] > 100).all() and (surprise[2:] < -3).all()


def test_deep_tails_go_on_where_doubles_end():
    counts = np.arange(5_000.0, 60_000.0, 500.0)
    surprise = signed_surprise(counts, np.array(1000.0), np.array(0.01))
    assert (np.diff(surprise) > 0).all()
    assert np.diff(surprise).max() < 1.2 * np.diff(surprise)[np.argmax(surprise > 100)]  # no jump where the sum takes over


def test_the_sign_says_more_or_fewer_and_a_gap_stays_a_gap():
    surprise = signed_surprise(np.array([5.0, 200.0, 35.0, np.nan]), np.full(4, 50.0), np.full(4, 0.05))
    assert surprise[0] < -2 and surprise[1] > 2 and -2 < surprise[2] < 0 and np.isnan(surprise[3])


def test_the_band_holds_99_of_100_calm_counts_and_is_unknown_where_the_mean_is():
    low, high = calm_band(np.array([300.0, np.nan]), np.array([0.05, 0.05]))
    counts = drawn(300.0, 0.05)
    assert 0.985 < ((counts >= low[0]) & (counts <= high[0])).mean() < 0.995
    assert np.isnan(low[1]) and np.isnan(high[1])

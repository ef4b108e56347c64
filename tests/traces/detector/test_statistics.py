"""Statistics of windows, and of groups of them."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.traces.detector.calibration import Calibration
from stormpetrel.traces.detector.layout import chain, previous_rows
from stormpetrel.traces.detector.normal_scores import LARGEST, NormalScores
from stormpetrel.traces.detector.statistics import (
    MOVEMENT_COLUMNS,
    OVER_THREADS,
    QUANTILES,
    THREAD_COLUMNS,
    medians,
    movement,
    over_threads,
    thread_statistics,
    top_mean,
)


def rates(*levels, steps=40):
    user = np.array(levels, dtype=np.float32)[:, None] * np.ones((1, steps), dtype=np.float32)
    zeros = np.zeros_like(user)
    return np.stack([user, zeros, zeros, 1 - user], axis=2)


def column(found, name):
    return found[:, THREAD_COLUMNS.index(name)]


def test_a_window_that_stands_still_is_told_from_one_that_is_idle():
    found = thread_statistics(rates(0.5, 0.0))
    assert column(found, "longest_still").tolist() == [1, 1]
    assert column(found, "longest_still_busy").tolist() == [1, 0]


def test_growth_is_the_same_for_the_same_factor():
    some = rates(0.2, 0.4)
    some[:, 20:, 0] *= 1.5
    some[:, :, 3] = 1 - some[:, :, 0]
    growth = column(thread_statistics(some), "busy_growth")
    np.testing.assert_allclose(growth, np.log(1.5), rtol=0.03)


def test_quantiles_over_threads_are_those_of_numpy():
    rng = np.random.default_rng(0)
    values, group = rng.random((50, 3)), rng.integers(-1, 5, 50)
    found = over_threads(values, group, 5).reshape(5, 3, len(OVER_THREADS))
    for number in range(5):
        own = values[group == number]
        np.testing.assert_allclose(found[number, :, 2:], np.quantile(own, QUANTILES, axis=0).T)
        np.testing.assert_allclose(found[number, :, 0], own.mean(axis=0))
        np.testing.assert_allclose(medians(values, group, 2)[group == number], np.broadcast_to(np.median(own, axis=0), own.shape))
    assert (medians(values, group, 2)[group == -1] == 0).all()


def test_the_oddest_quarter_is_averaged():
    np.testing.assert_allclose(top_mean(np.arange(8.0), np.array([0] * 8), 2, 0.25), [6.5, np.nan])


def test_threads_that_move_as_one_are_told_from_those_that_do_not():
    rng = np.random.default_rng(1)
    shared, apart = rng.random((1, 40)), rng.random((8, 40))
    together = MOVEMENT_COLUMNS.index("user_node_together")
    for user, expected in ((np.repeat(shared, 8, axis=0), 1.0), (apart, 0.35)):
        some = np.stack([user, 0 * user, 0 * user, 1 - user], axis=2)
        np.testing.assert_allclose(movement(some, np.zeros(8, dtype=np.intp), 1)[0, together], expected, atol=0.1)


def test_normal_scores_are_ranks_within_and_distances_beyond():
    scores = NormalScores.fit(np.random.default_rng(2).random((5000, 1)), least_spread=1e-3)
    inside = scores.transform(np.array([[0.5], [0.9772], [0.0228]]))
    np.testing.assert_allclose(inside[:, 0], [0, 2, -2], atol=0.1)
    beyond = scores.transform(np.array([[1.5], [2.5], [99.0]]))[:, 0]
    assert 3 < beyond[0] < beyond[1] and beyond[2] == LARGEST


def test_a_past_ends_before_the_window_begins():
    start_s = np.array([0.0, 50.0, 100.0, 150.0, 200.0, 9000.0])
    before = previous_rows(np.zeros(6, dtype=np.int64), start_s, 100.0)
    assert before.tolist() == [-1, -1, 0, 1, 2, -1]
    past = chain(before, 3)
    assert past.rows[4].tolist() == [2, 0, -1]
    values = np.arange(6.0)
    assert past.mean(values)[4] == 1.0 and past.mean(values, forgets=0.5)[4] == 2 / 1.5
    assert past.mean(values, prior=7.0, weight=1.0)[0] == 7.0


@pytest.mark.parametrize(("shape", "draw"), [(0.0, "standard_exponential"), (0.25, "standard_t")])
def test_a_share_is_a_rank_and_goes_on_beyond_the_highest(shape, draw):
    rng = np.random.default_rng(3)
    calm = rng.standard_exponential(4000) if draw == "standard_exponential" else np.abs(rng.standard_t(4, 4000))
    calibration = Calibration.fit(calm)
    later = rng.standard_exponential(400_000) if draw == "standard_exponential" else np.abs(rng.standard_t(4, 400_000))
    scores = calibration.score(later)
    for share in (0.3, 0.05, 0.01, 0.001):
        assert 0.5 < (scores >= -np.log10(share)).mean() / share < 2
    assert abs(calibration.tail.shape - shape) < 0.2


def test_what_is_odder_than_every_calm_window_is_still_ordered():
    calibration = Calibration.fit(np.random.default_rng(0).normal(size=100))
    scores = calibration.score(np.array([3.0, 10.0, 100.0, 1e4]))
    assert (np.diff(scores) > 0).all() and np.isfinite(scores).all()


def test_a_calibration_without_windows_still_ranks():
    assert np.isfinite(Calibration.fit(np.empty(0)).score(np.array([-np.inf, 0.0, 5.0]))).all()


def test_a_calibration_that_was_saved_with_an_exponential_tail_is_read():
    calibration = Calibration.of_arrays("c", {"c.values": np.arange(40.0), "c.tail": np.array([2.0, 40.0])})
    assert calibration.tail.shape == 0.0 and calibration.windows == 40

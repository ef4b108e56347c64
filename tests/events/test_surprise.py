"""One score out of many kinds and hours."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.events.surprise import fit_surprise, remember

HOUR_S = 3600


@pytest.fixture(scope="module")
def calm_scores():
    """A thousand calm hours of four kinds; the first two go together."""
    rng = np.random.default_rng(5)
    shared = rng.normal(size=(1000, 1))
    return np.concatenate([shared + 0.3 * rng.normal(size=(1000, 2)), rng.normal(size=(1000, 2))], axis=1)


@pytest.fixture(scope="module")
def scale(calm_scores):
    return fit_surprise(calm_scores, np.ones(1000, dtype=bool), HOUR_S)


def quiet(*changes):
    """Fifty hours without any surprise, but (first hour, last hour, kind, score)."""
    scores = np.zeros((50, 4))
    for first, last, kind, score in changes:
        scores[first : last + 1, kind] = score
    return scores


def test_a_score_is_the_rarity_among_calm_hours(scale, calm_scores):
    scores = scale.score(calm_scores)
    assert 0.005 < (scores > 2).mean() < 0.04  # the larger of two lengths: a little more often than one in a hundred


def test_what_lasts_scores_higher_than_what_passes(scale):
    assert scale.score(quiet((30, 37, 2, 2.5)))[37] > scale.score(quiet((37, 37, 2, 2.5)))[37] + 1


def test_two_kinds_that_go_together_are_odder_against_each_other(scale):
    together, against = quiet((37, 39, 0, 2.0), (37, 39, 1, 2.0)), quiet((37, 39, 0, 2.0), (37, 39, 1, -2.0))
    assert scale.score(against)[39] > scale.score(together)[39] + 2


def test_more_and_fewer_both_count(scale):
    assert min(scale.score(quiet((30, 39, 3, sign * 3.0)))[39] for sign in (-1, 1)) > 3


def test_a_wilder_score_is_never_less_rare(scale):
    scores = [scale.score(quiet((35, 39, 2, size)))[39] for size in np.linspace(1, 8, 15)]
    assert (np.diff(scores) > 0).all()


def test_a_memory_ends(scale):
    scores = quiet()
    before = np.concatenate([np.full((1, 4), 8.0), np.zeros((scale.history_buckets, 4)), scores])
    np.testing.assert_allclose(scale.score(before)[-50:], scale.score(scores), atol=1e-9)
    assert scale.score(before)[5] > scale.score(scores)[5]


def test_what_is_unknown_is_no_surprise(scale):
    scores = quiet()
    scores[10:20] = np.nan
    np.testing.assert_array_equal(scale.score(scores), scale.score(quiet()))


def test_outages_that_nobody_labelled_do_not_hide_later_ones(calm_scores):
    spoilt = calm_scores.copy()
    spoilt[100:140, 2] += 6.0
    taught = fit_surprise(spoilt, np.ones(1000, dtype=bool), HOUR_S)
    assert taught.score(quiet((30, 39, 2, 6.0)))[39] > 1.5 * taught.score(calm_scores).max()


def test_a_kind_without_any_scatter_does_not_decide_alone(calm_scores):
    flat = np.concatenate([calm_scores, np.zeros((1000, 1))], axis=1)
    taught = fit_surprise(flat, np.ones(1000, dtype=bool), HOUR_S)
    once = np.zeros((50, 5))
    once[40, 4] = 3.5  # a kind never seen, seen once
    assert taught.score(once)[40] < 4


def test_memory_is_counted_in_hours_whatever_the_bucket():
    minutes = remember(np.ones((600, 1)), 1.5, 60)[:, 0]
    hours = remember(np.ones((10, 1)), 1.5, HOUR_S)[:, 0]
    assert minutes[59] == pytest.approx(1 - np.exp(-60 / 90), rel=0.01) and hours[0] == pytest.approx(1 - np.exp(-60 / 90))

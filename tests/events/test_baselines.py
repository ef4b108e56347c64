"""The baselines: they find what a careful engineer would find, and see no later bucket."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.events.baselines import BASELINES, PcaResidual, SeasonalAdjustment, SeasonalZScore, XgboostLags, robust_spread
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, EventSeries
from tests.events.rhythmic import broken, rhythmic_series

OUTAGES = [(week * 168 + 60 + 11 * week, week * 168 + 66 + 11 * week) for week in range(3, 12)]
NAMES = tuple(BASELINES)
QUICK = {"iforest": {"trees": 50}, "xgboost": {"fewest_trees": 20, "most_trees": 40}}


@pytest.fixture(scope="module")
def series():
    return broken(rhythmic_series(12), *OUTAGES)


@pytest.fixture(scope="module")
def fitted(series):
    return {name: make(**QUICK.get(name, {})).fit(series.take(0, 8 * 168)) for name, make in BASELINES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_ranks_outages_above_calm_hours(name, series, fitted):
    scores = fitted[name].score(series.unlabelled())[8 * 168 :]
    assert roc_auc(series.label[8 * 168 :] == ANOMALY, scores) > 0.97


@pytest.mark.parametrize("name", NAMES)
def test_a_score_sees_no_later_bucket(name, series, fitted):
    upset = replace(series, counts=series.counts.copy())
    upset.counts[1801:] = 7e6
    before, after = (fitted[name].score(one)[:1801] for one in (series, upset))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_needs_no_more_history_than_it_says(name, series, fitted):
    whole = fitted[name].score(series)
    first = 1900 - fitted[name].history_buckets
    assert first > 0
    np.testing.assert_allclose(fitted[name].score(series.take(first, 1901))[-1], whole[1900], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_gap_has_no_score_and_its_neighbours_have_one(name, series, fitted):
    torn = replace(series, counts=series.counts.copy())
    torn.counts[1500:1510] = np.nan
    scores = fitted[name].score(torn)
    assert np.isnan(scores[1500:1510]).all() and np.isfinite(scores[1510:1600]).all()


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_what_is_scored_change_nothing(name, series, fitted):
    np.testing.assert_array_equal(fitted[name].score(series), fitted[name].score(series.unlabelled()))


@pytest.mark.parametrize("name", ["iforest", "xgboost"])
def test_the_same_seed_gives_the_same_scores(name, series):
    some = series.take(0, 8 * 168)
    one, two = (BASELINES[name](seed=5, **QUICK[name]).fit(some).score(some) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", NAMES)
def test_too_short_a_series_is_refused_in_one_sentence(name):
    with pytest.raises(ModelError, match=r"\."):
        BASELINES[name]().fit(rhythmic_series(1))


def test_trees_without_a_labelled_outage_say_what_to_do():
    with pytest.raises(ModelError, match="events label"):
        XgboostLags().fit(rhythmic_series(6))


def test_growth_is_no_deviation():
    series = rhythmic_series(10, growth=8.0)
    residuals = SeasonalAdjustment().residuals(series)[6 * 168 :]
    assert np.abs(np.median(residuals, axis=0)).max() < 0.25  # the level itself has risen by 1.2 in that time


def test_a_maintenance_is_not_what_others_are_compared_with(series):
    calm = rhythmic_series(8)
    off = replace(calm, counts=calm.counts.copy(), label=calm.label.copy())
    week = slice(6 * 168, 6 * 168 + 48)
    off.counts[week], off.label[week] = 0.0, MAINTENANCE
    told, untold = (SeasonalAdjustment(weeks=1, level_days=2).residuals(one) for one in (off, replace(off, label=calm.label)))
    after = slice(7 * 168 + 2, 7 * 168 + 46)  # a week later: there is nothing to compare with, rather than a wrong thing
    assert np.isnan(told[after]).all() and np.nanmedian(untold[after, 0]) > 3


def test_a_kind_that_never_moves_is_not_endlessly_surprising():
    series = rhythmic_series(6)
    still = EventSeries(series.start_s, 3600, series.kinds, np.zeros_like(series.counts), series.label)
    assert np.isfinite(SeasonalZScore().fit(still).score(still)[-100:]).all()
    assert (robust_spread(np.zeros((100, 2))) > 0).all()


def test_the_combination_is_chosen_where_outages_are_labelled(series):
    """One kind of many far off: the largest deviation tells it, the mean of all hides it."""
    calm = rhythmic_series(8)
    counts = np.random.default_rng(0).poisson(200.0, (len(calm), 30)) * 1.0
    wide = EventSeries(calm.start_s, 3600, tuple(f"k{n}" for n in range(30)), counts, calm.label)
    wide.counts[900:906, 3] *= 1.4
    label = calm.label.copy()
    label[900:906] = ANOMALY
    assert SeasonalZScore().fit(wide).combine_ == "rms"
    assert SeasonalZScore().fit(wide.with_labels(label)).combine_ == "max"


def test_kinds_that_no_longer_go_together_are_what_components_leave():
    rng = np.random.default_rng(0)
    calm = rhythmic_series(8)
    swing = np.exp(rng.normal(0, 0.4, len(calm)))
    counts = rng.poisson(2000 * np.stack([swing, swing, swing * 0.5], axis=1)) * 1.0
    counts[1000, 0] *= 1.5  # no larger than what all of them do together every other hour
    series = replace(calm, counts=counts)
    assert np.nanargmax(PcaResidual().fit(series).score(series)) == 1000
    assert np.nanargmax(SeasonalZScore().fit(series).score(series)) != 1000


def test_other_bucket_lengths_work():
    for bucket_s, weeks in ((900, 4), (86_400, 60)):
        series = rhythmic_series(weeks, bucket_s=bucket_s)
        assert np.isfinite(SeasonalZScore().fit(series).score(series)[-50:]).all()

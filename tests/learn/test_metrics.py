"""The figures of a forecast, against scikit-learn and against what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from stormpetrel.learn.metrics import (
    best_f1_threshold,
    brier_skill,
    expected_calibration_error,
    judge,
    pr_auc,
    precision_recall_curve,
    reliability,
    reliability_slope,
    roc_auc,
    roc_curve,
    scores_at,
)

# Probabilities on a coarse grid: ties everywhere.
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60)


def arrays(rows):
    truth, steps = zip(*rows, strict=True)
    return np.array(truth, dtype=bool), np.array(steps, dtype=np.float64) / 6


def both_classes(rows):
    return len({truth for truth, _ in rows}) == 2


@settings(max_examples=150, deadline=None)
@given(ROWS.filter(both_classes))
def test_areas_and_curves_are_those_of_scikit_learn(rows):
    truth, probability = arrays(rows)
    assert roc_auc(truth, probability) == pytest.approx(sk.roc_auc_score(truth, probability))
    assert pr_auc(truth, probability) == pytest.approx(sk.average_precision_score(truth, probability))
    for ours, theirs in zip(
        roc_curve(truth, probability), sk.roc_curve(truth, probability, drop_intermediate=False), strict=True
    ):
        np.testing.assert_allclose(ours, theirs)
    precision, recall, threshold = sk.precision_recall_curve(truth, probability)
    found = precision_recall_curve(truth, probability)
    for ours, theirs in zip(found, (precision[:-1], recall[:-1], threshold), strict=True):
        np.testing.assert_allclose(ours[::-1], theirs)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(0, 7))
def test_scores_at_a_threshold_are_those_of_scikit_learn(rows, step):
    truth, probability = arrays(rows)
    said = probability >= step / 6
    expected = sk.precision_recall_fscore_support(truth, said, average="binary", zero_division=0)[:3]
    assert scores_at(truth, probability, step / 6) == pytest.approx(tuple(float(value) for value in expected))
    figures = judge(truth, probability, threshold=step / 6, n_train=3)
    assert figures.brier == pytest.approx(sk.brier_score_loss(truth, probability)) if truth.any() else True
    assert (figures.n_test, figures.n_train, figures.failed_share) == (len(rows), 3, pytest.approx(truth.mean()))


@settings(max_examples=100, deadline=None)
@given(ROWS.filter(lambda rows: any(truth for truth, _ in rows)))
def test_no_threshold_has_a_better_f1_than_the_best_one(rows):
    truth, probability = arrays(rows)
    best = scores_at(truth, probability, best_f1_threshold(truth, probability))[2]
    assert best == pytest.approx(max(scores_at(truth, probability, cut)[2] for cut in np.unique(probability)))


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_every_row_is_in_one_bin_of_equal_mass(rows):
    truth, probability = arrays(rows)
    table = reliability(truth, probability)
    assert table[:, 2].sum() == len(rows) and np.ptp(table[:, 2]) <= 1
    assert np.sum(table[:, 0] * table[:, 2]) == pytest.approx(probability.sum())
    assert 0 <= expected_calibration_error(truth, probability) <= 1


def test_the_calibration_error_is_the_mean_gap_over_fifteen_bins():
    rng = np.random.default_rng(0)
    probability = rng.random(3000)
    truth = rng.random(3000) < probability
    order = np.argsort(probability)
    gaps = [abs(probability[part].mean() - truth[part].mean()) * part.size for part in np.array_split(order, 15)]
    assert expected_calibration_error(truth, probability) == pytest.approx(sum(gaps) / 3000)
    assert expected_calibration_error(truth, probability) < 0.06
    assert reliability_slope(truth, probability) == pytest.approx(1.0, abs=0.1)
    assert reliability_slope(truth, 0.5 + (probability - 0.5) / 2) > 1.5


def test_the_calibration_error_does_not_depend_on_the_order_of_the_rows():
    truth = np.array([True] * 50 + [False] * 50)
    probability = np.full(100, 0.5)
    shuffled = np.random.default_rng(0).permutation(truth)
    assert expected_calibration_error(truth, probability) == pytest.approx(expected_calibration_error(shuffled, probability))


def test_one_class_has_no_area():
    for truth in (np.ones(4, dtype=bool), np.zeros(4, dtype=bool)):
        assert roc_auc(truth, np.linspace(0, 1, 4)) is None
    assert pr_auc(np.zeros(4, dtype=bool), np.linspace(0, 1, 4)) is None
    assert best_f1_threshold(np.zeros(4, dtype=bool), np.linspace(0, 1, 4)) == 0.5


def test_no_rows_are_judged_without_complaint():
    figures = judge(np.empty(0, dtype=bool), np.empty(0), threshold=0.5, n_train=0)
    assert (figures.roc_auc, figures.pr_auc, figures.f1, figures.n_test) == (None, None, 0.0, 0)
    assert np.isnan([figures.brier, figures.ece, figures.failed_share]).all()


def test_skill_is_the_share_of_the_reference_error_that_is_gone():
    truth = np.array([True, False])
    assert brier_skill(truth, np.array([1.0, 0.0]), np.array([0.5, 0.5])) == 1.0
    assert brier_skill(truth, np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0.0
    assert brier_skill(truth, np.array([0.5, 0.5]), np.array([1.0, 0.0])) is None


def test_a_forecast_without_spread_has_no_slope():
    assert reliability_slope(np.array([True, False, True]), np.full(3, 0.4)) is None

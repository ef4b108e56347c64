import numpy as np
import pytest
from benchmarks.vus import range_pr_area, soft_labels, vus_pr

LABELS = np.array([0, 0, 1, 1, 0, 0], dtype=bool)
SCORES = np.array([0.1, 0.2, 0.9, 0.4, 0.5, 0.3])


def test_without_a_buffer_the_area_is_the_one_worked_out_by_hand():
    # .9 flags one of two (precision 1), .5 adds a false one (no recall), .4 the other (precision 2/3).
    assert range_pr_area(LABELS, SCORES, 0) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_with_a_buffer_of_two_samples_the_area_is_the_one_worked_out_by_hand():
    edge = np.sqrt(0.5)
    assert soft_labels(LABELS, 2).tolist() == pytest.approx([0, edge, 1, 1, edge, 0])
    positives = ((2 + 2 * edge) + 2) / 2
    first, second = 1 / positives, (1 + edge) / positives
    expected = first * 1 + (second - first) * (1 + edge) / 2 + (1 - second) * (2 + edge) / 3
    assert range_pr_area(LABELS, SCORES, 2) == pytest.approx(expected)
    assert vus_pr(LABELS, SCORES, buffer=2, buffers=2) == pytest.approx((expected + 5 / 6) / 2)


def test_a_range_that_is_not_seen_costs_recall_even_where_most_samples_are():
    labels = np.array([1, 1, 1, 1, 0, 0, 0, 1, 0, 0], dtype=bool)
    both = np.array([9, 8, 7, 2, 1, 1, 1, 6, 1, 1.0])
    one = np.array([9, 8, 7, 6, 1, 1, 1, 2, 1, 1.0])
    assert range_pr_area(labels, one, 0) == pytest.approx(0.5 * 0.8 + 0.6)  # half of 4/5, then all: precision is 1 throughout
    assert range_pr_area(labels, both, 0) == pytest.approx(1.0)


def test_a_perfect_score_has_nearly_all_of_the_volume_and_a_random_one_about_the_share_of_anomalies():
    rng = np.random.default_rng(0)
    labels = np.zeros(20_000, dtype=bool)
    for first in range(1000, 20_000, 2000):
        labels[first : first + 200] = True
    assert vus_pr(labels, labels + 0.01 * rng.random(20_000)) > 0.9
    assert vus_pr(labels, rng.random(20_000)) == pytest.approx(labels.mean(), abs=0.06)


def test_without_a_range_or_with_nothing_else_there_is_no_figure():
    assert vus_pr(np.zeros(5, bool), np.arange(5.0)) is None and vus_pr(np.ones(5, bool), np.arange(5.0)) is None

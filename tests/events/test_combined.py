"""The combined alarm: labels help as far as they prove themselves, and never decide what they cannot know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.events.combined import Combined
from stormpetrel.events.counts.forecast import CountForecaster
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.records.event_series import ANOMALY, NORMAL
from tests.events.rhythmic import rhythmic_series

TRAINED = 14 * 168


@pytest.fixture(scope="module")
def series():
    """Twenty weeks with outages in which few jobs start, and with bursts of disconnects that are nobody's trouble."""
    calm = rhythmic_series(20, seed=7, growth=1.0)
    rng = np.random.default_rng(7)
    counts, label = calm.counts.copy(), calm.label.copy()
    for first in range(60, len(calm) - 20, 56):
        length = int(rng.integers(1, 7))
        counts[first : first + length, 1] = np.rint(0.8 * counts[first : first + length, 1])
        label[first : first + length] = ANOMALY
        counts[first + 25 : first + 30, 2] += 12  # users' mistakes
    return replace(calm, counts=counts, label=label)


def with_labelled(series, number):
    """The training part, of whose outages only so many have a label; the others are taken for normal."""
    part = series.take(0, TRAINED)
    begins = np.flatnonzero((part.label == ANOMALY) & (np.roll(part.label, 1) != ANOMALY))
    kept = begins[np.linspace(0, len(begins) - 1, number).astype(int)] if number else begins[:0]
    label = np.full(len(part), NORMAL)
    for first in kept:
        last = first + np.argmin(part.label[first:] == ANOMALY)
        label[first:last] = ANOMALY
    return part.with_labels(label)


def area(series, scores):
    later = np.arange(len(series)) >= TRAINED
    return pr_auc(series.label[later] == ANOMALY, scores[later])


@pytest.fixture(scope="module")
def unsupervised(series):
    return CountForecaster().fit(series.take(0, TRAINED).unlabelled())


@pytest.fixture(scope="module")
def taught(series):
    return Combined().fit(with_labelled(series, 30))


def test_without_a_label_it_is_the_forecaster_to_the_last_bit(series, unsupervised):
    model = Combined().fit(series.take(0, TRAINED).unlabelled())
    assert model.outages_ == 0 and model.trust_ == 0
    np.testing.assert_array_equal(model.score(series), unsupervised.score(series))


@pytest.mark.parametrize("number", [1, 3, 10])
def test_few_labels_make_it_hardly_worse(series, unsupervised, number):
    model = Combined().fit(with_labelled(series, number))
    assert model.outages_ == number
    assert area(series, model.score(series)) > area(series, unsupervised.score(series)) - 0.03


def test_one_label_moves_little(series, unsupervised):
    model = Combined().fit(with_labelled(series, 1))
    assert 0 < model.trust_ < 0.05
    alone, moved = unsupervised.score(series)[TRAINED:], model.score(series)[TRAINED:]
    assert np.corrcoef(np.argsort(np.argsort(alone)), np.argsort(np.argsort(moved)))[0, 1] > 0.95


def test_thirty_labels_help(series, unsupervised, taught):
    assert taught.trust_ > 0.2
    assert area(series, taught.score(series)) > area(series, unsupervised.score(series)) + 0.1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_odd_labels_are_not_trusted(series, unsupervised, seed):
    rng = np.random.default_rng(seed)
    label = np.full(TRAINED, NORMAL)
    for first in rng.integers(200, TRAINED - 10, 12):
        label[first : first + rng.integers(1, 8)] = ANOMALY
    model = Combined().fit(series.take(0, TRAINED).with_labels(label))
    assert area(series, model.score(series)) > area(series, unsupervised.score(series)) - 0.05


def test_the_length_of_an_outage_does_not_make_it_count_more(series):
    part = with_labelled(series, 10)
    long = part.label.copy()
    first = int(np.flatnonzero(long == ANOMALY)[0])
    long[first : first + 150] = ANOMALY
    several, one_long = Combined().fit(part), Combined().fit(part.with_labels(long))
    assert one_long.outages_ <= several.outages_
    assert np.abs(one_long.correction_.weights).sum() < 2 * np.abs(several.correction_.weights).sum()


def test_a_later_bucket_changes_no_score(series, taught):
    changed = replace(series, counts=np.where(np.arange(len(series))[:, None] > 3000, 9999.0, series.counts))
    np.testing.assert_array_equal(taught.score(changed)[:3001], taught.score(series)[:3001])


def test_the_newest_buckets_alone_and_with_just_the_history(series, taught):
    part = series.take(len(series) - taught.history_buckets - 1, len(series))
    whole = taught.score(series)[-1]
    assert taught.score(part, since=len(part) - 1)[-1] == pytest.approx(whole, abs=1e-9)


def test_it_says_what_was_expected(series, taught):
    np.testing.assert_array_equal(taught.forecast(series).expected, taught.base_.forecast(series).expected)


def test_fitting_again_forgets(series, taught):
    model = replace(taught).fit(series.take(0, TRAINED).unlabelled())
    assert model.outages_ == 0 and model.correction_ is None

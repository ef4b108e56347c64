"""What a model of traces must beat."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.traces.baselines import RawPca, chosen_threshold, max_iowait, mean_iowait
from tests.traces.small import small_windows

WINDOWS = small_windows(0)


def test_iowait_is_taken_over_the_window():
    assert mean_iowait(WINDOWS) == pytest.approx(WINDOWS.rates[:, :, 2].mean(axis=1), abs=1e-6)
    assert (max_iowait(WINDOWS) >= mean_iowait(WINDOWS)).all()
    assert mean_iowait(WINDOWS.take(slice(0, 0))).size == 0 and max_iowait(WINDOWS.take(slice(0, 0))).size == 0


def test_the_threshold_separates_training_windows_where_it_can():
    scores = mean_iowait(WINDOWS)
    threshold = chosen_threshold(scores, WINDOWS.is_anomalous())
    assert ((scores >= threshold) == WINDOWS.is_anomalous()).all()


def test_without_anomalies_one_calm_window_in_a_thousand_is_above_the_threshold():
    scores = np.arange(10_000) / 10_000
    assert (scores > chosen_threshold(scores, np.zeros(10_000, dtype=bool))).sum() == 10
    with pytest.raises(ModelError, match="no windows"):
        chosen_threshold(np.zeros(0), np.zeros(0, dtype=bool))


def test_more_components_reconstruct_better_and_all_of_them_perfectly():
    errors = [RawPca.fit(WINDOWS, components).score(WINDOWS).mean() for components in (1, 4, 16 * 4)]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-9


def test_components_are_those_of_the_windows_they_were_fitted_on():
    pca = RawPca.fit(WINDOWS.of_normal(), 4)
    scores = pca.score(WINDOWS)
    assert scores[WINDOWS.is_anomalous()].mean() > scores[~WINDOWS.is_anomalous()].mean()
    assert pca.embed(WINDOWS).shape == (len(WINDOWS), 4) and pca.reconstruct(WINDOWS).shape == WINDOWS.rates.shape


def test_one_window_has_no_components():
    with pytest.raises(ModelError, match="two windows or more; there are 1"):
        RawPca.fit(WINDOWS.take(slice(0, 1)), 4)

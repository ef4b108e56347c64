import numpy as np
import pytest

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.traces.learned_summary import LearnedSummary, lagged, smoothed


def calm(rows, *, seed=0, measurements=12):
    """Measurements in [0, 1] that move together in three ways."""
    ways = np.random.default_rng(99).random((3, measurements))
    rng = np.random.default_rng(seed)
    return np.clip(0.2 + 0.2 * rng.random((rows, 3)) @ ways + 0.01 * rng.standard_normal((rows, measurements)), 0, 1)


SUMMARY = LearnedSummary.fit(calm(2000))


def test_new_calm_rows_score_as_usual_and_their_embedding_has_the_scale_of_one():
    fresh = calm(2000, seed=1)
    assert np.median(SUMMARY.score(fresh)) == pytest.approx(2.0, abs=0.1)
    assert SUMMARY.embed(fresh).shape == (2000, len(SUMMARY.scale)) and SUMMARY.embed(fresh).std(axis=0) == pytest.approx(
        1, abs=0.1
    )


def test_a_measurement_that_leaves_the_others_scores_higher_and_so_does_one_that_goes_with_them_too_far():
    fresh = calm(500, seed=2)
    broken, far = fresh.copy(), fresh + 0.5
    broken[:, 4] = 0.95
    usual = np.quantile(SUMMARY.score(fresh), 0.99)
    assert (SUMMARY.score(broken) > usual).mean() > 0.9 and (SUMMARY.score(far) > usual).mean() > 0.9


def test_a_measurement_that_stood_still_in_training_may_tremble_and_may_not_jump():
    still = calm(500)
    still[:, 3] = 0.5
    summary = LearnedSummary.fit(still)
    trembles, jumps = still.copy(), still.copy()
    trembles[:, 3] += 0.001
    jumps[:, 3] = 1.0
    assert np.median(summary.score(trembles)) < 2.3 < np.median(summary.score(jumps))


def test_a_summary_comes_back_from_its_arrays_as_it_was_and_a_damaged_one_is_refused():
    arrays = SUMMARY.arrays("node")
    assert np.array_equal(LearnedSummary.of_arrays("node", arrays).score(calm(50, seed=3)), SUMMARY.score(calm(50, seed=3)))
    short, odd = {"node.scale": np.ones(1)}, {"node.residual": np.full(12, np.nan)}
    for damage in (short, odd, {"node.parts": np.ones(1)}, {"node.mean": None}):
        with pytest.raises(ModelFormatError, match="cannot be read"):
            LearnedSummary.of_arrays("node", arrays | damage)


def test_nothing_is_learnt_from_one_row():
    with pytest.raises(ModelError, match="two rows"):
        LearnedSummary.fit(calm(1))


def test_lags_and_smoothing_look_back_only():
    values = calm(50)
    later = values.copy()
    later[30:] += 0.3
    assert np.array_equal(lagged(values)[:30], lagged(later)[:30]) and lagged(values).shape == (50, 24)
    scores = np.arange(6.0)
    assert smoothed(scores, 3).tolist() == [0.0, 0.5, 1.0, 2.0, 3.0, 4.0]

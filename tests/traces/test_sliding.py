"""The sliding score: that of the whole window at every step, with gaps, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from stormpetrel.errors import ModelError
from stormpetrel.records.windows import cut_windows
from stormpetrel.traces import sliding
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.sliding import SlidingScores
from tests.parts import need
from tests.traces.small import STEPS, one_torch_thread, small_trace, small_windows, tiny

TRACE = small_trace(2, steps=3 * STEPS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of a trained model for each of two architectures."""
    need("torch")
    folders = {}
    with one_torch_thread():
        for kind in (Architecture.FAST, Architecture.VANILLA):
            folders[kind] = tmp_path_factory.mktemp("models") / kind
            TraceAutoencoder(tiny(kind)).fit(small_windows(0), small_windows(1), device="cpu").save(folders[kind])
    return folders


@pytest.fixture(scope="module")
def scorer(saved):
    return TraceScorer.load(saved[Architecture.FAST], threads=1)


def pushed(scorer: TraceScorer, rates: np.ndarray) -> np.ndarray:
    """The scores after each step: (steps, threads)."""
    scores = SlidingScores(scorer, rates.shape[1])
    return np.array([scores.push(step) for step in rates])


def full_scores(scorer: TraceScorer) -> np.ndarray:
    """The score of every whole window of the trace, cut at every step: (windows, threads)."""
    return scorer.score(cut_windows(TRACE, steps=STEPS, stride=1)).reshape(-1, TRACE.threads)


@pytest.mark.parametrize("portion", [256, 5])
def test_at_every_step_it_is_the_score_of_the_window_that_ends_there(scorer, monkeypatch, portion):
    monkeypatch.setattr(sliding, "FAST_AT_ONCE", portion)
    found, full = pushed(scorer, TRACE.rates)[STEPS - 1 :], full_scores(scorer)
    assert np.allclose(found, full, rtol=1e-4, atol=1e-9)
    assert spearmanr(found.ravel(), full.ravel()).statistic > 0.9999


def test_there_is_no_score_before_a_whole_window_was_seen(scorer):
    found = pushed(scorer, TRACE.rates)
    assert np.isnan(found[: STEPS - 1]).all() and np.isfinite(found[STEPS - 1 :]).all()


def test_a_missed_step_costs_its_thread_a_window_and_the_others_nothing(scorer):
    rates = TRACE.rates.copy()
    rates[20, 3] = np.nan
    found, whole = pushed(scorer, rates), pushed(scorer, TRACE.rates)
    others = np.arange(TRACE.threads) != 3
    assert np.isnan(found[20 : 20 + STEPS, 3]).all()
    assert np.allclose(found[20 + STEPS :, 3], whole[20 + STEPS :, 3], rtol=1e-4)
    assert np.allclose(found[:, others], whole[:, others], rtol=1e-4, equal_nan=True)


def test_it_holds_the_last_window_of_each_thread(scorer):
    scores = SlidingScores(scorer, TRACE.threads)
    for step in TRACE.rates[: STEPS + 3]:
        scores.push(step)
    assert np.array_equal(scores.windows(), TRACE.rates[3 : STEPS + 3].transpose(1, 0, 2))
    assert scores.bytes_held == TRACE.threads * (STEPS * 4 * 4 + 8)


def test_steps_of_other_threads_are_refused(scorer):
    with pytest.raises(ModelError, match="16 threads"):
        SlidingScores(scorer, 16).push(TRACE.rates[0, :3])


def test_a_network_without_a_graph_that_scores_is_refused_with_the_command_that_trains_one(saved):
    vanilla = TraceScorer.load(saved[Architecture.VANILLA], threads=1)
    with pytest.raises(ModelError, match="--architecture fast"):
        pushed(vanilla, TRACE.rates)

"""Trees that tell calm node windows from disturbed ones: what is changed, what they learn, how they are kept."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.traces.detector.contrast import FEWEST, Contrast
from stormpetrel.traces.detector.detector import DetectorSettings, TraceDetector
from stormpetrel.traces.detector.disturbance import disturbed
from tests.traces.detector.test_inputs import days


def node_window(seed=0, steps=40, threads=8):
    shares = np.random.default_rng(seed).dirichlet([4, 1, 1, 4], size=(steps, threads))
    user, system, iowait = (np.round(shares[:, :, mode] * 100) / 100 for mode in range(3))
    return np.stack([user, system, iowait, 1 - user - system - iowait], axis=2)


def test_a_disturbed_window_is_still_one_and_in_whole_ticks():
    for seed in range(300):
        before = node_window(seed)
        after = disturbed(before, np.random.default_rng(seed))
        assert after.shape == before.shape and after.min() >= -1e-9 and np.allclose(after.sum(axis=2), 1)
        assert np.allclose(after * 100, np.round(after * 100), atol=1e-6)


def test_the_same_draw_gives_the_same_change_and_the_window_itself_stays():
    before = node_window()
    kept = before.copy()
    one, again, other = (disturbed(before, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(before, kept) and np.array_equal(one, again) and not np.array_equal(one, other)


def test_most_draws_change_something_in_some_threads_and_some_in_one_alone():
    touched = [
        int((np.abs(disturbed(node_window(), np.random.default_rng(seed)) - node_window()) > 1e-6).any(axis=(0, 2)).sum())
        for seed in range(200)
    ]
    assert np.mean(np.array(touched) > 0) > 0.95 and {1, 8} <= set(touched)


def features(count, shift, seed):
    values = np.random.default_rng(seed).normal(size=(count, 30))
    values[:, :4] += shift
    return values


def test_what_looks_like_what_was_changed_has_a_higher_margin():
    contrast = Contrast.fit(features(200, 0, 1), features(600, 1.5, 2), seed=0)
    calm, changed = contrast.margin(features(100, 0, 3)), contrast.margin(features(100, 1.5, 4))
    assert np.median(changed) > np.quantile(calm, 0.9)


def test_from_few_windows_nothing_is_learnt_and_everything_has_the_same_margin():
    contrast = Contrast.fit(features(FEWEST - 1, 0, 1), features(200, 1.5, 2), seed=0)
    assert contrast.trees is None and not contrast.margin(features(5, 9, 3)).any() and contrast.arrays() == {}


def test_trees_that_are_kept_and_read_again_say_the_same():
    contrast = Contrast.fit(features(80, 0, 1), features(80, 1.5, 2), seed=0)
    again = Contrast.of_arrays(contrast.arrays())
    rows = features(50, 0.7, 3)
    assert np.array_equal(contrast.margin(rows), again.margin(rows))
    with pytest.raises(ValueError, match="trees cannot be read"):
        Contrast.of_arrays({"contrast.trees": np.frombuffer(b"no trees", dtype=np.uint8)})


def test_a_detector_with_damaged_trees_is_refused_and_one_without_them_says_so():
    windows = days(1, 2.0, 0)
    few = windows.take(windows.start_s < 24 * 300.0 * 2)
    plain = TraceDetector(DetectorSettings(contrast=False)).fit(few)
    assert plain.data_["inputs"]["contrast"] == {"active": False}
    detector = TraceDetector().fit(few)
    assert detector.data_["inputs"]["contrast"] == {"active": True}
    content = detector.content()
    same = TraceDetector.of_content(detector.metadata(), content, "here")
    assert np.array_equal(same.score(few, "node"), detector.score(few, "node"))
    trees = bytes(detector.contrast_.trees.save_raw("json"))
    assert trees in content
    damaged = content.replace(trees, b"#" * len(trees))
    with pytest.raises(ModelFormatError, match="trees cannot be read"):
        TraceDetector.of_content(detector.metadata(), damaged, "here")

"""Shared surprise: what all nodes show at one moment is not the node's own, as far as calm moments have shown it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.traces.detector.detector import TraceDetector
from stormpetrel.traces.detector.layout import Layout
from stormpetrel.traces.detector.shared import SharedSurprise
from tests.traces.detector.test_inputs import days, grid, windows_of, with_modes


def layout(nodes, moments=200):
    """The layout of nodes of one thread each."""
    start, node, cpu = grid(0.0, moments * 300.0, nodes, 1)
    return Layout.of(windows_of(with_modes(np.full((len(start), 20), 0.3), np.full((len(start), 20), 0.01)), start, node, cpu))


def surprises(of, *, together, seed=0):
    """A surprise of each node window: of its moment, or its own."""
    rng = np.random.default_rng(seed)
    moments, place = np.unique(of.node_start_s, return_inverse=True)
    own = rng.normal(0, 0.3 if together else 1.0, of.nodes)
    return own + rng.normal(0, 1.0, moments.size)[place.ravel()] if together else own


def test_what_calm_nodes_show_together_is_expected_of_each():
    of = layout(4)
    shared = SharedSurprise.fit(surprises(of, together=True), of)
    assert 0.6 < shared.weight <= 1
    at = of.node_start_s == of.node_start_s[100]
    expected = shared.expected(np.where(at, 2.0, 0.0), of)
    assert expected[at] == pytest.approx(2.0 * shared.weight) and not expected[~at].any()


def test_a_node_alone_is_expected_nothing():
    of = layout(4)
    shared = SharedSurprise.fit(surprises(of, together=True), of)
    alone = np.zeros(of.nodes)
    alone[100] = 9.0
    assert not shared.expected(alone, of).any()


def test_trouble_of_everybody_is_far_above_what_calm_moments_share():
    of = layout(4)
    shared = SharedSurprise.fit(surprises(of, together=True), of)
    assert shared.expected(np.full(of.nodes, 50.0), of).max() <= shared.weight * shared.most < 4


@pytest.mark.parametrize(("nodes", "together"), [(4, False), (2, True)])
def test_nothing_is_shared_by_nodes_that_go_their_own_way_or_are_two(nodes, together):
    of = layout(nodes)
    assert SharedSurprise.fit(surprises(of, together=together), of) == SharedSurprise(0.0, 0.0)


def test_a_window_that_tells_nothing_counts_for_nobody():
    of = layout(4)
    surprise = surprises(of, together=True)
    surprise[::3] = np.nan
    shared = SharedSurprise.fit(surprise, of)
    assert shared.weight > 0.5 and np.isfinite(shared.expected(surprise, of)).all()


def test_it_is_saved_with_the_detector_and_a_detector_from_before_shares_nothing(tmp_path):
    detector = TraceDetector().fit(days(1, 2.0, 0))
    detector.shared_ = SharedSurprise(0.5, 2.0)
    detector.save(tmp_path / "model")
    assert TraceDetector.load(tmp_path / "model").shared_ == SharedSurprise(0.5, 2.0)
    assert SharedSurprise.of_arrays({}) == SharedSurprise(0.0, 0.0)


def test_what_starts_on_all_nodes_is_less_odd_than_on_one():
    detector = TraceDetector().fit(days(1, 2.0, 0))
    start, node, cpu = grid(0.0, 4 * 3600.0, 4, 4)
    rng = np.random.default_rng(3)
    user = 0.3 + rng.normal(0, 0.02, (len(start), 20))
    late = start >= 3 * 3600.0
    detector.shared_ = SharedSurprise(0.8, 3.0)
    scores = {}
    for name, rows in (("all", late), ("one", late & (node == 0))):
        windows = windows_of(with_modes(user + 0.02 * rows[:, None], 0.01 + 0 * user), start, node, cpu)
        seen = detector.observe(windows)
        expected = detector.expect(seen)
        first = (seen.layout.node_start_s == 3 * 3600.0) & (seen.layout.node_of == 0)
        with_others = detector.surprise(seen, expected).node[first]
        without = detector.surprise(seen, replace(expected, node_shared=np.zeros(seen.layout.nodes))).node[first]
        scores[name] = float((without - with_others)[0])
    assert scores["all"] > scores["one"] + 0.3

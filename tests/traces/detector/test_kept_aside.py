"""Calm windows by levels that have not seen them, and what is usual of late: so that a promised share is the next campaign's."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.traces.detector.kept_aside import _left_out, _not_learnt, short_blocks, time_blocks
from stormpetrel.traces.detector.layout import LOOK_BACK, Layout
from stormpetrel.traces.detector.recent import RECENT_S, RecentNodes, running_units, unit_of
from tests.traces.detector.test_detector import campaigns, detector

HOUR = 3600.0
TRAINED = np.tile([[0.0, 1.0], [0.0, 1.0]], (5, 1, 1))


def recent(start_s, values, seen_for=4):
    size = len(start_s)
    return RecentNodes(
        np.asarray(start_s, dtype=float), np.full(size, seen_for), np.stack([values, values], axis=1).astype(float)
    )


def test_blocks_begin_at_pauses_and_long_spans_are_cut():
    moments = np.concatenate([np.arange(40) * 100.0, 1e6 + np.arange(80) * 100.0])
    block, is_apart = time_blocks(np.repeat(moments, 3), 100.0)
    assert is_apart and np.array_equal(np.unique(block), [0, 1, 2])
    assert set(block[:120]) == {0} and not set(block[120:]) & {0}


def test_a_single_span_too_short_for_long_blocks_is_cut_into_short_ones():
    block, is_apart = time_blocks(np.arange(30) * 100.0, 100.0)
    assert is_apart and np.bincount(block).min() >= LOOK_BACK


def test_what_a_block_has_as_its_past_does_not_teach_its_judge_where_enough_is_left():
    layout = Layout.of(campaigns()[0])
    moment = np.unique(layout.node_start_s, return_inverse=True)[1].ravel()
    campaign = np.searchsorted(np.unique(layout.node_trace), layout.node_trace)
    half = 2 * campaign + (moment - np.array([moment[campaign == number].min() for number in range(3)])[campaign] > 11)
    left_out = _left_out(half, layout)
    assert left_out[0] == {0} and left_out[1] == {0, 1} and left_out[5] == {4, 5}
    assert _left_out((campaign == 2).astype(np.intp), layout) == {0: {0}, 1: {1}}


def test_a_past_that_must_teach_is_no_past_to_be_judged_by():
    layout = Layout.of(campaigns()[0])
    all_of_it = np.zeros(layout.nodes, dtype=np.intp)
    assert _not_learnt(layout.node_past, all_of_it, {0: {0}}).all()
    later = layout.node_start_s > np.median(layout.node_start_s[layout.node_trace == layout.node_trace[0]])
    block = later.astype(np.intp)
    apart = _not_learnt(layout.node_past, block, {0: {0}, 1: {1}})
    assert not apart.all() and apart[block == 0].all()
    assert _not_learnt(layout.node_past, block, {0: {0}, 1: {0, 1}}).all()


def test_a_short_time_is_one_block_and_is_cut_into_ten_short_ones_then():
    moments = np.arange(LOOK_BACK) * 100.0
    _, is_apart = time_blocks(moments, 100.0)
    assert not is_apart and len(np.unique(short_blocks(moments))) == 10


@pytest.mark.parametrize("level", ["thread", "job"])
def test_a_promised_share_is_about_the_share_of_a_later_campaign(level):
    seen = detector().observe(campaigns()[1])
    scores = detector().scores(detector().surprise(seen, detector().expect(seen)))[level]
    counted = scores[seen.layout.counted] if level == "thread" else scores
    assert 0.025 <= (counted >= -np.log10(0.05)).mean() <= 0.1


def test_units_follow_the_newest_windows_and_training_counts_for_a_hundred():
    calm = recent(np.arange(300) * 60.0, np.tile([1.0, 2.0, 3.0], 100))
    unit = running_units(TRAINED, recent([300 * 60.0], [5.0]), calm)
    middle, _ = unit_of(np.tile([1.0, 2.0, 3.0], 100))
    assert unit[0, 0, 0] == pytest.approx(0.75 * middle)


def test_nothing_later_and_nothing_that_is_long_ago_counts():
    now = recent([10 * HOUR], [1.0])
    for start_s in (10 * HOUR, 11 * HOUR, 10 * HOUR - RECENT_S - 1):
        assert np.array_equal(running_units(TRAINED, now, recent([start_s] * 50, [9.0] * 50)), TRAINED[:1])


def test_nodes_that_have_been_seen_for_another_time_are_not_compared():
    now = recent([HOUR], [1.0], seen_for=0)
    assert np.array_equal(running_units(TRAINED, now, recent(np.arange(50.0), [9.0] * 50, seen_for=4)), TRAINED[:1])


def test_a_score_does_not_change_with_what_comes_after():
    _, later = campaigns()
    starts = np.unique(later.start_s)
    part = later.take(later.start_s <= starts[len(starts) // 2])
    whole = detector().score(later, "node")[later.start_s <= starts[len(starts) // 2]]
    assert np.allclose(detector().score(part, "node"), whole, atol=1e-3)

"""The detector: what is rare here, in either direction, for threads, jobs and nodes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.records.traces import BAD_IO
from stormpetrel.records.windows import cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.traces.detector.detector import FORMAT_VERSION, TraceDetector
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import inject


@cache
def campaigns():
    """Three small simulated campaigns to learn from, and a later one."""
    traces = campaign_set(3, train=3, validation=0, test=1, nodes=2, threads_per_node=16, minutes=40)
    windows = [cut_windows(trace) for trace in traces]
    return join_windows(windows[:-1]), windows[-1]


@cache
def detector():
    return TraceDetector().fit(campaigns()[0])


def surprises(changed=None):
    model, test = detector(), campaigns()[1]
    seen = model.observe(test)
    expected = model.expect(seen)
    return seen.layout, model.scores(model.surprise(seen if changed is None else model.changed(seen, changed), expected))


def with_fault(name, severity="severe"):
    """The later campaign with a fault on every node and moment."""
    test, layout = campaigns()[1], surprises()[0]
    fault = next(fault for fault in BENCH if fault.name == name)
    rates = test.rates.copy()
    for node in range(layout.nodes):
        rows = np.flatnonzero(layout.node == node)
        if rows.size:
            rates[rows] = inject(fault, test.rates[rows].transpose(1, 0, 2), severity, node).transpose(1, 0, 2)
    return rates


@pytest.mark.parametrize("name", ["bad_io", "hung_allreduce", "silent_idle", "frozen_counter", "half_node_gone"])
def test_faults_loud_and_quiet_are_odder_than_calm(name):
    _, calm = surprises()
    _, faulty = surprises(with_fault(name))
    assert np.median(faulty["node"]) > np.quantile(calm["node"], 0.9), name
    assert np.mean(faulty["node"] > calm["node"]) > 0.9, name


def test_a_stuck_thread_is_the_oddest_of_its_node():
    layout, scores = surprises(with_fault("stuck_thread"))
    changed = (with_fault("stuck_thread") != campaigns()[1].rates).any(axis=(1, 2))
    hits = 0
    for node in range(layout.nodes):
        rows = np.flatnonzero(layout.node == node)
        hits += bool(rows.size) and bool(changed[rows[scores["thread"][rows].argmax()]])
    assert hits > 0.8 * layout.nodes


def test_the_share_of_flagged_calm_windows_is_about_what_was_promised():
    layout, scores = surprises()
    assert (scores["node"] >= -np.log10(0.05)).mean() < 0.15
    assert (scores["thread"][layout.counted] >= -np.log10(0.05)).mean() < 0.15


def test_what_comes_after_changes_nothing():
    test = campaigns()[1]
    early = test.take(test.start_s < np.quantile(test.start_s, 0.6))
    for level in ("thread", "job", "node"):
        np.testing.assert_allclose(detector().score(test, level)[: len(early)], detector().score(early, level))


def test_labelled_trouble_is_neither_learnt_nor_counted():
    train = campaigns()[0]
    bad = train.job_types() == BAD_IO
    assert bad.any()
    spoilt = train.rates.copy()
    spoilt[bad] = np.array([0.0, 0.0, 0.0, 1.0], dtype=np.float32)
    np.testing.assert_allclose(
        TraceDetector().fit(replace(train, rates=spoilt)).score(campaigns()[1], "node"), detector().score(campaigns()[1], "node")
    )
    assert (detector().score(train, "node")[bad] == 0).all()


def test_a_saved_detector_scores_the_same_and_one_of_another_format_is_refused(tmp_path):
    detector().save(tmp_path / "detector")
    again, test = TraceDetector.load(tmp_path / "detector"), campaigns()[1]
    np.testing.assert_array_equal(again.score(test, "node"), detector().score(test, "node"))
    older = {**detector().metadata(), "format_version": FORMAT_VERSION - 1}
    with pytest.raises(ModelFormatError, match="this version reads"):
        TraceDetector.of_content(older, detector().content(), "a folder")


def test_what_no_calm_window_has_shown_counts_more_than_what_was_rare():
    """One thread jumps between nothing and all of system every second: no calm window has such steps."""
    test = campaigns()[1]
    seen = detector().observe(test)
    node = int(np.argmax(seen.layout.node_start_s))
    rows = np.flatnonzero(seen.layout.node == node)
    rates = test.rates.copy()
    rates[rows[0]] = np.array([0.0, 0.0, 0.0, 1.0], dtype=np.float32)
    rates[rows[0], ::2] = np.array([0.0, 1.0, 0.0, 0.0], dtype=np.float32)  # from nothing to all of it, every second
    level = detector().levels_.thread
    changed = detector().changed(seen, rates)
    novelty = level.novelty(changed.statistics[rows])
    assert novelty[0] > 2 and np.median(novelty[1:]) < 0.1
    expected = detector().expect(seen)
    assert detector().surprise(changed, expected).node[node] > detector().surprise(seen, expected).node[node]


def test_too_few_windows_are_refused():
    few = campaigns()[0].take(slice(0, 64))
    with pytest.raises(ModelError, match="calm node windows"):
        TraceDetector().fit(few)


def test_one_that_was_not_trained_says_so():
    with pytest.raises(ModelError, match="has not been trained yet"):
        TraceDetector().score(campaigns()[1])

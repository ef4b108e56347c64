"""Windows of odd shapes: odd lengths, one thread, many threads, gaps; a right answer or a clear error."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import NO_JOB, Trace
from stormpetrel.records.windows import cut_windows
from stormpetrel.traces.detector.detector import LEVELS, TraceDetector
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import SEVERITIES, Fault, inject
from tests.traces.small import STEPS, small_windows


def trace(seconds, threads, *, nodes=2, seed=0, missing=()):
    """Nodes whose threads work in waves of their own, counted in ticks; `missing` seconds of the first thread are NaN."""
    rng = np.random.default_rng(seed)
    phase = 6 * rng.random(nodes * threads)
    user = np.clip(0.5 + 0.3 * np.sin(np.arange(seconds)[:, None] / 7 + phase) + 0.05 * rng.standard_normal((seconds, 1)), 0, 1)
    user = np.round(user, 2)
    rates = np.stack([user, 0 * user, 0 * user, 1 - user], axis=2).astype(np.float32)
    rates[list(missing), 0] = np.nan
    return Trace(
        name="run",
        step_s=1.0,
        time_s=1e6 * seed + np.arange(seconds, dtype=np.float64),
        nodes=tuple(f"n{node}" for node in range(nodes) for _ in range(threads)),
        cpus=tuple(range(threads)) * nodes,
        rates=rates,
        job=np.full((seconds, nodes * threads), NO_JOB, dtype=np.int32),
        jobs=(),
    ).checked()


@pytest.mark.parametrize(("steps", "threads"), [(7, 4), (99, 4), (20, 1), (10, 256), (2, 3)])
def test_windows_of_any_length_and_nodes_of_any_size_are_scored(steps, threads):
    model = TraceDetector().fit(cut_windows(trace(40 * steps, threads), steps=steps))
    later = cut_windows(trace(16 * steps, threads, seed=1), steps=steps)
    calm = {level: model.score(later, level) for level in LEVELS}
    assert all(np.isfinite(scores).all() and (scores >= 0).all() for scores in calm.values())
    seen = model.observe(later)
    rates = later.rates.copy()
    sick = (later.node == 0) & (later.start_s == later.start_s.max()) & (later.cpu < max(1, threads // 2))
    rates[sick] = np.array([0.0, 0.1, 0.9, 0.0], dtype=np.float32)
    expected = model.expect(seen)
    scores = model.scores(model.surprise(model.changed(seen, rates), expected))["node"]
    assert scores.argmax() == np.flatnonzero((seen.layout.node_of == 0) & (seen.layout.node_start_s == later.start_s.max()))[0]


def test_node_windows_without_a_calm_thread_are_not_counted_as_calm():
    windows = small_windows(steps=40 * STEPS)
    of_bad_io = windows.take((windows.node == 1) | (windows.cpu == 6))  # all that is left of the first node
    assert TraceDetector().fit(of_bad_io).calm_nodes == 40 and TraceDetector().fit(windows).calm_nodes == 80
    with pytest.raises(ModelError, match=r"There are 0 calm node windows; the detector learns from 24 or more\."):
        TraceDetector().fit(windows.take(windows.cpu == 6))


def test_windows_with_a_long_gap_are_left_out_and_the_rest_is_scored():
    train, later = cut_windows(trace(800, 4), steps=20), cut_windows(trace(200, 4, seed=1, missing=range(45, 55)), steps=20)
    assert len(later) == 10 * 8 - 1 and sum(later.left_out.values()) == 1
    assert np.isfinite(TraceDetector().fit(train).score(later, "node")).all()


def test_windows_that_are_not_numbers_or_of_another_length_are_refused_in_a_sentence():
    windows = cut_windows(trace(800, 4), steps=20)
    model = TraceDetector().fit(windows)
    with pytest.raises(ModelError, match=r"have 10 steps, and the detector sees 20"):
        model.score(cut_windows(trace(200, 4), steps=10))
    windows.rates[5, 3, 1] = np.nan
    for use in (TraceDetector().fit, model.score):
        with pytest.raises(ModelError, match="not numbers"):
            use(windows)


@pytest.mark.parametrize("shape", [(100, 1), (101, 3), (10, 256), (2, 2), (3, 1)])
def test_the_bench_takes_nodes_of_any_size(shape):
    windows = np.random.default_rng(0).dirichlet([2, 1, 1, 5], shape)
    for fault in BENCH:
        for severity in SEVERITIES:
            assert inject(fault, windows, severity, 1).shape == windows.shape, fault.name


def test_a_fault_may_return_single_precision():
    windows = np.random.default_rng(0).dirichlet([2, 1, 1, 5], (100, 32)).astype(np.float32)
    after = inject(Fault("single", lambda given, severity, seed: given.astype(np.float32)), windows, "mild", 0)
    assert after.dtype == np.float64
    np.testing.assert_allclose(after.sum(axis=2), 1.0, atol=1e-9)

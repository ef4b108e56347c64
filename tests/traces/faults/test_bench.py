"""The bench of faults: what each does to a node, and that all keep the contract."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.records.traces import IOWAIT, OTHER, SYSTEM, USER
from stormpetrel.traces.faults.bench import ASIDE, BENCH, TUNED
from stormpetrel.traces.faults.contract import SEVERITIES, inject


def node(seed=0, *, steps=100, threads=16):
    """A node whose first half works hard and whose second half hardly does: (steps, threads, 4), in ticks."""
    rng = np.random.default_rng(seed)
    user = np.where(np.arange(threads) < threads / 2, 0.8, 0.03) * rng.uniform(0.8, 1.2, (steps, threads))
    system, iowait = 0.03 * rng.random((steps, threads)), 0.01 * rng.random((steps, threads))
    busy = np.round(np.stack([user, system, iowait], axis=2), 2)
    return np.concatenate([busy, 1 - busy.sum(axis=2, keepdims=True)], axis=2)


def named(name):
    return next(fault for fault in BENCH if fault.name == name)


def mean(name, severity, mode):
    return inject(named(name), node(), severity, 3)[:, :, mode].mean() - node()[:, :, mode].mean()


def test_there_are_twelve_and_half_of_them_are_kept_aside():
    names = [fault.name for fault in BENCH]
    assert len(names) == len(set(names)) == 12
    assert len(TUNED) == len(ASIDE) == 6


def test_every_fault_returns_shares_of_the_same_shape_and_leaves_its_input_alone():
    wrong = []
    for fault in BENCH:
        for severity in SEVERITIES:
            for steps, threads in ((100, 32), (16, 8), (20, 1)):
                before = node(1, steps=steps, threads=threads)
                after = inject(fault, before, severity, 5)
                sums = np.abs(after.sum(axis=2) - 1).max()
                if (
                    after.shape != before.shape
                    or after.min() < 0
                    or sums > 1e-9
                    or (before != node(1, steps=steps, threads=threads)).any()
                ):
                    wrong.append((fault.name, severity, steps, threads))
    assert not wrong


def test_the_same_seed_gives_the_same_windows_and_another_gives_others():
    for fault in BENCH:
        first, again, other = (inject(fault, node(), "moderate", seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other), fault.name


def changed(fault, severity, seed):
    before = node(seed, threads=32)
    return np.abs(inject(fault, before, severity, seed) - before).mean()


def test_severe_changes_more_than_mild():
    for fault in BENCH:
        change = {severity: np.mean([changed(fault, severity, seed) for seed in range(12)]) for severity in SEVERITIES}
        assert 0 < change["mild"] < change["moderate"] < change["severe"], (fault.name, change)


@pytest.mark.parametrize("name", ["bad_io", "slow_storage", "thrashing"])
def test_faults_of_storage_and_memory_raise_iowait(name):
    assert mean(name, "severe", IOWAIT) > 0.15


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("hung_allreduce", USER),
        ("runaway_system", SYSTEM),
        ("throttled_cpu", USER),
        ("silent_idle", OTHER),
        ("half_node_gone", OTHER),
    ],
)
def test_a_fault_raises_its_mode(name, mode):
    assert mean(name, "severe", mode) > 0.1


def test_a_hung_allreduce_spins_without_a_tremble():
    after = inject(named("hung_allreduce"), node(), "severe", 1)
    spinning = after[:, :, USER].mean(axis=0) > 0.99
    assert spinning.sum() == 8 and after[:, spinning, USER].std(axis=0).max() < 0.01


def test_a_straggler_works_while_its_job_sleeps():
    after = inject(named("straggler"), node(), "severe", 1)[:, :8, USER].mean(axis=0)  # the busy half was the job
    assert (after > 0.9).sum() == 1 and (after < 0.1).sum() == 7


def test_a_frozen_counter_repeats_and_a_lost_socket_shows_nothing():
    frozen = inject(named("frozen_counter"), node(), "severe", 1)
    assert (np.ptp(frozen, axis=0) == 0).all()
    gone = inject(named("half_node_gone"), node(), "severe", 1)
    assert (gone[:, :, OTHER] == 1).all(axis=0).sum() == 8


def test_one_thread_is_stuck():
    for seed in range(6):
        changed = (inject(named("stuck_thread"), node(), "moderate", seed) != node()).any(axis=(0, 2))
        assert changed.sum() == 1


def test_a_mild_fault_sets_in_within_the_window():
    for fault in BENCH:
        same = np.isclose(inject(fault, node(), "mild", 4), node()).all(axis=(1, 2))
        assert same[:30].all() and not same.all(), fault.name


def test_changed_steps_are_counted_in_ticks():
    """A detector must not know a fault by shares that no kernel counts."""
    for fault in BENCH:
        ticks = 100 * inject(fault, node(), "moderate", 2)
        assert np.abs(ticks - np.round(ticks)).max() < 1e-6, fault.name

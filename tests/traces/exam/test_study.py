"""The exam: detector and baselines on node windows with a fault and without it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stormpetrel.traces.campaign_splits import Cut, SplitWindows
from stormpetrel.traces.detector.statistics import thread_statistics
from stormpetrel.traces.exam.baselines import WindowsOfNodes, fitted_baselines
from stormpetrel.traces.exam.study import CEILING, DETECTOR, run_fault_study
from stormpetrel.traces.faults.contract import Fault
from tests.traces.detector.test_detector import campaigns

NAMES = ["iowait", "pca", "pca_statistics", "mahalanobis", "node_mahalanobis", "ecod", "knn", "kmeans", "iforest", "autoencoder"]


def all_wait(windows, severity, seed):
    return np.broadcast_to([0.0, 0.05, 0.95, 0.0], windows.shape)


NOTHING, WAITING = Fault("nothing", lambda windows, severity, seed: windows), Fault("all_wait", all_wait)


@cache
def split():
    train, test = campaigns()
    moments = np.unique(train.start_s)
    late = train.start_s >= moments[-6]
    return SplitWindows(train.take(~late), train.take(late), test, Cut(), {})


def study(faults, **changes):
    return run_fault_study(split(), faults, most_nodes=20, **changes)


def test_a_fault_that_changes_nothing_is_told_by_nobody_and_a_loud_one_by_the_detector():
    found = study((NOTHING, WAITING), references=("iowait",))
    assert set(found.figures["nothing"]["mild"]) == {DETECTOR, "iowait"}
    for figures in found.figures["nothing"].values():
        assert 0.3 < figures[DETECTOR].roc_auc < 0.7
    for figures in found.figures["all_wait"].values():
        assert figures[DETECTOR].roc_auc > 0.99 and figures[DETECTOR].recall > 0.9 and figures["iowait"].roc_auc > 0.99
    assert not found.not_visible and set(found.promised) == {0.05, 0.01, 0.001}


@pytest.mark.needs("sklearn")
def test_all_references_stand_beside_the_detector_unless_some_are_named():
    found = study((WAITING,))
    assert list(found.figures["all_wait"]["severe"]) == [DETECTOR, *NAMES, CEILING]
    assert found.figures["all_wait"]["severe"][CEILING].roc_auc > 0.99
    assert list(study((WAITING,), references=()).figures["all_wait"]["severe"]) == [DETECTOR]


def test_a_baseline_scores_the_same_whoever_stands_beside_it():
    rates = split().test.rates[:400]
    statistics = np.random.default_rng(0).random((400, 60))
    windows = WindowsOfNodes(rates, statistics, np.repeat(np.arange(25), 16), 25)
    (alone,) = fitted_baselines(windows, 0, ("kmeans",))
    among = {baseline.name: baseline for baseline in fitted_baselines(windows, 0, ("pca", "knn", "kmeans"))}
    np.testing.assert_array_equal(alone.score(windows), among["kmeans"].score(windows))
    far = WindowsOfNodes(1 - rates, statistics, windows.node, 25)
    assert np.median(alone.score(far)) > np.quantile(alone.score(windows), 0.9)


@pytest.mark.needs("sklearn")
def test_an_autoencoder_finds_unseen_windows_odd_and_gives_the_same_for_the_same_seed():
    rates = split().train.rates[:600]
    windows = WindowsOfNodes(rates, np.zeros((600, 60)), np.repeat(np.arange(100), 6), 100)
    first, again = (fitted_baselines(windows, 0, ("autoencoder",))[0].score(windows) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    (network,) = fitted_baselines(windows, 0, ("autoencoder",))
    strange = replace(windows, rates=np.roll(rates, 1, axis=2))  # each mode in the place of another
    assert np.median(network.score(strange)) > np.quantile(first, 0.9)


@pytest.mark.needs("sklearn")
def test_baselines_learn_from_nodes_that_never_do_anything():
    rates = np.zeros((240, 100, 4), dtype=np.float32)
    rates[:, :, 3] = 1
    idle = WindowsOfNodes(rates, thread_statistics(rates), np.repeat(np.arange(60), 4), 60)
    for baseline in fitted_baselines(idle, 0):
        assert np.isfinite(baseline.score(idle)).all(), baseline.name

import json
from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.traces.hierarchy import NodeHierarchy, NodeMoments
from tests.traces.small import small_windows

CALM, LATER = small_windows(0, steps=40 * 16), small_windows(1, steps=40 * 16)


def embedded(windows):
    """Means of the modes in place of a network's embedding."""
    return windows.rates.mean(axis=1).astype(np.float32)


def pressure(windows, seed=0):
    return 0.1 + 0.02 * np.random.default_rng(seed).random((len(NodeMoments.of(windows)), 3))


PLAIN, FULL = NodeHierarchy.fit(embedded(CALM), CALM), NodeHierarchy.fit(embedded(CALM), CALM, pressure(CALM))


def test_every_node_has_one_embedding_and_one_score_at_each_moment_and_every_job_on_it():
    found = PLAIN.summarise(embedded(LATER), LATER)
    assert len(found.moments) == 40 * 2 == len(found.score) == len(found.embedding)
    assert len(found.job_score) == 40 * 2 * 4 and np.isfinite(found.score).all()  # three jobs, and the thread without one
    assert np.median(found.score) < 4  # 2 is usual; threads of the later run tremble in another phase


def test_a_job_whose_threads_fall_apart_is_seen_in_the_job_and_in_its_node_alone():
    embeddings, moments = embedded(LATER), NodeMoments.of(LATER)
    sick = (
        (LATER.node == 1) & (LATER.cpu == 2) & (LATER.start_s >= LATER.start_s.mean())
    )  # one thread of the MPI job stands still
    embeddings[sick] = [0.0, 0.0, 0.0, 1.0]
    found = PLAIN.summarise(embeddings, LATER)
    nodes, jobs = (
        np.isin(np.arange(len(moments)), moments.node[sick]),
        np.isin(np.arange(len(found.job_score)), moments.job[sick]),
    )
    assert found.score[nodes].min() > found.score[~nodes].max() and found.job_score[jobs].min() > found.job_score[~jobs].max()


def test_other_metrics_enter_at_the_node_and_one_that_is_missing_counts_as_usual():
    metrics = pressure(LATER, seed=1)
    odd, holes = metrics.copy(), metrics.copy()
    odd[7] = 0.9
    holes[5] = np.nan
    usual = FULL.summarise(embedded(LATER), LATER, metrics)
    found = FULL.summarise(embedded(LATER), LATER, odd)
    assert found.score[7] > 1.5 * usual.score.max() and np.allclose(np.delete(found.score, 7), np.delete(usual.score, 7))
    assert np.array_equal(found.job_score, usual.job_score)
    for summaries in (FULL.summarise(embedded(LATER), LATER, holes), FULL.summarise(embedded(LATER), LATER)):
        assert np.isfinite(summaries.score).all() and summaries.score[5] < usual.score.max()


def test_the_order_of_the_windows_changes_nothing():
    order = np.random.default_rng(0).permutation(len(LATER))
    mixed = LATER.take(order)
    found, again = PLAIN.summarise(embedded(LATER), LATER), PLAIN.summarise(embedded(mixed), mixed)
    assert np.allclose(found.score, again.score) and np.array_equal(
        mixed.node[again.moments.first], LATER.node[found.moments.first]
    )


def test_a_hierarchy_comes_back_from_json_as_it_was():
    record = json.loads(json.dumps(FULL.record()))
    metrics = pressure(LATER, seed=2)
    again = NodeHierarchy.of_record(record)
    assert np.array_equal(again.summarise(embedded(LATER), LATER, metrics).score,
                          FULL.summarise(embedded(LATER), LATER, metrics).score)  # fmt: skip
    with pytest.raises(ModelFormatError):
        NodeHierarchy.of_record({"jobs": record["jobs"]})


def test_metrics_of_another_number_are_refused():
    for metrics in (pressure(LATER)[:, :2], pressure(LATER)[:3]):
        with pytest.raises(UsageError):
            FULL.summarise(embedded(LATER), LATER, metrics)
    one = replace(LATER, jobs=LATER.jobs).take(np.arange(8))
    assert len(PLAIN.summarise(embedded(one), one).score) == 1

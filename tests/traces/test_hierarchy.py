""""""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.traces_machines import lagged, smoothed

from stormpetrel.errors import ModelError, ModelFormatError, UsageError
from stormpetrel.traces.hierarchy import LearnedSummary, Moments, NodeHierarchy
from tests.traces.small import small_windows

CALM, LATER, ASIDE = (small_windows(seed, steps=40 * 16) for seed in (0, 1, 2))
NAMES = ("memory_used", "io_pressure", "disk_busy")


def embedded(windows):
    """Means of the modes in place of a network's embedding."""
    return windows.rates.mean(axis=1).astype(np.float32)


def moments(windows):
    return Moments.of(windows.trace, windows.start_s, windows.node, windows.job)


def pressure(windows, seed=0):
    return 0.1 + 0.02 * np.random.default_rng(seed).random((len(moments(windows)), 3))


def named(metrics):
    return dict(zip(NAMES, metrics.T, strict=True))


PLAIN = NodeHierarchy.fit(embedded(CALM), moments(CALM))
FULL = NodeHierarchy.fit(embedded(CALM), moments(CALM), pressure(CALM), NAMES)
RANKED = FULL.calibrated(embedded(ASIDE), moments(ASIDE), named(pressure(ASIDE, seed=5)))


def test_every_node_has_one_embedding_and_one_score_at_each_moment_and_so_has_every_job_and_the_cluster():
    found = PLAIN.summarise(embedded(LATER), moments(LATER))
    assert len(moments(LATER)) == 40 * 2 == len(found.node.score) == len(found.node.embedding)
    assert len(found.job.score) == 40 * 2 * 4 and np.isfinite(found.node.score).all()  # three jobs, and the thread without one
    assert len(found.cluster.score) == 40 == len(found.cluster.embedding)
    assert np.median(found.node.score) < 4  # 2 is usual; threads of the later run tremble in another phase


def test_a_job_whose_threads_fall_apart_is_seen_in_the_job_in_its_node_alone_and_in_the_cluster():
    embeddings, of = embedded(LATER), moments(LATER)
    sick = (
        (LATER.node == 1) & (LATER.cpu == 2) & (LATER.start_s >= LATER.start_s.mean())
    )  # one thread of the MPI job stands still
    embeddings[sick] = [0.0, 0.0, 0.0, 1.0]
    found = PLAIN.summarise(embeddings, of)
    members = ((found.node, of.node), (found.job, of.job), (found.cluster, of.moment[of.node]))
    for summary, number in members:
        concerned = np.isin(np.arange(len(summary.score)), number[sick])
        assert summary.score[concerned].min() > summary.score[~concerned].max()


def test_other_metrics_enter_at_the_node_and_one_that_is_missing_counts_as_usual():
    metrics = pressure(LATER, seed=1)
    odd, holes = metrics.copy(), metrics.copy()
    odd[7] = 0.9
    holes[5] = np.nan
    usual = FULL.summarise(embedded(LATER), moments(LATER), named(metrics))
    found = FULL.summarise(embedded(LATER), moments(LATER), named(odd))
    assert found.node.score[7] > 1.5 * usual.node.score.max()
    assert np.allclose(np.delete(found.node.score, 7), np.delete(usual.node.score, 7))
    assert np.array_equal(found.job.score, usual.job.score)
    for given in (named(holes), None, {"disk_busy": metrics[:, 2]}):
        score = FULL.summarise(embedded(LATER), moments(LATER), given).node.score
        assert np.isfinite(score).all() and score[5] < usual.node.score.max()


def test_the_metric_that_is_farthest_from_what_is_usual_is_named():
    odd = pressure(LATER, seed=1)
    odd[7, 1] = 0.9
    found = FULL.summarise(embedded(LATER), moments(LATER), named(odd)).unusual
    assert found[7] == 1 and (np.delete(found, 7) == -1).all()


def test_a_metric_that_was_never_seen_in_training_is_left_out_when_it_appears():
    never = pressure(CALM)
    never[:, 2] = np.nan
    hierarchy = NodeHierarchy.fit(embedded(CALM), moments(CALM), never, NAMES)
    with_it, without = named(pressure(LATER)) | {"disk_busy": np.ones(len(moments(LATER)))}, named(pressure(LATER))
    scores = [hierarchy.summarise(embedded(LATER), moments(LATER), given).node.score for given in (with_it, without)]
    assert hierarchy.names == NAMES[:2] and np.array_equal(*scores)


def test_a_calibrated_score_is_a_rank_among_calm_moments_kept_aside():
    found = RANKED.summarise(embedded(ASIDE), moments(ASIDE), named(pressure(ASIDE, seed=5)))
    assert (found.node.score >= 1.0).mean() == pytest.approx(0.1, abs=0.03)


def test_the_order_of_the_windows_changes_nothing():
    mixed = LATER.take(np.random.default_rng(0).permutation(len(LATER)))
    found, again = (PLAIN.summarise(embedded(windows), moments(windows)) for windows in (LATER, mixed))
    assert np.allclose(found.node.score, again.node.score)
    assert np.array_equal(mixed.node[moments(mixed).first], LATER.node[moments(LATER).first])


def test_a_hierarchy_comes_back_from_its_file_as_it_was():
    again = NodeHierarchy.of_content(RANKED.metadata(), RANKED.content(), "a folder")
    given = named(pressure(LATER, seed=2))
    found = [one.summarise(embedded(LATER), moments(LATER), given) for one in (RANKED, again)]
    for level in ("job", "node", "cluster"):
        assert np.array_equal(*(getattr(one, level).score for one in found))


@pytest.mark.parametrize("damage", [{"metrics": ["one"]}, {"metrics": None}, {}])
def test_a_damaged_hierarchy_is_refused(damage):
    with pytest.raises(ModelFormatError, match="is damaged"):
        NodeHierarchy.of_content(damage, RANKED.content(), "a folder")
    with pytest.raises(ModelFormatError, match="is damaged"):
        NodeHierarchy.of_content(RANKED.metadata(), RANKED.content()[:-9], "a folder")


def test_metrics_of_another_number_are_refused():
    with pytest.raises(UsageError):
        NodeHierarchy.fit(embedded(LATER), moments(LATER), pressure(LATER)[:3], NAMES)
    with pytest.raises(UsageError):
        FULL.summarise(embedded(LATER), moments(LATER), {"disk_busy": np.ones(3)})
    one = replace(LATER, jobs=LATER.jobs).take(np.arange(8))
    assert len(PLAIN.summarise(embedded(one), moments(one)).node.score) == 1


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

import json

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.traces.separability import MeanStd, PcaMap, silhouette


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 200)
    return rng.normal(0, 0.1, (600, 5)) + np.repeat(np.eye(5)[:3] * 5, 200, axis=0), labels


def test_separate_types_score_near_one_and_shuffled_ones_near_zero(blobs):
    points, labels = blobs
    assert silhouette(points, labels, subsets=3, size=300).mean > 0.9
    assert abs(silhouette(points, np.random.default_rng(1).permutation(labels), subsets=3, size=300).mean) < 0.05


def test_the_score_is_that_of_scikit_learn(blobs):
    from sklearn.metrics import silhouette_score

    points, labels = blobs
    rows = np.random.default_rng(7).choice(600, 300, replace=False)
    theirs = silhouette_score(points[rows], labels[rows])
    assert silhouette(points, labels, subsets=1, size=300, seed=7).mean == pytest.approx(theirs)


def test_subsets_are_random_of_one_size_and_repeatable(blobs):
    noisy = blobs[0] + np.random.default_rng(0).normal(0, 3, blobs[0].shape)
    one, again, other = (silhouette(noisy, blobs[1], subsets=5, size=100, seed=seed) for seed in (0, 0, 1))
    assert one == again and one != other and one.n == 5 and one.std > 0
    assert silhouette(noisy, blobs[1], subsets=5, size=10_000).std > 0  # few points: the subsets still differ


def test_a_type_with_one_point_is_left_out(blobs):
    points, labels = np.concatenate([blobs[0], [[9.0] * 5]]), np.append(blobs[1], "alone")
    assert silhouette(points, labels, subsets=4, size=480).mean > 0.9


def test_one_type_gives_no_figure():
    told = silhouette(np.random.default_rng(0).normal(size=(50, 2)), np.full(50, "a"))
    assert told.n == 0 and told.as_dict() == {"mean": None, "std": None, "n": 0}
    assert silhouette(np.empty((0, 2)), np.array([], dtype=str)).n == 0


def test_points_and_labels_must_fit():
    with pytest.raises(UsageError):
        silhouette(np.zeros((3, 2)), np.array(["a"]))


def test_mean_and_deviation():
    assert MeanStd.of([1.0, 3.0]) == MeanStd(2.0, 1.0, 2)


@pytest.mark.parametrize("count", [400, 20])  # more points than dimensions, and fewer
def test_the_map_is_that_of_scikit_learn(count):
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).normal(size=(count, 30)) * np.linspace(1, 5, 30)
    ours, theirs = PcaMap.fit(points), PCA(2).fit(points)
    assert np.allclose(np.abs(ours.transform(points)), np.abs(theirs.transform(points)), atol=1e-3)
    assert np.allclose(ours.explained, theirs.explained_variance_ratio_)


def test_the_map_is_saved_as_json_and_comes_back():
    points = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    fitted = PcaMap.fit(points)
    again = PcaMap.from_dict(json.loads(json.dumps(fitted.as_dict())))
    assert np.array_equal(fitted.transform(points), again.transform(points))


def test_points_on_a_line_or_all_equal_have_a_map():
    line = np.outer(np.arange(10.0), [1, 2, 3])
    assert PcaMap.fit(line).explained == pytest.approx([1, 0], abs=1e-9)
    assert PcaMap.fit(np.ones((5, 3))).transform(np.ones((2, 3))).tolist() == [[0, 0], [0, 0]]
    assert PcaMap.fit(np.arange(4.0)[:, None]).transform(np.zeros((1, 1))).shape == (1, 2)  # one dimension only


@pytest.mark.parametrize("points", [np.zeros((1, 3)), np.zeros(3), np.array([[np.nan, 1], [1, 2]])])
def test_a_map_needs_points_without_gaps(points):
    with pytest.raises(UsageError):
        PcaMap.fit(points)


def test_other_dimensions_are_refused():
    with pytest.raises(UsageError):
        PcaMap.fit(np.eye(4)).transform(np.zeros((2, 3)))


@pytest.mark.parametrize(
    "saved", [{}, {"mean": "x", "axes": [], "explained": []}, {"mean": [0.0], "axes": [[1, 2]], "explained": [1]}]
)
def test_a_damaged_map_is_refused(saved):
    with pytest.raises(ModelFormatError):
        PcaMap.from_dict(saved)

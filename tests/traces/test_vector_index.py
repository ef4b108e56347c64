import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.traces import vector_index
from stormpetrel.traces.vector_index import ExactIndex, IvfIndex, build_index


def clouds(n, *, seed=0, dimension=8):
    """Vectors around sixty centres, as windows lie around what jobs do."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.standard_normal((60, dimension))
    return (centres[rng.integers(60, size=n)] + rng.standard_normal((n, dimension))).astype(np.float32)


def test_the_exact_index_agrees_with_a_distance_by_hand(monkeypatch):
    vectors = np.array([[0, 0], [3, 4], [6, 8], [0, 1]], dtype=np.float32)
    monkeypatch.setattr(vector_index, "_BLOCK_BYTES", 16)  # one query at a time
    near = ExactIndex(vectors).search(np.array([[0, 0], [6, 8]], dtype=np.float32), 3)
    assert near.row.tolist() == [[0, 3, 1], [2, 1, 3]]
    assert near.distance[0].tolist() == [0.0, 1.0, 5.0] and near.distance[1, 1] == 5.0


def test_the_inverted_index_finds_nearly_all_neighbours_and_their_true_distances():
    vectors, queries = clouds(20_000), clouds(200, seed=1)
    exact, fast = ExactIndex(vectors).search(queries, 10), IvfIndex(vectors).search(queries, 10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact.row.tolist(), fast.row.tolist(), strict=True)])
    assert recall > 0.95
    assert np.allclose(np.linalg.norm(vectors[fast.row] - queries[:, None], axis=2), fast.distance, rtol=1e-4)
    assert (np.diff(fast.distance, axis=1) >= 0).all()


def test_an_index_that_probes_every_cell_is_exact_and_the_same_seed_builds_the_same():
    vectors, queries = clouds(500), clouds(20, seed=1)
    exact, whole = ExactIndex(vectors).search(queries, 5), IvfIndex(vectors, cells=10, probes=10).search(queries, 5)
    assert np.array_equal(exact.row, whole.row)
    one, two = (IvfIndex(vectors, probes=2, seed=3).search(queries, 5) for _ in range(2))
    assert np.array_equal(one.row, two.row)


def test_where_there_are_fewer_vectors_than_asked_for_the_rest_is_empty():
    for index in (ExactIndex(np.ones((2, 3), np.float32)), IvfIndex(np.ones((2, 3), np.float32))):
        near = index.search(np.zeros((1, 3), np.float32), 4)
        assert near.row[0].tolist()[2:] == [-1, -1] and np.isinf(near.distance[0, 2:]).all()
    assert ExactIndex(np.zeros((0, 3), np.float32)).search(np.zeros((1, 3), np.float32), 2).row.tolist() == [[-1, -1]]


def test_many_vectors_are_indexed_by_cells(monkeypatch):
    monkeypatch.setattr(vector_index, "EXACT_UP_TO", 100)
    assert isinstance(build_index(clouds(101)), IvfIndex) and isinstance(build_index(clouds(100)), ExactIndex)


@pytest.mark.parametrize("queries", [np.zeros((1, 2), np.float32), np.zeros(3, np.float32)])
def test_queries_of_another_length_are_refused(queries):
    with pytest.raises(UsageError, match="cannot be searched"):
        ExactIndex(np.ones((4, 3), np.float32)).search(queries, 1)

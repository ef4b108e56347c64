"""Forests that draw: leaves hold rows in like circumstances, and a damaged forest is refused."""

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.synth.sessions.kernel import draw
from stormpetrel.synth.sessions.leaf_forest import LeafForest, grow


@pytest.fixture(scope="module")
def grown():
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 1, (600, 10)).astype(np.float32)
    y = (x[:, :1] > 0.5).astype(float) * 10 + generator.normal(0, 0.1, (600, 1))
    forest, rows = grow(x, y, trees=5, leaf=4, seed=0)
    return x, y, forest, rows


def test_every_tree_holds_every_row_once(grown):
    x, _, forest, rows = grown
    assert len(forest.roots) == 5 and len(rows) == 5 * len(x)
    assert all(np.array_equal(np.sort(part), np.arange(len(x))) for part in rows.reshape(5, -1))


def test_leaves_have_as_many_values_as_asked_for(grown):
    forest = grown[2]
    leaves = forest.left < 0
    assert forest.count[leaves].min() >= 4 and forest.count[leaves].sum() == 5 * 600


def test_what_is_drawn_was_seen_in_like_circumstances(grown):
    x, y, forest, rows = grown
    drawn = np.array([y[rows[draw(forest.arrays(), row)], 0] for row in x])
    assert np.mean((drawn > 5) == (x[:, 0] > 0.5)) > 0.9 and set(drawn) <= set(y[:, 0])


def test_one_row_is_a_forest_too():
    forest, rows = grow(np.zeros((1, 2)), np.zeros((1, 1)), trees=2, leaf=4, seed=0)
    forest.check(2, len(rows))
    assert rows.tolist() == [0, 0]


def test_the_same_seed_grows_the_same_forest(grown):
    x, y, forest, _ = grown
    again, _ = grow(x, y, trees=5, leaf=4, seed=0)
    other, _ = grow(x, y, trees=5, leaf=4, seed=1)
    assert np.array_equal(forest.threshold, again.threshold) and not np.array_equal(forest.threshold[:9], other.threshold[:9])


def test_a_forest_survives_its_file(grown):
    stored = grown[2].to_arrays("gap")
    again = LeafForest.from_arrays(stored, "gap")
    assert all(np.array_equal(one, other) for one, other in zip(again.arrays(), grown[2].arrays(), strict=True))
    again.check(10, len(grown[3]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left", 0),  # a node that is its own child: a walk without end
        ("left", 2**31 - 1),
        ("right", 0),
        ("right", -1),
        ("feature", 10),
        ("feature", -1),
        ("roots", -1),
        ("roots", 2**40),
        ("first", -1),
        ("first", 3000),
        ("first", 2**63 - 1),
        ("count", 0),
        ("count", -5),
        ("count", 2**31 - 1),
    ],
)
def test_a_number_that_leads_out_of_the_arrays_is_refused(grown, name, value):
    forest = grown[2]
    leaf = name in ("first", "count")
    where = 0 if name == "roots" else int(np.flatnonzero((forest.left < 0) if leaf else (forest.left >= 0))[0])
    broken = getattr(forest, name).copy()
    broken[where] = value
    with pytest.raises(ModelFormatError, match="leads out of its own arrays"):
        replace(forest, **{name: broken}).check(10, 3000)


@pytest.mark.parametrize("name", ["left", "threshold", "count", "roots"])
def test_arrays_of_different_lengths_are_refused(grown, name):
    short = getattr(grown[2], name)[:0]
    with pytest.raises(ModelFormatError, match="different lengths"):
        replace(grown[2], **{name: short}).check(10, 3000)


@pytest.mark.parametrize("damage", [lambda a: a.astype(np.float64), lambda a: a[None], lambda a: a.astype(object)])
def test_arrays_of_another_type_are_refused(grown, damage):
    stored = grown[2].to_arrays("gap")
    with pytest.raises(ModelFormatError, match="lacks a forest"):
        LeafForest.from_arrays(stored | {"gap.left": damage(stored["gap.left"])}, "gap")


def test_a_missing_array_is_named(grown):
    stored = grown[2].to_arrays("gap")
    del stored["gap.count"]
    with pytest.raises(ModelFormatError, match=r"gap\.count"):
        LeafForest.from_arrays(stored, "gap")

"""Modes: shared values exactly, the others to a fraction, and modes where the column has them."""

import numpy as np
import pytest

from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.rows.table_encoding import NumberModes, TableEncoding, nearest

RNG = np.random.default_rng


def test_a_table_comes_back():
    rng = RNG(0)
    numbers = {"limit": rng.choice([60.0, 3600.0, 7200.0], 2000), "runtime": np.round(rng.lognormal(6, 2, 2000), 2)}
    table = Table(numbers, {"state": rng.integers(3, size=2000)}, {"state": 3})
    encoding = TableEncoding.learn(table, rng)
    rows = TableEncoding.of_record(encoding.record()).encode(table, rng)
    back = encoding.decode(rows)
    assert np.abs(rows.places).max() < 1
    assert np.array_equal(back.numbers["limit"], numbers["limit"]) and np.array_equal(back.codes["state"], table.codes["state"])
    assert np.mean(np.isclose(back.numbers["runtime"], numbers["runtime"], rtol=1e-3)) > 0.98


def test_a_value_that_many_share_has_a_mode_of_its_own():
    column = np.concatenate([np.ones(400), RNG(0).normal(50, 5, 600)])
    modes = NumberModes.learn(column, RNG(0))
    place, mode = modes.encode(column, RNG(0))
    assert modes.shared.tolist() == [1.0] and set(mode[:400]) == {0} and not place[:400].any() and mode[400:].min() == 1


def test_two_hills_are_two_modes_and_decades_are_seen_as_logarithms():
    hills = np.concatenate([RNG(0).normal(-100, 1, 500), RNG(1).normal(100, 1, 500)])
    modes = NumberModes.learn(hills, RNG(0))
    means = modes.means[modes.shares > 0.05]
    assert min(means) == pytest.approx(-100, abs=3) and max(means) == pytest.approx(100, abs=3) and not modes.decades
    assert NumberModes.learn(RNG(0).lognormal(5, 3, 1000), RNG(0)).decades


def test_few_values_give_back_only_themselves():
    modes = NumberModes.learn(np.arange(500.0) * 64, RNG(0))
    made = modes.decode(np.full(200, 0.123, dtype=np.float32), RNG(0).integers(modes.size, size=200))
    assert np.all(made % 64 == 0)
    assert nearest(np.array([1.0, 10.0]), np.array([-4.0, 5.0, 6.0, 99.0])).tolist() == [1, 1, 10, 10]


def test_a_damaged_record_is_refused():
    record = NumberModes.learn(RNG(0).normal(size=100), RNG(0)).record()
    with pytest.raises(ValueError, match="fit"):
        NumberModes.of_record({**record, "means": [0.0]})
    with pytest.raises(ValueError, match="damaged"):
        NumberModes.of_record({**record, "seen": [float("nan")]})

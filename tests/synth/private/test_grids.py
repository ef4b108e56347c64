"""Public grids: every value has a cell, and a value drawn from a cell lies in it."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpetrel.synth.private.layout import (
    BUCKETS,
    GAP_GRID,
    LIMIT_GRID,
    MEMORY_GRID,
    NUMBER_GRID,
    RUNTIME_GRID,
    SIZE_GRID,
    STATES,
    WHOLE_GRID,
    Categories,
)

GRIDS = {"size": SIZE_GRID, "memory": MEMORY_GRID, "limit": LIMIT_GRID, "runtime": RUNTIME_GRID, "gap": GAP_GRID,
         "whole": WHOLE_GRID, "number": NUMBER_GRID}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_a_value_drawn_from_a_cell_lies_in_that_cell(name):
    grid = GRIDS[name]
    cells = np.tile(np.arange(grid.missing), 7)
    drawn = grid.values(cells, np.repeat(np.linspace(0, 0.999999, 7), grid.missing))
    assert (grid.cells(drawn) == cells).all()
    assert not grid.whole or (drawn == np.round(drawn)).all()


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_has_a_cell(value):
    for grid in GRIDS.values():
        assert 0 <= grid.cells(np.array([value]))[0] < grid.size


def test_missing_values_stay_missing_and_round_ones_stay_exact():
    values = np.array([1.0, 64.0, np.nan])
    assert np.array_equal(SIZE_GRID.values(SIZE_GRID.cells(values), np.full(3, 0.7)), values, equal_nan=True)
    hours = np.array([3600.0, 86_400.0])
    assert (LIMIT_GRID.values(LIMIT_GRID.cells(hours), np.full(2, 0.3)) == hours).all()


def test_values_keep_below_what_cuts_their_cell_off():
    cell = RUNTIME_GRID.cells(np.array([1000.0] * 5))
    assert (RUNTIME_GRID.values(cell, np.linspace(0, 0.999, 5), below=np.full(5, 700.0)) < 700).all()


def test_words_that_are_not_public_get_new_names_and_public_ones_stay():
    texts = pl.Series("queue", ["secret-project", "other", None, "secret-project"])
    hidden, shown = Categories("queue"), Categories("queue", ("other",))
    made = hidden.words(hidden.texts(texts)).to_list()
    assert (
        made[0] == made[3]
        and made[2] is None
        and all(name in (None, *(f"queue{n:02d}" for n in range(1, BUCKETS + 1))) for name in made)
    )
    assert shown.words(shown.texts(texts)).to_list() == [None, "other", None, None]
    assert Categories("state", STATES).size == len(STATES) + 1

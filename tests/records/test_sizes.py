"""Sizes for people: the unit that fits, whatever the size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpetrel.records.units import GB, MB, format_memory, format_size

_UNITS = {"kB": 1024, "MB": MB, "GB": GB, "TB": 1024 * GB}


@pytest.mark.parametrize(
    ("size", "words"),
    [(30 * MB, "30 MB"), (0, "0 MB"), (2000, "2 kB"), (3.14 * GB, "3.1 GB"), (8 * GB, "8 GB"), (2048 * GB, "2 TB")],
)
def test_memory_is_told_in_the_unit_that_fits(size, words):
    assert format_memory(size) == words


@given(st.integers(1, 2**52))
def test_a_size_in_words_is_the_size_within_its_rounding(size):
    number, unit = format_memory(size).replace(",", "").split()
    assert 1 <= float(number) < 1024 or unit == "TB"
    assert float(number) * _UNITS[unit] == pytest.approx(size, rel=0.5, abs=1024)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1234, "1.23 kB"), (7.1e10, "71 GB"), (3e12, "3 TB")]
)
def test_files_and_disks_are_told_in_powers_of_a_thousand(size, words):
    assert format_size(size) == words

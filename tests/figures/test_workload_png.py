"""The picture of workloads is a PNG of every column; without matplotlib a sentence says what to install."""

from __future__ import annotations

import builtins
import struct

import numpy as np
import pytest

from stormpetrel.errors import MissingExtraError
from stormpetrel.figures.workload_png import cdf_grid_png
from tests.synth.made_workloads import made_workload, shuffled, workload_at


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_every_row_of_columns_makes_the_picture_higher():
    real = made_workload(300, weeks=2)
    width, height = size_of(cdf_grid_png({"real": real, "rows": shuffled(real)}, dpi=40))
    less = size_of(cdf_grid_png({"real": real}, ["interval_s", "cores"], dpi=40))
    assert less[0] == width and less[1] < height


def test_names_with_formulas_control_characters_and_great_length_are_drawn():
    hostile = workload_at(np.arange(30.0), **{r"$\frac{1}{0}$": ["$x^$", "a\x1b[31m" * 30] * 15})
    assert cdf_grid_png({r"$\bad": hostile}, dpi=40)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    imported = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[plots\]"):
        cdf_grid_png({"real": workload_at(np.arange(30.0))})

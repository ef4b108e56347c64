"""Batches: every window once, and the threads of a graph never apart."""

from __future__ import annotations

from tests.parts import need

need("torch")

import numpy as np
import pytest
import torch

from stormpetrel.traces.networks.architecture import Architecture, graph_numbers
from stormpetrel.traces.networks.batches import BatchPlan
from tests.traces.small import small_windows

CPU = torch.device("cpu")


def rows_of(plan: BatchPlan, generator: torch.Generator | None = None) -> list[list[int]]:
    return [batch.rows.tolist() for batch in (plan.in_order() if generator is None else plan.shuffled(generator))]


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("batch_windows", [1, 7, 40, 10_000])
def test_every_window_comes_once_and_a_graph_is_never_split(architecture, batch_windows):
    windows = small_windows().take(np.random.default_rng(0).permutation(100))
    numbers = graph_numbers(windows, architecture)
    plan = BatchPlan(len(windows), numbers, batch_windows=batch_windows, device=CPU)
    for batches in (rows_of(plan), rows_of(plan, torch.Generator().manual_seed(0))):
        assert sorted(row for rows in batches for row in rows) == list(range(100))
        if numbers is None:
            assert {len(rows) for rows in batches[:-1]} <= {batch_windows}
        else:
            found = [set(numbers[rows].tolist()) for rows in batches]
            assert sum(map(len, found)) == len(set.union(*found))


def test_the_generator_decides_the_order():
    plan = BatchPlan(50, None, batch_windows=8, device=CPU)
    first, again, other = (rows_of(plan, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_no_windows_make_no_batches():
    for numbers in (None, np.zeros(0, dtype=np.int64)):
        assert rows_of(BatchPlan(0, numbers, batch_windows=8, device=CPU)) == []
